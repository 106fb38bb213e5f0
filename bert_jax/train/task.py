"""What the training loop has to know of a task."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Phase:
  """A stretch of training with one shape of batch.

  Attributes:
    number: 0 is the first.
    first: step at which it begins; `steps` of them follow.
    seq_length: S, tokens.
    batch_size: sequences per update, over all devices.
    accumulate: micro-batches per update.
    max_predictions: P, per sequence.
  """

  number: int
  first: int
  steps: int
  seq_length: int
  batch_size: int
  accumulate: int
  max_predictions: int

  @property
  def eval_batch_size(self) -> int:
    """Sequences that are evaluated at once: what fits in training."""
    return self.batch_size // self.accumulate


def list_phases(config) -> list[Phase]:
  """Returns the phases of a config in order."""
  found, first = [], 0
  for number, steps in enumerate(config.phases.steps):
    found.append(
      Phase(
        number=number,
        first=first,
        steps=steps,
        **{
          name: config.phases[name][number]
          for name in (
            'seq_length',
            'batch_size',
            'accumulate',
            'max_predictions',
          )
        },
      )
    )
    first += steps
  return found


@dataclasses.dataclass(frozen=True)
class Objective:
  """What is learnt, without data: all that the programs of a run need.

  Attributes:
    init: (key) -> parameters.
    counts: (batch) -> {objective: number of predictions}; what the sums of
      the same objective are divided by, once, over the whole global batch.
    sums: (parameters, batch, key) -> {objective: (loss, hits)}; key None turns
      dropout off.
    batch_shapes: (phase, rows) -> {name: jax.ShapeDtypeStruct} of a batch.
    flops: (phase) -> matrix-product FLOPs of an update.
    expected_loss: of untrained parameters, nats.
  """

  init: Callable[[Any], Any]
  counts: Callable[[Batch], dict]
  sums: Callable[[Any, Batch, Any], dict]
  batch_shapes: Callable[[Phase, int], dict]
  flops: Callable[[Phase], float]
  expected_loss: float


@dataclasses.dataclass(frozen=True)
class Task:
  """What is learnt, and from what data.

  Attributes:
    objective: (config) -> Objective. `config.compute` may differ from phase to
      phase, which changes neither parameters nor losses.
    train_batch: (phase, step, rows) -> rows of the global batch of a step:
      int [b], each below phase.batch_size.
    eval_batch: (phase, i, rows) -> rows of held-out batch i, each below
      phase.eval_batch_size; absent ones have no weight.
    eval_batches: (phase) -> how many there are.
    describe: (first batch) -> lines to show before training starts.
    facts: of the data; logged, and compared when a run is resumed (see
      `find_changes`).
    start: (new parameters, on the host) -> (those to start from, facts about
      them); called where there is no checkpoint. None is the new ones.
  """

  objective: Callable[[Any], Objective]
  train_batch: Callable[[Phase, int, np.ndarray], Batch]
  eval_batch: Callable[[Phase, int, np.ndarray], Batch]
  eval_batches: Callable[[Phase], int]
  describe: Callable[[Batch], list[str]]
  facts: dict[str, Any]
  start: Callable[[Any], tuple[Any, dict]] | None = None


def find_changes(old: dict, new: dict, prefix: str = '') -> list[str]:
  """Says which facts differ, in the order of the new ones.

  Args:
    old: numbers, texts, lists and dicts of them, as JSON gives them back.
    new: the same.
    prefix: of the names.

  Returns:
    Texts such as 'data.recipe.passes was 5, is 2'; none if all is equal.
  """
  found = []
  for name in [*new, *(name for name in old if name not in new)]:
    was, now = old.get(name), new.get(name)
    if isinstance(was, dict) and isinstance(now, dict):
      found += find_changes(was, now, f'{prefix}{name}.')
    elif was != now:
      found.append(f'{prefix}{name} was {was!r}, is {now!r}')
  return found
