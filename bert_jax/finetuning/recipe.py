"""The learning rate and the epochs of a run that does not give them.

The paper's learning rates are for hidden sizes of 768 and 1024. Smaller models
need higher ones: Google chose those of its miniatures, of 128 to 512, from 3e-5
to 3e-4 (github.com/google-research/bert). The rule here was fitted to
`benchmarks/measure/finetuning_scores.py --rates`; docs/finetuning.md has a table.
"""

import math

from ml_collections import config_dict

from bert_jax import config as config_lib

_PAPERS_SIZE = 768  # the least hidden size that the paper fine-tunes
_POWER = 2  # of how many times smaller a model is
_HIGHEST = 1e-3  # 3e-3 was too high for BERT-Tiny
_UPDATES = 500  # a small model makes at least, of few rows
_FEW = 100  # updates


def choose(c: config_dict.ConfigDict, rows: int) -> tuple[float, float]:
  """Returns the learning rate and the epochs for a model and its data.

  From a hidden size of 768 on they are the paper's, whatever the data.

  Args:
    c: the experiment, with the sizes of its model.
  """
  rate, epochs = config_lib.get_paper(c).values()
  smaller = _PAPERS_SIZE / c.model.hidden_size
  if smaller <= 1:
    return rate, epochs
  [batch_size] = c.phases.batch_size
  enough = math.ceil(_UPDATES * batch_size / rows)
  rate = min(rate * smaller**_POWER, _HIGHEST)
  return float(f'{rate:.1e}'), max(epochs, float(enough))


def describe(c: config_dict.ConfigDict, rows: int) -> str:
  """Returns what a completed run is going to do, and why, as a line."""
  [batch_size], [steps] = c.phases.batch_size, c.phases.steps
  rate, epochs = choose(c, rows)
  few = ', which is few' if steps < _FEW else ''
  plan = (
    f'{steps:,} updates{few}: {c.finetuning.epochs:g} epochs of {rows:,} rows in '
    f'batches of {batch_size}, learning rate {c.optimizer.learning_rate:g}'
  )
  chosen = (c.optimizer.learning_rate, c.finetuning.epochs) == (rate, epochs)
  word = (
    'for' if chosen else f'not {epochs:g} epochs at {rate:g}, the default for'
  )
  return f'{plan} ({word} a hidden size of {c.model.hidden_size})'


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
