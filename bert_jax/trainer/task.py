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
  mask_rate: float  # of training rows
  rope_theta: float

  @property
  def eval_batch_size(self) -> int:
    """Sequences per evaluation batch: as many as in a training micro-batch."""
    return self.batch_size // self.accumulate


def list_phases(config: config_dict.ConfigDict) -> list[Phase]:
  """Returns the phases of a config in order."""
  c = config.phases
  firsts = itertools.accumulate(c.steps, initial=0)
  sizes = c.seq_length, c.batch_size, c.accumulate, c.max_predictions
  rates = c.mask_rates or itertools.repeat(config.objective.mask_rate)
  thetas = c.rope_thetas or itertools.repeat(config.model.rope_theta)
  each = itertools.count(), firsts, c.steps, *sizes, rates, thetas
  return [Phase(*numbers) for numbers in zip(*each, strict=False)]


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
  """The part of a task that needs no data: all that a run's programs need."""

  bert: Any  # the model, a `bert_config.BertConfig`
  how: Compute  # which changes neither parameters nor losses
  # another way, of a phase
  computed_as: Callable[[Compute, Phase], 'Objective']
  init: Callable[[Any], Any]  # (key) -> parameters
  losses: tuple[str, ...]  # metrics to minimise; their means are added
  # (batch) -> {metric: count over the batch}, without running the model: losses are
  # divided by counts of the global batch before their gradients are computed.
  counts: Callable[[Batch], dict]
  # (parameters, batch, key) -> ({metric: sum over the batch}, predictions); without
  # a key, evaluation. Predictions are a tree of [B, ...] for `Task.collect`, or {}.
  compute: Callable[[Any, Batch, Any], tuple[dict, Any]]
  # (phase, rows) -> {name: jax.ShapeDtypeStruct} of a batch
  batch_shapes: Callable[[Phase, int], dict]
  flops: Callable[[Phase], float]  # of the matrix products of an update
  expected_loss: float | None  # of untrained parameters in nats, if known
  # (phase) -> the phase with the sizes of its held-out batches
  evaluate_as: Callable[[Phase], Phase] = lambda phase: phase
  # (phase) -> lengths that its batches may have, ascending; all are compiled
  # before the first step
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
  """Rows to evaluate."""

  # (phase, i, rows) -> rows of batch i, each below phase.eval_batch_size; rows past
  # the end of the data have weight 0
  eval_batch: Callable[[Phase, int, np.ndarray], Batch]
  eval_batches: Callable[[Phase], int]
  # (phase, i) -> the part of the data that all rows of batch i are from, for which
  # each METRIC is also reported as METRIC/NAME
  name_eval_part: Callable[[Phase, int], str] = lambda phase, i: ''
  # (kept, phase, i, predictions of batch i as numpy) -> kept, None at first; for
  # every batch in order, on every host, so that a task keeps only what it needs
  collect: Callable[[Any, Phase, int, Any], Any] = (
    lambda kept, phase, i, found: kept
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(Rows):
  """What to learn, and from what data; its own `Rows` are the held-out ones."""

  objective: Objective
  # (phase, step, rows) -> these rows, int [b], of the global batch of a step
  train_batch: Callable[[Phase, int, np.ndarray], Batch]
  describe: Callable[[Batch], list[str]]  # (first batch) -> lines to show
  # Of the data; logged, and compared among hosts and when a run is resumed.
  facts: dict[str, Any]
  # (new parameters, on the host) -> (parameters to start from, facts about them), if
  # there is no checkpoint
  start: Callable[[Any], tuple[Any, dict]] | None = None
  evaluate_first: bool = False  # before the first update
  # ({metric: mean}) -> {metric: value} to log beside them, such as a perplexity
  derive: Callable[[dict], dict] = lambda found: {}
  word: Callable[[dict], str] = _word_means  # lines for the terminal
  # (kept) -> {metric: value} of all held-out rows, such as F1; the first one decides
  # which evaluation is the best
  score: Callable[[Any], dict] = lambda found: {}
  others: Mapping[str, Rows] = dataclasses.field(default_factory=dict)
  # The held-out value of the first loss below which the model has left the plateau
  # (docs/plateau.md); the work until then is logged.
  plateau: float | None = None
