"""Tests of the pre-training task."""

import math
import os

import jax
import numpy as np
import pytest

from bert_jax import config, errors, task
from bert_jax.data import prepare
from bert_jax.tasks import pretrain
from tests.data import prepare_test


def make_config(**changes):
  c = config.pretraining('tiny')
  fields = {
    'data.vocab_size': 120,
    'phases.seq_length': (32, 64),
    'phases.steps': (30, 10),
    'phases.batch_size': (16, 8),
    'phases.max_predictions': (5, 10),
    'optimizer.warmup_steps': 3,
    'eval.sequences': 50,
    **{k.replace('__', '.'): v for k, v in changes.items()},
  }
  c.update_from_flattened_dict(fields)
  config.check(c)
  return c


@pytest.fixture(scope='module')
def directory(tmp_path_factory):
  root = tmp_path_factory.mktemp('pretrain')
  path = prepare_test.write_corpus(root / 'corpus.txt')
  prepare.prepare(prepare_test.make_recipe(path), str(root / 'data'), 1)
  return str(root / 'data')


def batches(c, directory, steps):
  made = pretrain.make(c, directory)
  first = task.phases(c)[0]
  return [made.train_batch(first, step) for step in steps]


def same(a, b):
  return all(np.array_equal(a[name], b[name]) for name in {*a, *b})


def test_a_batch_is_a_function_of_its_step(directory):
  c = make_config()
  forward = batches(c, directory, [3, 4, 20])
  backward = batches(c, directory, [20, 4, 3])[::-1]
  assert all(same(a, b) for a, b in zip(forward, backward, strict=True))
  assert not same(forward[0], forward[1])
  other = batches(make_config(seed=1), directory, [3])
  assert not same(forward[0], other[0])


def test_an_epoch_shows_every_record_once_and_masks_change(directory):
  c = make_config(phases__batch_size=(1, 8), phases__steps=(5000, 10))
  made, phase = pretrain.make(c, directory), task.phases(c)[0]
  manifest = prepare.read_manifest(directory)
  size = manifest['lengths']['32']['pairs']

  def texts(epoch):
    """Returns {text with the hidden words put back: masked text}."""
    found = {}
    for step in range(epoch * size, (epoch + 1) * size):
      batch = made.train_batch(phase, step)
      ids = batch['input_ids'][0].copy()
      hidden = tuple(ids)
      used = batch['masked_lm_weights'][0] > 0
      ids[batch['masked_lm_positions'][0][used]] = batch['masked_lm_ids'][0][
        used
      ]
      found[tuple(ids)] = hidden
    return found

  first, second = texts(0), texts(1)
  assert set(first) == set(second)
  assert len(first) > 0.95 * size  # a few pairs of the small corpus are equal
  changed = [first[t] != second[t] for t in first]
  assert np.mean(changed) > 0.9


def test_shapes_and_names_of_a_batch(directory):
  (batch,) = batches(make_config(), directory, [0])
  assert {name: (x.dtype.str[1:], x.shape) for name, x in batch.items()} == {
    'input_ids': ('i4', (16, 32)),
    'input_mask': ('i4', (16, 32)),
    'segment_ids': ('i4', (16, 32)),
    'masked_lm_positions': ('i4', (16, 5)),
    'masked_lm_ids': ('i4', (16, 5)),
    'masked_lm_weights': ('f4', (16, 5)),
    'next_sentence_labels': ('i4', (16,)),
    'next_sentence_weights': ('f4', (16,)),
  }


def test_evaluation_sees_each_row_once_and_pads_the_last_batch(directory):
  c = make_config()
  made, phase = pretrain.make(c, directory), task.phases(c)[0]
  found = [made.eval_batch(phase, i) for i in range(made.eval_batches(phase))]
  manifest = prepare.read_manifest(directory)
  heldout = next(s for s in manifest['shards'] if s['split'] == 'heldout')
  size = min(50, heldout['files']['32']['records'])
  assert sum(b['next_sentence_weights'].sum() for b in found) == size
  for batch in found:
    absent = batch['next_sentence_weights'] == 0
    assert batch['masked_lm_weights'][absent].sum() == 0


def test_left_to_right_predicts_the_next_token(directory):
  c = make_config(objective__kind='ltr', objective__nsp=False)
  (batch,) = batches(c, directory, [0])
  real = batch['input_mask'][0].sum()
  ids = batch['input_ids'][0]
  assert batch['masked_lm_ids'][0].tolist() == ids[1:].tolist()
  assert batch['masked_lm_weights'][0].sum() == real - 1
  made = pretrain.make(c, directory)
  assert made.expected_loss == pytest.approx(math.log(120))
  assert pretrain.predictions(c, task.phases(c)[0]) == 31


def test_without_nsp_there_is_no_pooler(directory):
  made = pretrain.make(make_config(objective__nsp=False), directory)
  params = jax.eval_shape(made.init, jax.random.key(0))
  assert set(params) == {'embeddings', 'encoder', 'mlm'}


def test_data_of_another_vocabulary_is_refused(directory, tmp_path):
  c = make_config(data__vocab_size=121, data__dir=directory)
  with pytest.raises(errors.UserError, match='vocab_size=120, the config'):
    pretrain.prepare_data(c, str(tmp_path))


def test_a_missing_data_dir_is_refused(tmp_path):
  c = make_config(data__dir=os.path.join(tmp_path, 'nothing'))
  with pytest.raises(errors.UserError, match='nothing does not exist'):
    pretrain.prepare_data(c, str(tmp_path))
