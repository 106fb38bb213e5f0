"""Tests of the classification task, in whole runs of a tiny model."""

import math
import os
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors, main
from bert_jax.finetuning import predictions, supervised
from bert_jax.finetuning.classes import classify
from bert_jax.workdir import log
from tests import models
from tests.finetuning import made


def rows_of(workdir, kind):
  found = log.read(os.path.join(workdir, 'metrics.jsonl'))
  return [row for row in found if row['kind'] == kind]


@pytest.mark.slow
def test_a_run_learns_and_says_what_it_started_from(finetuned):
  [facts] = rows_of(finetuned, 'run')
  assert facts['init_from']['changes'] == [
    'mlm: left out',
    'nsp: left out',
    'classifier: new, the source has none',
  ]
  assert facts['labels'] == ['cat', 'dog'] and facts['columns'] == ['text']
  last = rows_of(finetuned, 'eval')[-1]
  assert last['accuracy'] == 1 and last['matthews'] == 1
  assert last['cross_entropy'] < 0.3


def test_of_held_out_rows_no_logits_are_kept():
  split = types.SimpleNamespace(size=4)
  logits = np.array([[0, 2, 1], [5, 0, 0], [0, 0, 9], [1, 0, 0]])  # 1 padding
  kept = predictions.keep_likeliest(split, None, [2, 0, 1], {'logits': logits})
  assert kept['chosen'].tolist() == [0, 2, 1, 0]
  assert {x.shape for x in kept.values()} == {(4,)}


@pytest.mark.slow
def test_a_run_that_is_interrupted_ends_with_the_same_parameters(
  finetuned, tmp_path, monkeypatch
):
  done = rows_of(finetuned, 'checkpoint')[-1]['fingerprint']
  source = made.write_source(tmp_path / 'source')
  c = made.make_config(source, made.write_texts(tmp_path / 'texts'))
  workdir = str(tmp_path / 'run')
  batch = supervised.Batches.train_batch

  def fail(self, phase, step, rows=None):
    if step == 12:
      raise InterruptedError
    return batch(self, phase, step, rows)

  with monkeypatch.context() as patched:
    patched.setattr(supervised.Batches, 'train_batch', fail)
    with pytest.raises(InterruptedError):
      main.run(c, workdir)
  # Neither the model nor the texts are needed any more.
  shutil.rmtree(source)
  shutil.rmtree(tmp_path / 'texts')
  main.run(c, workdir)
  assert rows_of(workdir, 'checkpoint')[-1]['fingerprint'] == done


@pytest.mark.slow
def test_regression_has_its_own_loss_and_metrics(tmp_path):
  texts = tmp_path / 'texts'
  texts.mkdir()
  words = 'cat', 'dog'
  lines = [
    f'{"the " * (i % 4)}{words[i % 2]},{i % 2 * 1.5}\n' for i in range(32)
  ]
  for name in ('train', 'dev'):
    (texts / f'{name}.csv').write_text('text,label\n' + ''.join(lines))
  source = made.write_source(tmp_path / 'source')
  c = made.make_config(source, str(texts), **{'finetuning.regression': True})
  main.run(c, str(tmp_path / 'run'))
  last = rows_of(tmp_path / 'run', 'eval')[-1]
  assert last['squared_error'] == pytest.approx(last['mean_squared_error'])
  assert last['pearson'] > 0.9 and 'accuracy' not in last


@pytest.mark.slow
def test_random_weights_need_a_vocabulary_and_guess_at_first(tmp_path, capsys):
  c = made.make_config('', made.write_texts(tmp_path / 'texts'))
  with pytest.raises(errors.UserError, match='init_from is empty; name a tra'):
    main.run(c, str(tmp_path / 'run'))
  c.data.vocab = models.write_data(tmp_path / 'vocab')
  c.model.update(num_layers=1, hidden_size=8, num_heads=2, mlp_size=8)
  c.finetuning.epochs = 0.2
  main.run(c, str(tmp_path / 'run'))
  assert f'expected {math.log(2):.3f}' in capsys.readouterr().out


def make_objective(outputs):
  c = made.make_config('', '', **{'finetuning.outputs': outputs})
  c.model.update(num_layers=1, hidden_size=8, num_heads=2, mlp_size=8)
  c.model.max_positions, c.data.vocab_size = 16, 11
  c.compute.attention = 'xla'
  return classify.make_objective(c)


@pytest.mark.parametrize('outputs', [1, 3])
def test_rows_of_weight_0_change_nothing(outputs):
  objective = make_objective(outputs)
  params = jax.jit(objective.init)(jax.random.key(0))
  batch = {
    'input_ids': jnp.array([[2, 5, 6, 3, 0], [2, 7, 3, 0, 0]]),
    'input_mask': jnp.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]),
    'segment_ids': jnp.zeros((2, 5), jnp.int32),
    'labels': jnp.array([1, 0]) * (1.0 if outputs == 1 else 1),
    'label_weights': jnp.array([1.0, 0.0]),
  }
  other = batch | {'labels': batch['labels'].at[1].set(2)}
  losses = [
    float(objective.compute(params, x, None)[0][objective.losses[0]])
    for x in (batch, other)
  ]
  assert losses[0] == losses[1] > 0
  assert set(map(float, objective.counts(batch).values())) == {1.0}


@pytest.mark.slow
def test_padding_does_not_change_logits():
  objective = make_objective(3)
  params = jax.jit(objective.init)(jax.random.key(0))
  short = {
    'input_ids': jnp.array([[2, 5, 6, 3]]),
    'input_mask': jnp.ones((1, 4), jnp.int32),
    'segment_ids': jnp.array([[0, 0, 1, 1]]),
    'labels': jnp.array([1]),
    'label_weights': jnp.ones(1),
  }
  long = {
    name: jnp.pad(
      x, ((0, 0), (0, 3)), constant_values=(name == 'input_ids') * 7
    )
    if x.ndim == 2
    else x
    for name, x in short.items()
  }
  a, b = (
    objective.compute(params, x, None)[1]['logits'] for x in (short, long)
  )
  np.testing.assert_allclose(a, b, atol=1e-6)
  assert a.shape == (1, 3)
