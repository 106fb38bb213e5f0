"""Tests of the parameters that fine-tuning starts from."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

from bert_jax import errors, main, param_names
from bert_jax.finetuning import starting
from bert_jax.inference import fine_tuned, source
from bert_jax.interop import hugging_face
from bert_jax.model import classifier, parameters
from bert_jax.workdir import checkpoint_reader, paths
from tests import models
from tests.finetuning import made


def make_config(**changes):
  c = made.make_config('', '', **changes)
  c.model.num_layers = 12
  return c


def test_the_top_layers_and_the_pooler_start_anew():
  assert fine_tuned.list_new_layers(12, 0) == ''
  found = fine_tuned.list_new_layers(12, 2)
  names = [f'encoder/layer_{i}/mlp_in/kernel' for i in range(12)]
  names += ['pooler/kernel', 'classifier/kernel', 'embeddings/word/embedding']
  assert [name for name in names if re.search(found, name)] == [
    'encoder/layer_10/mlp_in/kernel',
    'encoder/layer_11/mlp_in/kernel',
    'pooler/kernel',
  ]


def test_a_model_is_taken_over_except_for_its_heads(tmp_path):
  path = made.write_source(tmp_path / 'source')
  c = make_config(init_from=path, **{'data.vocab_size': 11})
  c.model.num_layers = 2
  new = models.make_params(made.BERT, seed=3)
  new = {name: new[name] for name in ('embeddings', 'encoder', 'pooler')}
  new['classifier'] = {'bias': np.ones(2, np.float32)}
  found, facts = starting.make_start(c, ('a', 'b'), None)(new)
  theirs = param_names.flatten(models.make_params(made.BERT))
  for name, x in param_names.flatten(found).items():
    expected = 1 if name == 'classifier/bias' else theirs[name]
    np.testing.assert_array_equal(x, np.broadcast_to(expected, x.shape))
  assert facts['path'] == path
  c.data.vocab_size = 12
  with pytest.raises(errors.UserError, match='11 words now, 12 when'):
    starting.make_start(c, ('a', 'b'), None)(new)


@pytest.mark.parametrize('length, said', [(6, 0), (7, 1)])
def test_rows_longer_than_those_of_the_source_are_said(
  tmp_path, capsys, length, said
):
  path, about = str(tmp_path / 'source'), (made.BERT, models.TOKENIZER)
  params = models.make_params(made.BERT)
  hugging_face.export(path, params, *about, trained_length=6)
  start(path, 8, **{'phases.seq_length': (length,)})
  out = capsys.readouterr().out
  assert out.count(f'=7, but {path} was trained on rows of 6 tokens') == said


def write_head(path, labels=('a', 'b')):
  """Exports a classifier, whose kernel has 8 rows as after a BiLSTM of 4."""
  kernel = np.full((8, 2), 5, np.float32)
  head = classifier.Head(kernel, np.ones(2, np.float32), labels, 8, ('text',))
  params = models.make_params(made.BERT)
  hugging_face.export(
    str(path), params, made.BERT, models.TOKENIZER, None, head
  )
  return str(path)


BIAS = np.array([-0.25, -1.5], np.float32)


def start(path, rows, **changes):
  """Returns the classifier that a run starts from; a new one has [rows, 2]."""
  changes = {'data.vocab_size': 11, 'model.num_layers': 2} | changes
  c = make_config(init_from=path)
  c.update_from_flattened_dict(changes)
  new = models.make_params(made.BERT)
  new['classifier'] = {'kernel': np.zeros((rows, 2), np.float32)}
  return starting.make_start(c, ('a', 'b'), BIAS)(new)[0]['classifier']


def test_a_head_for_the_same_labels_is_taken_over(tmp_path):
  found = start(write_head(tmp_path / 'source'), 8)
  np.testing.assert_array_equal(found['kernel'], 5)
  np.testing.assert_array_equal(found['bias'], 1)


@pytest.mark.parametrize(
  ('changes', 'rows', 'field'),
  [
    ({'model.bilstm': 4}, 8, 'model.bilstm=0'),
    ({'model.bilstm': 3}, 6, 'model.bilstm=0'),
    ({'finetuning.form': 'gpt', 'data.vocab_size': 14}, 8, 'form=bert'),
    ({'task': 'tagging'}, 8, 'classification'),
  ],
)
def test_another_kind_of_head_is_left_out_and_this_is_said(
  tmp_path, capsys, changes, rows, field
):
  path = write_head(tmp_path / 'source')
  found = start(path, rows, **changes)
  np.testing.assert_array_equal(found['kernel'], 0)
  np.testing.assert_array_equal(found['bias'], BIAS)
  out = capsys.readouterr().out
  assert f'the head of {path} is left out, which is for classification' in out
  assert field in out and 'classifier: new, the source has none' in out


def test_only_what_the_source_lacks_is_drawn():
  layers = {'layer_0': {'w': np.ones(2)}, 'layer_1': {'w': np.ones(2)}}
  drawn = {'encoder': layers, 'classifier': {'w': np.ones(2)}}
  init = parameters.skip_layers(lambda key: drawn, '^encoder/layer_1/')
  kept = {name: x.all() for name, x in param_names.flatten(init(None)).items()}
  assert sorted(kept.values()) == [False, True, True]
  assert not kept['encoder/layer_0/w']


def test_random_weights_have_no_source_but_need_a_vocabulary():
  with pytest.raises(errors.UserError, match='init_from is empty; name a tra'):
    starting.read_tokenizer(make_config())
  assert starting.make_start(make_config(), ('a', 'b'), None) is None
  kernel = np.zeros((8, 2), np.float32)
  new = {'x': kernel, 'classifier': {'kernel': kernel, 'bias': kernel[0]}}
  made = starting.make_start(make_config(), ('a', 'b'), BIAS)(new)
  assert made == (
    {'x': kernel, 'classifier': {'kernel': kernel, 'bias': BIAS}},
    {},
  )


def make_frozen(source, data, features, **changes):
  frozen = {'finetuning.features': features, 'model.bilstm': 6}
  return made.make_config(source, data, **frozen, **changes)


def test_models_that_differ_are_not_joined(tmp_path):
  a, *_ = made.write_model(tmp_path / 'a')
  b, *_ = made.write_model(tmp_path / 'b', num_layers=3)
  c, *_ = made.write_model(tmp_path / 'c', causal=True)
  words = dataclasses.replace(models.TOKENIZER, lowercase=False)
  d, *_ = made.write_model(tmp_path / 'd', words)
  for joined, message in (
    ((a, b), 'num_layers is 3, not 2'),
    ((a, d), 'another vocabulary'),
    ((a, c), 'kind is ltr, not mlm'),
    ((c, c), 'kind is ltr, not rtl'),
    ((a, a, a), 'there is a third model'),
  ):
    config = make_frozen(','.join(joined), '', 'last')
    with pytest.raises(errors.UserError, match=f'cannot be joined.*{message}'):
      starting.read_models(config)


def test_a_model_with_too_few_layers_is_refused(tmp_path):
  source, *_ = made.write_model(tmp_path / 'm')
  texts = made.write_texts(tmp_path / 'texts')
  c = make_frozen(source, texts, 'concat_last_4')
  with pytest.raises(errors.UserError, match='needs 4 layers, the model has 2'):
    made.prepare(c, str(tmp_path / 'run'))
  c.init_from, c.data.vocab = '', models.write_data(tmp_path / 'v')
  with pytest.raises(errors.UserError, match='needs init_from: the model, or'):
    made.prepare(c, str(tmp_path / 'run'))
  c.init_from, c.data.vocab = source, ''
  c.finetuning.features, c.optimizer.freeze = 'second_to_last', 'pooler'
  with pytest.raises(
    errors.UserError, match='optimizer.freeze=.*features freezes'
  ):
    made.prepare(c, str(tmp_path / 'run'))


@pytest.mark.slow
def test_a_run_trains_a_head_on_two_models_that_it_does_not_change(
  tmp_path, capsys
):
  ltr, *_ = made.write_model(tmp_path / 'ltr', causal=True)
  rtl, *_ = made.write_reversed(tmp_path / 'rtl', seed=1)
  texts = made.write_texts(tmp_path / 'texts')
  c = make_frozen(f'{ltr},{rtl}', texts, 'weighted_sum_all')
  run = made.train(c, tmp_path)
  out = capsys.readouterr().out
  assert out.count('  no export: only a head was trained') == 1
  trained = [x['cross_entropy'] for x in made.list_logged(run, 'train')]
  assert trained[-1] < trained[0]
  params, _ = checkpoint_reader.read(paths.checkpoints(run))
  for path, part in ((ltr, params), (rtl, params['beside'])):
    theirs = param_names.flatten(source.read(path).params)
    for name, x in param_names.flatten(part).items():
      if name.startswith(('embeddings/', 'encoder/')):
        np.testing.assert_array_equal(x[: len(theirs[name])], theirs[name])
  with pytest.raises(errors.UserError, match='only a head.*are in predictions'):
    made.predict(run, f'{texts}/test.csv', tmp_path / 'out.csv')
  # The models are in the checkpoints.
  shutil.rmtree(ltr)
  main.run(c, run)
  assert 'resumed at step' in capsys.readouterr().out
