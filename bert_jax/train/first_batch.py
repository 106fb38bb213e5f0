"""Shows the first batch, and checks the loss before any update."""

import jax
import numpy as np

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.runtime import progress
from bert_jax.train import evaluate
from bert_jax.train import task as task_lib

_TOLERANCE = 0.5  # nats
_STD = 0.02  # of new weights: `model.initializer_std` by default


def check(
  task: task_lib.Task,
  objective: task_lib.Objective,
  phase: task_lib.Phase,
  sums: dict,
  trained: bool,
  hidden_size: int,
  bar: progress.Progress,
):
  """Shows the first batch; compares the initial loss with a guess's loss.

  Args:
    phase: the first phase.
    sums: {metric: (sum, count)} of a batch, on the device.
    trained: whether the model starts from trained weights; then any loss is
      accepted.
    hidden_size: D; a wide model's guesses are less even.

  Raises:
    errors.UserError: if the loss of an untrained model is not a guess's loss.
  """
  if distributed.is_first():
    whole = task.train_batch(phase, 0, np.arange(phase.batch_size))
    for line in task.describe(whole):
      bar.write(line)
  totals: dict[str, list[float]] = {}
  evaluate.add(totals, jax.device_get(sums))
  means = evaluate.compute_means(totals, objective.losses, task.derive)
  loss, expected = means['loss'], objective.expected_loss
  if expected is None:
    bar.write(f'initial loss {loss:.3f}')
    return
  if trained:
    bar.write(f'initial loss {loss:.3f}; guessing costs {expected:.3f}')
    return
  bar.write(f'initial loss {loss:.3f}, expected {expected:.3f}')
  # The tied decoder's logits have the variance D std^2, half of which is added.
  tolerance = _TOLERANCE + hidden_size * _STD**2 / 2
  if not abs(loss - expected) <= tolerance:
    raise errors.UserError(
      f'the initial loss is {loss:.3f}, but guessing costs {expected:.3f} '
      f'(+-{tolerance:.2f}); look at model.initializer_std.'
    )
