"""The interface between the training loop and a task."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import config_dict

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Phase:
  """A part of training with one shape of batch.

  Attributes:
    number: index of the phase, from 0.
    first: step at which the phase begins; it has `steps` steps.
    seq_length: S, tokens per sequence.
    batch_size: sequences per update, over all devices.
    accumulate: micro-batches per update.
    max_predictions: P, maximum of predictions per sequence.
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
    """Sequences per evaluation batch: those of a training micro-batch."""
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


def use_longest(phase: Phase) -> tuple[int, ...]:
  """Returns the length of all batches of a phase: that of its longest rows."""
  return (phase.seq_length,)


@dataclasses.dataclass(frozen=True)
class Objective:
  """The part of a task that needs no data: all that a run's programs need.

  Attributes:
    init: (key) -> parameters.
    losses: names of the metrics that are minimised; their means are added.
    counts: (batch) -> {metric: count over the batch}. It does not run the
      model, since losses are divided by the counts of the whole global batch
      before their gradients are computed.
    compute: (parameters, batch, key) -> ({metric: sum over the batch},
      predictions); key None turns dropout off. Predictions are a tree of
      [B, ...] that `Task.collect` needs for each held-out row, {} if none.
    batch_shapes: (phase, rows) -> {name: jax.ShapeDtypeStruct} of a batch.
    flops: (phase) -> matrix-product FLOPs of an update.
    expected_loss: loss of untrained parameters in nats; None if unknown.
    lengths: (phase) -> lengths that its batches may have, ascending; the last is
      phase.seq_length. All are compiled before the first step.
  """

  init: Callable[[Any], Any]
  losses: tuple[str, ...]
  counts: Callable[[Batch], dict]
  compute: Callable[[Any, Batch, Any], tuple[dict, Any]]
  batch_shapes: Callable[[Phase, int], dict]
  flops: Callable[[Phase], float]
  expected_loss: float | None
  lengths: Callable[[Phase], tuple[int, ...]] = use_longest


def split_by_length(objective: Objective, phases: list[Phase]) -> list[Phase]:
  """Returns each phase once for each length of its batches, longest first."""
  return [
    dataclasses.replace(phase, seq_length=length)
    for phase in phases
    for length in reversed(objective.lengths(phase))
  ]


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
  """What to learn, and from what data.

  Attributes:
    objective: (config) -> Objective. `config.compute` may differ from phase to
      phase, which changes neither parameters nor losses.
    train_batch: (phase, step, rows) -> rows of the global batch of a step:
      int [b], each below phase.batch_size.
    eval_batch: (phase, i, rows) -> rows of held-out batch i, each below
      phase.eval_batch_size; rows past the end of the data have weight 0.
    eval_batches: (phase) -> number of held-out batches.
    describe: (first batch) -> lines to show before training starts.
    facts: facts about the data; logged, and compared among hosts and when a run
      is resumed (see `errors.find_changes`).
    start: (new parameters, on the host) -> (parameters to start from, facts
      about them); called if there is no checkpoint. None uses the new ones.
    derive: ({metric: mean}) -> {metric: value} to log beside them, such as a
      perplexity.
    word: ({metric: mean or value}) -> one line for the terminal.
    collect: (kept, phase, i, predictions of held-out batch i as numpy) ->
      kept; None at first. Called for every batch in order, on every host, with
      the whole batch, so that a task keeps only what it needs.
    score: (kept) -> {metric: value} of the whole held-out set, such as F1.
    explain: (workdir, step) -> a command that shows which rows made the loss of
      a step jump; None if there is none.
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
  explain: Callable[[str, int], str] | None = None
