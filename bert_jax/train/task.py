"""What the training loop has to know of a task."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import config_dict

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


def list_phases(config: config_dict.ConfigDict) -> list[Phase]:
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
    losses: names of the metrics that are minimised; their means are added.
    counts: (batch) -> {metric: count over the batch}. Known before the model
      has run, since sums of losses are divided by the counts of the whole
      global batch, once.
    compute: (parameters, batch, key) -> ({metric: sum over the batch},
      predictions); key None turns dropout off. Predictions are a tree of
      [B, ...], what `Task.collect` needs of each held-out row, {} if nothing.
    batch_shapes: (phase, rows) -> {name: jax.ShapeDtypeStruct} of a batch.
    flops: (phase) -> matrix-product FLOPs of an update.
    expected_loss: of untrained parameters, nats; None if it is not known.
  """

  init: Callable[[Any], Any]
  losses: tuple[str, ...]
  counts: Callable[[Batch], dict]
  compute: Callable[[Any, Batch, Any], tuple[dict, Any]]
  batch_shapes: Callable[[Phase, int], dict]
  flops: Callable[[Phase], float]
  expected_loss: float | None


def _derive_nothing(means: dict) -> dict:
  del means
  return {}


def _word_means(means: dict) -> str:
  """Returns 'accuracy 0.873 | loss 0.412'."""
  return ' | '.join(f'{name} {value:.3f}' for name, value in means.items())


def _collect_nothing(kept, phase, i, predictions):
  del phase, i, predictions
  return kept


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
      `errors.find_changes`) and among hosts.
    start: (new parameters, on the host) -> (those to start from, facts about
      them); called where there is no checkpoint. None is the new ones.
    derive: ({metric: mean}) -> {metric: value} to log beside them, such as a
      perplexity.
    word: ({metric: mean or value}) -> how the terminal says it, in one line.
    collect: (kept, phase, i, predictions of held-out batch i as numpy) ->
      kept; None at first. Called for every batch in order, on every host, with
      the whole batch, so that a task keeps only what it needs.
    score: (kept) -> {metric: value} of the whole held-out set, such as F1.
  """

  objective: Callable[[Any], Objective]
  train_batch: Callable[[Phase, int, np.ndarray], Batch]
  eval_batch: Callable[[Phase, int, np.ndarray], Batch]
  eval_batches: Callable[[Phase], int]
  describe: Callable[[Batch], list[str]]
  facts: dict[str, Any]
  start: Callable[[Any], tuple[Any, dict]] | None = None
  derive: Callable[[dict], dict] = _derive_nothing
  word: Callable[[dict], str] = _word_means
  collect: Callable[[Any, Phase, int, Any], Any] = _collect_nothing
  score: Callable[[Any], dict] = _derive_nothing
