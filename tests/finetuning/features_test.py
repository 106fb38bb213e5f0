"""Tests of the features that a run computes once."""

import dataclasses
import os
import pickle
import shutil

import numpy as np
import pytest

from bert_jax import errors, main
from bert_jax.finetuning import tags
from bert_jax.finetuning.features import FeatureRows, read_models
from bert_jax.inference import hidden_states
from bert_jax.train import task
from tests import models
from tests.finetuning import made, tags_test

LAYERS = {'embeddings': [0], 'concat_last_4': [1, 2, 3, 4], 'last': [4]}


def write_model(path, *more, **changes):
  """Writes a model of four layers; returns (path, params, config)."""
  return made.write_model(path, *more, **{'num_layers': 4, **changes})


def make_config(source, data, features, **changes):
  return made.make_config(
    source,
    data,
    **{'finetuning.features': features, 'model.bilstm': 6, **changes},
  )


def find_hidden(params, config, text):
  """Returns the hidden states of a text, [L + 1, S, D], computed alone."""
  [found] = hidden_states.extract(
    params, config, models.TOKENIZER, [text], layers='all'
  )
  return found.hidden


@pytest.mark.parametrize('features', LAYERS)
def test_cached_features_are_those_computed_directly(tmp_path, features):
  source, params, config = write_model(tmp_path / 'm')
  c = make_config(source, made.write_texts(tmp_path / 'texts'), features)
  _, data = made.prepare(c, str(tmp_path / 'run'))
  rows = data.splits['test'].encoded
  assert rows.lengths.tolist() == [4, 4]
  for i, text in enumerate(['the dog', 'cats']):
    expected = find_hidden(params, config, text)[LAYERS[features]]
    found = rows.features[4 * i : 4 * i + 4].swapaxes(0, 1)
    np.testing.assert_allclose(found, expected, atol=1e-5)
  [origin] = data.manifest['features']['models']
  assert origin == source
  assert 'test.features.npy' in data.manifest['sha256']


@pytest.mark.slow
def test_two_models_are_read_side_by_side(tmp_path):
  ltr = write_model(tmp_path / 'ltr', causal=True)
  rtl = made.write_reversed(tmp_path / 'rtl', seed=1, num_layers=4)
  texts = made.write_texts(tmp_path / 'texts')
  c = make_config(f'{ltr[0]},{rtl[0]}', texts, 'last')
  rows = made.prepare(c, str(tmp_path / 'run'))[1].splits['test'].encoded
  expected = np.concatenate(
    [find_hidden(*model[1:], 'the dog')[-1] for model in (ltr, rtl)], -1
  )
  np.testing.assert_allclose(rows.features[:4, 0], expected, atol=1e-5)


def test_models_that_differ_are_not_joined(tmp_path):
  a, *_ = write_model(tmp_path / 'a')
  b, *_ = write_model(tmp_path / 'b', num_layers=2)
  words = dataclasses.replace(models.TOKENIZER, lowercase=False)
  d, *_ = write_model(tmp_path / 'd', words)
  for other, message in (
    (b, 'num_layers is 2, not 4'), (d, 'another vocabulary')
  ):  # fmt: skip
    c = make_config(f'{a},{other}', '', 'last')
    with pytest.raises(errors.UserError, match=f'cannot be joined.*{message}'):
      read_models(c)


def test_only_words_are_kept_for_tagging_each_at_its_first_piece(tmp_path):
  source, params, config = write_model(tmp_path / 'm')
  words = tags_test.write_words(tmp_path / 'words')
  c = make_config(source, words, 'last')
  c.task, c.data.text, c.data.label = 'tagging', '', ''
  c, data = made.prepare(c, str(tmp_path / 'run'))
  plain = tags.TASK.read(c, models.TOKENIZER)
  rows = data.splits['test'].encoded
  hidden = find_hidden(params, config, 'the dog e')[-1]  # [CLS] the dog e [SEP]
  np.testing.assert_allclose(rows.features[:3, 0], hidden[1:4], atol=1e-5)
  # Words with their tags, as in rows of ids.
  [phase] = task.list_phases(c)
  own = np.arange(min(phase.batch_size, plain.splits['dev'].size))
  batch, ids = (
    x.splits['dev'].make_batch(own, phase.seq_length, 0) for x in (data, plain)
  )
  for row in range(len(ids['labels'])):
    labels = ids['labels'][row][ids['label_weights'][row] > 0]
    n = int(batch['input_mask'][row].sum())
    assert batch['label_weights'][row].sum() == n == len(labels)
    assert batch['labels'][row][:n].tolist() == labels.tolist()


def test_a_model_with_too_few_layers_is_refused(tmp_path):
  source, *_ = write_model(tmp_path / 'm', num_layers=2)
  c = make_config(source, made.write_texts(tmp_path / 'texts'), 'concat_last_4')
  with pytest.raises(errors.UserError, match='needs 4 layers, init_from has 2'):
    made.prepare(c, str(tmp_path / 'run'))
  c.init_from, c.data.vocab = '', models.write_data(tmp_path / 'v')
  with pytest.raises(errors.UserError, match='needs init_from: the model, or'):
    made.prepare(c, str(tmp_path / 'run'))
  c.init_from, c.data.vocab = source, ''
  c.finetuning.features = 'second_to_last'
  made.prepare(c, str(tmp_path / 'run'))


@pytest.mark.slow
def test_a_run_trains_a_head_on_features_that_it_computes_once(
  tmp_path, capsys, monkeypatch
):
  source, *_ = write_model(tmp_path / 'm')
  texts = made.write_texts(tmp_path / 'texts')
  c = make_config(source, texts, 'weighted_sum_last_4')
  run = made.train(c, tmp_path)
  out = capsys.readouterr().out
  assert out.count(f'features of {source}: {source}') == 1
  assert out.count('  no export: only a head was trained') == 1
  trained = [x['cross_entropy'] for x in made.list_logged(run, 'train')]
  assert trained[-1] < trained[0]
  assert os.path.exists(os.path.join(run, 'results.json'))
  with pytest.raises(errors.UserError, match='only a head.*are in predictions'):
    made.predict(run, f'{texts}/test.csv', tmp_path / 'out.csv')
  # The model is not needed any more: nothing is computed again.
  shutil.rmtree(source)
  monkeypatch.setattr('bert_jax.finetuning.features._compute_all', None)
  main.run(c, run)
  assert 'resumed at step' in capsys.readouterr().out


def make_rows(tmp_path):
  path = str(tmp_path / 'x.npy')
  np.save(path, np.arange(30, dtype=np.float32).reshape(5, 2, 3))
  return FeatureRows(path, np.array([2, 5]))


def test_a_batch_has_the_rows_and_their_mask(tmp_path):
  rows = make_rows(tmp_path)
  batch = rows.make_batch(np.array([1, 0, 1]), 4, pad_id=0)
  assert batch['input_mask'].tolist() == [
    [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]
  ]  # fmt: skip
  assert batch['features'].shape == (3, 4, 2, 3)
  np.testing.assert_array_equal(batch['features'][1, :2], rows.features[:2])
  np.testing.assert_array_equal(batch['features'][0, :3], rows.features[2:])
  assert not batch['features'][batch['input_mask'] == 0].any()
  assert rows.lengths.tolist() == [2, 3]


def test_the_features_are_left_in_their_file(tmp_path):
  rows = make_rows(tmp_path)
  assert isinstance(rows.features, np.memmap)
  data = pickle.dumps(rows)
  assert len(data) < 1000
  np.testing.assert_array_equal(pickle.loads(data).features, rows.features)
