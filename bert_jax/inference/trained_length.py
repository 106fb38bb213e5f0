"""How long the rows were that a model was trained on.

The embeddings of later positions are as random as they began: the model of
configs/tiny.py, trained on rows of 64 tokens, guesses 35 % of the masked words of
such rows, 20 % at 128 tokens and 7 % at 512.
"""

import itertools
import sys
from collections.abc import Iterable
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.interop import rename


def find(
  phases: config_dict.ConfigDict, most: int, step: int, facts: dict[str, Any]
) -> int:
  """Returns the tokens of the longest rows that a run's model was trained on.

  Args:
    most: positions of the model.
    step: updates that were made.
    facts: of the run, from its log or a checkpoint, with those of the model that
      it started from, see `transfer.transfer`.
  """
  starts = itertools.accumulate(phases.steps, initial=0)
  lengths = zip(phases.seq_length, starts, strict=False)
  begun = [length for length, start in lengths if start < step]
  if start := facts.get('init_from'):
    begun.append(start.get('trained_length', most))
  return min(max(begun, default=most), most)


def warn(model: rename.LoadedModel, lengths: Iterable[int]):
  """Warns of texts of more tokens than a model's rows in training had."""
  most = model.trained_length
  if most is None or most >= model.config.max_positions:
    return
  if longer := [n for n in lengths if n > most]:
    worse = (
      'it has seen no tokens further apart, and may do worse on such texts'
      if model.config.modern
      else 'its embeddings of later positions are random, so what it says of '
      'such texts is much worse'
    )
    message = (
      f'WARNING: {errors.count(len(longer), "text")} of up to {max(longer)} '
      f'tokens, but the model was trained on rows of {most}: {worse}'
    )
    print(message, file=sys.stderr, flush=True)
