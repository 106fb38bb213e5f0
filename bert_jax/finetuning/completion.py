"""Fills in what follows from a run's data: row length, learning rate, steps.

The paper's learning rates, in `config/recipes.py`, are for hidden sizes of 768
and 1024. Smaller models need higher ones: Google chose from 3e-5 to 3e-4 for
its miniatures, of 128 to 512 (github.com/google-research/bert). The rule here
was fitted to `benchmarks/measure/finetuning_scores.py --rates`;
docs/finetuning.md has figures.
"""

import math
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import recipes
from bert_jax.finetuning import batches, starting
from bert_jax.inference import padding
from bert_jax.model import classifier
from bert_jax.trainer import task
from bert_jax.workdir import claim

_LENGTH_STEP = 8  # tokens
_PAPERS_SIZE = 768  # the least hidden size that the paper fine-tunes
_LEAST = 4  # factor of a rate
# Power of the ratio of hidden sizes, and highest rate. At 128, higher rates were
# worse, at 256 lower ones for texts and higher ones for tokens.
_FOR_TEXTS, _FOR_TOKENS = (2.5, 3e-4), (2, 1e-3)
_UPDATES = 500  # least for a small model, if rows are few
_FEW = 100  # updates


def complete(
  config: config_dict.ConfigDict, data: Any, workdir: str
) -> config_dict.ConfigDict:
  """Returns the config with what follows from the data, and prints the plan.

  A run that has begun has that already.
  """
  c, rows = config.copy_and_resolve_references(), data.splits['train'].size
  if not claim.is_final(workdir):
    _fill_from_data(c, data, rows)
  [phase] = task.list_phases(c)
  lengths = (phase.seq_length,)
  if c.finetuning.by_length:
    lengths = batches.list_lengths(phase)
  of = errors.listing([*map(str, lengths)])
  print(f'{describe(c, rows)}\nbatches of {of} tokens', flush=True)
  return c


def _fill_from_data(c, data, rows):
  train, f = data.splits['train'], c.finetuning
  f.outputs = len(data.labels) or 1
  f.num_choices = getattr(train, 'choices', 0)
  asked = f.max_length = max(c.phases.seq_length)
  longest = max(int(x.lengths.max()) for x in data.splits.values())
  c.phases.seq_length = (padding.round_up(longest, _LENGTH_STEP, asked),)
  rate, epochs = choose(c, rows)
  c.optimizer.learning_rate = c.optimizer.learning_rate or rate
  f.epochs = f.epochs or epochs
  if f.head_bias == 'auto':
    small = c.model.hidden_size < _PAPERS_SIZE
    f.head_bias = (
      'labels' if small and c.task in starting.WITH_BIASES else 'zeros'
    )
  [batch_size] = c.phases.batch_size
  steps = max(1, int(f.epochs * rows / batch_size))
  c.phases.steps = (steps,)
  c.optimizer.warmup_steps = int(f.warmup * steps)
  [phase] = task.list_phases(c)
  f.by_length = f.by_length and batches.pays(phase, c.model)
  # After each epoch, but ten times at most.
  often = max(-(-rows // batch_size), -(-steps // 10))
  c.eval.every = c.eval.every or often


def choose(c: config_dict.ConfigDict, rows: int) -> tuple[float, float]:
  """Returns the learning rate and the epochs for a model and its data.

  From a hidden size of 768 on they are the paper's, whatever the data.
  """
  rate, epochs = recipes.get_paper(c).values()
  smaller = _PAPERS_SIZE / c.model.hidden_size
  if smaller <= 1:
    return rate, epochs
  [batch_size] = c.phases.batch_size
  enough = math.ceil(_UPDATES * batch_size / rows)
  for_tokens = c.task in classifier.TAGGERS
  power, highest = _FOR_TOKENS if for_tokens else _FOR_TEXTS
  rate = min(rate * max(smaller**power, _LEAST), highest)
  return float(f'{rate:.1e}'), max(epochs, float(enough))


def describe(c: config_dict.ConfigDict, rows: int) -> str:
  """Returns a line on what a completed run is going to do, and why."""
  [batch_size], [steps] = c.phases.batch_size, c.phases.steps
  given = c.finetuning.epochs, c.optimizer.learning_rate
  rate, epochs = choose(c, rows)
  word = f'not {_count(epochs)} at {rate:g}, the default for'
  return (
    f'{steps:,} updates{", which is few" if steps < _FEW else ""}: '
    f'{_count(given[0])} of {rows:,} rows in batches of {batch_size}, learning '
    f'rate {given[1]:g} ({"for" if given == (epochs, rate) else word} a hidden '
    f'size of {c.model.hidden_size})'
  )


def _count(epochs: float) -> str:
  return f'{epochs:g} epoch{"" if epochs == 1 else "s"}'


def advise(c: config_dict.ConfigDict, rows: int) -> str:
  """Returns what to try if a run has learnt nothing, as a clause."""
  rate, epochs = choose(c, rows)
  was, seen = c.optimizer.learning_rate, c.finetuning.epochs
  rate = rate if was < rate else 2.5 * was
  epochs = epochs if seen < epochs else 3 * seen
  return (
    f'after {sum(c.phases.steps):,} updates at {was:g}, try '
    f'finetuning.epochs={epochs:g} or optimizer.learning_rate={rate:g}'
  )
