"""Tests of rows that share a row of the encoder."""

import dataclasses
import json
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors, tasks
from bert_jax.finetuning import buckets, packing
from bert_jax.model import classifier, parameters
from bert_jax.ops.packed_rows import PREFIX
from bert_jax.train import task
from tests import environment
from tests.finetuning import made

PHASE = task.Phase(0, 0, 150, 128, 8, 1, 1)
LENGTHS = np.random.default_rng(0).geometric(1 / 30, 300).clip(3, 128)


def make_batch(lengths=(3, 16, 7, 5, 9), length=16):
  """Returns a batch of random tokens; the last row only fills it up."""
  rng, shape = np.random.default_rng(0), (len(lengths), length)
  mask = (np.arange(length) < np.array(lengths)[:, None]).astype(np.int32)
  mask[-1] = 0
  return {
    'input_ids': rng.integers(0, made.BERT.vocab_size, shape).astype(np.int32),
    'input_mask': mask,
    'segment_ids': rng.integers(0, 2, shape).astype(np.int32) * mask,
  }


@pytest.mark.parametrize(
  'make, changes',
  [
    (classifier.Classifier, {}),
    (classifier.Classifier, {'causal': True, 'reverse': True}),
    (classifier.Tagger, {'attention': 'recompute'}),
    (lambda *x: classifier.Classifier(*x, lstm_units=3), {}),
  ],
)
def test_outputs_and_gradients_are_those_of_rows_alone(make, changes):
  module = make(dataclasses.replace(made.BERT, **changes), 3, 0.0)
  params = parameters.init(module, jax.random.key(0))
  params = jax.tree.map(
    lambda x: x + 0.3 * jnp.sin(jnp.arange(x.size)).reshape(x.shape), params
  )
  alone = make_batch()
  packed = packing.pack(alone, 3)
  assert packed[PREFIX + 'input_ids'].shape == (3, 16)
  tokens = alone['input_mask'].astype(bool)

  @jax.jit
  def compute(params, batch):
    def loss(params):
      found = module.apply({'params': params}, batch)
      seen = tokens if found.ndim == 3 else tokens.any(1)
      found = jnp.where(seen[..., None], found, 0)
      return jnp.sum(jnp.sin(found)), found

    return jax.value_and_grad(loss, has_aux=True)(params)

  (_, expected), expected_grads = compute(params, alone)
  (_, found), grads = compute(params, packed)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  assert np.abs(expected).max() > 0.1
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4),
    grads,
    expected_grads,
  )


def find_batches():
  order = buckets.Order(0, LENGTHS, dealt=True)
  return [order.find_records(PHASE, step) for step in range(PHASE.steps)]


def test_rows_lie_side_by_side_in_as_few_packed_rows_as_fit():
  for records in find_batches():
    lengths = LENGTHS[records]
    rows, starts = packing.assign(lengths, 128)
    taken = np.zeros((rows.max() + 1, 128), int)
    for row, start, n in zip(rows, starts, lengths, strict=True):
      taken[row, start : start + n] += 1
    assert taken.max() == 1 and taken.sum() == lengths.sum()
    # First fit in descending order takes at most 11 / 9 of the fewest, and 1.
    assert len(taken) <= 11 / 9 * np.ceil(lengths.sum() / 128) + 1


def test_batches_have_similar_numbers_of_tokens_and_each_row_as_often():
  batches = find_batches()
  tokens = np.array([LENGTHS[x].sum() for x in batches])
  shuffled = LENGTHS[np.random.default_rng(1).permutation(300)[:296]]
  assert tokens.std() < 0.5 * shuffled.reshape(-1, 8).sum(1).std()
  counts = np.bincount(np.concatenate(batches), minlength=300)
  assert counts.tolist() == [4] * 300


def test_the_share_is_that_of_the_batch_that_needs_most():
  c = made.make_config('source', 'texts')
  c.phases.seq_length, c.phases.steps = (128,), (PHASE.steps,)
  one_is_long = np.where(np.arange(300) < 1, 128, 10)
  share = packing.find_share(c, {'train': one_is_long, 'dev': np.full(4, 9)})
  assert packing.count_rows(share, 8) == 2  # and 1 suffices for the others
  share = packing.find_share(c, {'train': one_is_long, 'dev': np.full(4, 128)})
  assert packing.count_rows(share, 8) == 4


@pytest.fixture
def one_device(monkeypatch):
  """Lets batches be packed, as on one device; tests have several."""
  monkeypatch.setattr(packing, 'find_obstacle', lambda config: None)


def write_texts(folder):
  """Writes texts of which most are short; returns their folder."""
  rows = [
    f'{"the " * (9 if i % 12 == 0 else i % 4)}{animal},{animal}'
    for i in range(24)
    for animal in ('cat', 'dog')
  ]
  return made.write_csv(folder, train=rows, dev=rows[:10], test=rows[3:15])


def make_task(tmp_path, **changes):
  texts = write_texts(tmp_path / 'texts')
  return made.make_task(made.configure(tmp_path, texts, **changes), tmp_path)


def test_every_batch_of_a_run_has_the_shapes_that_are_compiled(
  tmp_path, one_device
):
  batches, phase, c, data = make_task(tmp_path)
  assert 0 < c.finetuning.packed <= 0.85 and not c.finetuning.by_length
  objective, found = tasks.get(c).make_objective(c), []
  found += [batches.train_batch(phase, step) for step in range(phase.steps)]
  for rows in (batches, *batches.others.values()):
    found += [
      rows.eval_batch(phase, i) for i in range(rows.eval_batches(phase))
    ]
  expected = objective.batch_shapes(phase, phase.batch_size)
  for batch in found:
    assert {k: x.shape for k, x in batch.items()} == {
      k: x.shape for k, x in expected.items()
    }
    tokens = batch['input_ids'][batch['input_mask'] == 1]
    own = batch[PREFIX + 'input_ids'][batch[PREFIX + 'input_mask'] == 1]
    np.testing.assert_array_equal(np.sort(own), np.sort(tokens))


def test_predictions_are_put_in_the_order_of_the_rows(
  tmp_path, one_device, monkeypatch
):
  batches, phase, _, data = make_task(tmp_path)
  # All rows are sorted once, not for each batch.
  monkeypatch.delattr(packing, 'deal')
  made.check_order(batches, phase, data)


def test_too_few_packed_rows_are_refused(tmp_path, one_device):
  fields = {'phases.batch_size': (9,)}
  with pytest.raises(errors.UserError, match='0.1 is too little') as caught:
    make_task(tmp_path, **fields, **{'finetuning.packed': 0.1})
  needed = float(re.search(r'need (0\.\d+);', str(caught.value))[1])
  _, _, c, _ = make_task(tmp_path, **fields, **{'finetuning.packed': needed})
  assert c.finetuning.packed == needed


def test_rows_are_not_packed_on_several_devices(tmp_path):
  assert make_task(tmp_path)[2].finetuning.packed == 1
  with pytest.raises(errors.UserError, match='not possible with 4 devices'):
    make_task(tmp_path, **{'finetuning.packed': 0.5})


@pytest.mark.slow
def test_a_run_on_one_device_packs_and_learns(tmp_path):
  source = made.write_source(tmp_path / 'source')
  texts = write_texts(tmp_path / 'texts')
  run = tmp_path / 'run'
  command = [
    *(sys.executable, '-m', 'bert_jax.main', f'--workdir={run}'),
    *('--config=configs/classify.py', f'--config.init_from={source}'),
    *(f'--config.data.input={texts}', '--config.phases.batch_size=8'),
    *('--config.phases.seq_length=16', '--config.finetuning.epochs=20'),
    '--config.optimizer.learning_rate=1e-2',
  ]
  root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
  env = environment.for_devices(1)
  out = subprocess.check_output(command, cwd=root, env=env, text=True)
  assert 'the 8 rows of a batch are packed into ' in out
  results = json.loads((run / 'results.json').read_text())
  assert results['metrics']['accuracy'] == 1
  (run / 'results.json').unlink()
  env = environment.for_devices(4)
  found = subprocess.run(command, cwd=root, env=env, text=True, stderr=-1)
  assert 'is not possible with 4 devices' in found.stderr
