"""The interface between the training loop and a task."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ml_collections import config_dict

Batch = dict[str, np.ndarray]
HELD_OUT = 'held-out'  # the name of a task's held-out rows


@dataclasses.dataclass(frozen=True)
class Phase:
  """A part of training with one shape of batch."""

  number: int  # from 0
  first: int  # step at which the phase begins
  steps: int
  seq_length: int  # S
  batch_size: int  # sequences per update, over all devices
  accumulate: int  # micro-batches per update
  max_predictions: int  # P, at most, of a sequence

  @property
  def eval_batch_size(self) -> int:
    """Sequences per evaluation batch: as many as in a training micro-batch."""
    return self.batch_size // self.accumulate


def list_phases(config: config_dict.ConfigDict) -> list[Phase]:
  """Returns the phases of a config in order."""
  c = config.phases
  firsts = itertools.accumulate(c.steps, initial=0)
  sizes = c.seq_length, c.batch_size, c.accumulate, c.max_predictions
  each = zip(itertools.count(), firsts, c.steps, *sizes, strict=False)
  return [Phase(*numbers) for numbers in each]


def use_longest(phase: Phase) -> tuple[int, ...]:
  """Returns the length of a phase's longest rows, which all batches have."""
  return (phase.seq_length,)


@dataclasses.dataclass(frozen=True)
class Compute:
  """How a model is computed; `bert_jax.config` has the meaning of each field."""

  attention: str
  heads: str
  remat: str
  last_layer: str
  matmul_precision: str
  xla_options: str


@dataclasses.dataclass(frozen=True)
class Objective:
  """The part of a task that needs no data: all that a run's programs need.

  Attributes:
    bert: the model, a `bert_config.BertConfig`.
    how: how it is computed, which changes neither parameters nor losses.
    computed_as: (another way) -> the same objective, computed so.
    init: (key) -> parameters.
    losses: names of the metrics that are minimised; their means are added.
    counts: (batch) -> {metric: count over the batch}. It does not run the
      model, since losses are divided by the counts of the whole global batch
      before their gradients are computed.
    compute: (parameters, batch, key) -> ({metric: sum over the batch},
      predictions); key None is evaluation, without random numbers.
      Predictions are a tree of [B, ...] that `Task.collect` needs for each
      held-out row, {} if none.
    batch_shapes: (phase, rows) -> {name: jax.ShapeDtypeStruct} of a batch.
    flops: (phase) -> matrix-product FLOPs of an update.
    expected_loss: loss of untrained parameters in nats; None if unknown.
    evaluate_as: (phase) -> the phase with the sizes of its held-out batches.
    lengths: (phase) -> lengths that its batches may have, ascending; the last
      is phase.seq_length. All are compiled before the first step.
  """

  bert: Any
  how: Compute
  computed_as: Callable[[Compute], 'Objective']
  init: Callable[[Any], Any]
  losses: tuple[str, ...]
  counts: Callable[[Batch], dict]
  compute: Callable[[Any, Batch, Any], tuple[dict, Any]]
  batch_shapes: Callable[[Phase, int], dict]
  flops: Callable[[Phase], float]
  expected_loss: float | None
  evaluate_as: Callable[[Phase], Phase] = lambda phase: phase
  lengths: Callable[[Phase], tuple[int, ...]] = use_longest


def split_by_length(objective: Objective, phases: list[Phase]) -> list[Phase]:
  """Returns each phase once for each length of its batches, longest first."""
  return [
    dataclasses.replace(phase, seq_length=length)
    for phase in phases
    for length in reversed(objective.lengths(phase))
  ]


def count_work(
  objective: Objective, phases: list[Phase], step: int
) -> dict[str, float]:
  """Returns `tokens`, with padding, and `flops` of a run's first `step` updates.

  As if all batches had the length of their phase.
  """
  done = [(x, min(max(step - x.first, 0), x.steps)) for x in phases]
  return {
    'tokens': sum(n * x.batch_size * x.seq_length for x, n in done),
    'flops': sum(n * objective.flops(x) for x, n in done if n),
  }


def _word_means(means: dict) -> str:
  """Returns 'accuracy 0.873 | loss 0.412'."""
  return ' | '.join(f'{name} {value:.3f}' for name, value in means.items())


@dataclasses.dataclass(frozen=True)
class Rows:
  """Rows to evaluate.

  Attributes:
    eval_batch: (phase, i, rows) -> rows of batch i, each below
      phase.eval_batch_size; rows past the end of the data have weight 0.
    eval_batches: (phase) -> number of batches.
    name_eval_part: (phase, i) -> name of the part of the data that all rows of
      batch i are from, for which each METRIC is also reported as METRIC/NAME;
      '' for none.
    collect: (kept, phase, i, predictions of batch i as numpy) -> kept; None at
      first. Called for every batch in order, on every host, with the whole
      batch, so that a task keeps only what it needs.
  """

  eval_batch: Callable[[Phase, int, np.ndarray], Batch]
  eval_batches: Callable[[Phase], int]
  name_eval_part: Callable[[Phase, int], str] = lambda phase, i: ''
  collect: Callable[[Any, Phase, int, Any], Any] = (
    lambda kept, phase, i, found: kept
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(Rows):
  """What to learn, and from what data; its own `Rows` are the held-out ones.

  Attributes:
    train_batch: (phase, step, rows) -> rows of the global batch of a step:
      int [b], each below phase.batch_size.
    describe: (first batch) -> lines to show before training starts.
    facts: facts about the data; logged, and compared among hosts and when a run
      is resumed (see `errors.find_changes`).
    start: (new parameters, on the host) -> (parameters to start from, facts
      about them); called if there is no checkpoint. None uses the new ones.
    evaluate_first: whether the model is evaluated before its first update.
    derive: ({metric: mean}) -> {metric: value} to log beside them, such as a
      perplexity.
    word: ({metric: mean or value}) -> a line or lines for the terminal.
    score: (kept) -> {metric: value} of the whole held-out set, such as F1; by
      the first, `Plan.keep_best` compares evaluations.
    others: {name: `Rows`} that the trained model predicts in addition.
    plateau: the held-out value of the first of `Objective.losses` below which
      the model has left the plateau (docs/plateau.md); the work until it first
      does is logged. None if there is no plateau.
  """

  objective: Objective
  train_batch: Callable[[Phase, int, np.ndarray], Batch]
  describe: Callable[[Batch], list[str]]
  facts: dict[str, Any]
  start: Callable[[Any], tuple[Any, dict]] | None = None
  evaluate_first: bool = False
  derive: Callable[[dict], dict] = lambda found: {}
  word: Callable[[dict], str] = _word_means
  score: Callable[[Any], dict] = lambda found: {}
  others: Mapping[str, Rows] = dataclasses.field(default_factory=dict)
  plateau: float | None = None
