"""Tests of held-out evaluation."""

import dataclasses

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.parallel import device_mesh
from bert_jax.trainer import evaluate
from bert_jax.trainer.step import jit_eval
from bert_jax.trainer.task import Rows
from tests import training


def test_means_are_over_all_batches_and_losses_are_added():
  totals = {}
  evaluate.add(totals, {'a': (6.0, 2.0), 'b': (1.0, 4.0)})
  evaluate.add(totals, {'a': (3.0, 1.0), 'b': (2.0, 0.0)})
  means = evaluate.compute_means(
    totals, ('a', 'b'), lambda found: {'twice': 2 * found['a']}
  )
  assert means == {'a': 3.0, 'b': 0.75, 'loss': 3.75, 'twice': 6.0}


class Step:
  """Notes when it is called and when its results are read."""

  def __init__(self):
    self.events = []

  def __call__(self, params, batch):
    self.events.append(f'dispatch {batch}')
    step = self

    class Sum:
      def __array__(self, dtype=None, copy=None):
        step.events.append(f'read {batch}')
        return np.array(float(batch))

    return {'loss': (Sum(), 1.0)}, np.array([batch])


def evaluate_batches(step, batches, names=('', '')):
  """Evaluates batches of parts of the data; keeps the predictions."""
  rows = Rows(
    eval_batch=None,
    eval_batches=None,
    name_eval_part=lambda phase, i: names[i],
    collect=lambda kept, phase, i, found: [*(kept or []), (i, found.tolist())],
  )
  return evaluate.evaluate(step, None, batches, None, rows)


def test_a_batch_is_computed_while_the_one_before_is_read():
  step = Step()
  totals, kept = evaluate_batches(step, [3, 5])
  assert totals == {'loss': [8.0, 2.0]}
  assert step.events == ['dispatch 3', 'dispatch 5', 'read 3', 'read 5']
  assert kept == [(0, [3]), (1, [5])]


def test_metrics_of_a_part_of_the_data_are_added_up_alone_too():
  totals, _ = evaluate_batches(Step(), [2, 3, 7, 8], ('', 'b', 'c', 'b'))
  assert totals == {'loss': [20, 4], 'loss/b': [11, 2], 'loss/c': [7, 1]}


def test_every_device_has_the_predictions_of_all_rows():
  c, mesh = training.small_config(), device_mesh.make_mesh()
  batch = training.make_batch(3)

  def compute(params, rows, key):
    assert key is None
    return {'loss': rows['input_ids'].sum()}, {'first': rows['input_ids'][:, 0]}

  objective = dataclasses.replace(
    training.make_objective(c),
    compute=compute,
    counts=lambda rows: {'loss': rows['input_mask'].sum()},
  )
  state, _ = training.make_step()
  step = jit_eval(objective, mesh)
  sums, predictions = step(state.params, device_mesh.put_batch(mesh, batch))
  assert int(sums['loss'][0]) == batch['input_ids'].sum()
  assert predictions['first'].is_fully_replicated
  assert predictions['first'].tolist() == batch['input_ids'][:, 0].tolist()


@pytest.mark.parametrize(
  'loss, how, said',
  [
    (3.5, (3.091, False, 8), 'initial loss 3.500, expected 3.091'),
    (0.25, (3.091, True, 8), 'initial loss 0.250; guessing costs 3.091'),
    (9.0, (None, False, 8), 'initial loss 9.000'),
    # Logits of variance 4,096 x 0.02 x 0.02, of which the loss has half.
    (3.891, (3.091, False, 4096), 'initial loss 3.891, expected 3.091'),
  ],
)
def test_what_is_said_of_the_first_loss(loss, how, said):
  assert evaluate.check_first_loss(loss, *how) == said


@pytest.mark.parametrize(
  'loss, size, tolerance',
  [(2.5, 8, 0.50), (3.7, 8, 0.50), (float('nan'), 8, 0.50), (4.5, 4096, 1.32)],
)
def test_a_loss_far_from_that_of_guessing_is_an_error(loss, size, tolerance):
  words = rf'guessing costs 3.091 \(\+-{tolerance:.2f}\); look at model.init'
  with pytest.raises(errors.UserError, match=words):
    evaluate.check_first_loss(loss, 3.091, False, size)
  if loss != loss:  # not a number
    with pytest.raises(errors.UserError, match=words):
      evaluate.check_first_loss(loss, 3.091, True, size)
