"""Takes over the sizes and parameters of a trained model.

What it lacks stays new.
"""

import dataclasses
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax import errors, param_names
from bert_jax.config import declare_fields, flatten
from bert_jax.inference import source
from bert_jax.model import parameters
from bert_jax.workdir import fingerprint

_HEADS = ('mlm', 'pooler', 'head', 'nsp', 'mix', 'bilstm', 'classifier')
_WORDS = ('embeddings/word/embedding', 'mlm/bias')  # one row or value per word
_POSITIONS = 'embeddings/position/embedding'
# Fields of `model` that come from the recipe or chip, not from the source.
OWN = (
  *('dropout', 'attention_dropout', 'dtype', 'mask_value', 'initializer'),
  *('attention_init', 'bilstm', 'pooling'),
)
# What the source decides; and of these, what the files in configs/ set for a model
# of their own, so that it is given only if it is typed.
_THEIRS = (
  *('model.', 'objective.', 'data.vocab_size', 'data.lowercase'),
  'data.strip_accents',
)
_SIZES = (
  *('model.num_layers', 'model.hidden_size', 'model.num_heads'),
  *('model.mlp_size', 'data.vocab_size'),
)


def transfer(
  model: source.Source,
  path: str,
  new: Any,
  vocab_size: int,
  stays_new: str = '',
  pieces: Sequence[Sequence[int]] = (),
) -> tuple[dict, dict]:
  """Replaces new parameters with a model's.

  Args:
    model: the trained model, of our sizes except the numbers of words and
      positions.
    new: parameters as a config initialises them, nested dict on the host.
    vocab_size: entries of the new vocabulary, which begins with the model's.
    stays_new: regular expression; parameters in whose names it is found stay
      new; empty takes over all.
    pieces: for each word after the model's the ids of its pieces there, at whose
      mean it starts; without any, it is new.

  Returns:
    (params, facts): nested dict of float32 arrays; and a JSON object that names
    the source and the parameters that are new, which are printed, too.
  """
  theirs, ours = param_names.flatten(model.params), param_names.flatten(new)
  words = model.tokenizer.size
  stay = {name for name in ours if stays_new and re.search(stays_new, name)}
  # As in transformers, which has one name for both.
  alike = {re.sub('^mlm/', 'head/', name): x for name, x in theirs.items()}
  begun = ours.keys() & alike.keys() - theirs.keys() - stay
  theirs |= {name: alike[name] for name in begun}
  params = param_names.map_named(
    lambda name, x: (
      x if name in stay else _merge(name, x, theirs.get(name), words, pieces)
    ),
    new,
  )
  facts = {
    'path': path,
    'origin': model.origin,
    'fingerprint': fingerprint.combine(fingerprint.of_arrays(model.params)),
    'trained_length': model.trained_length or model.config.max_positions,
    'changes': _list_changes(ours, theirs, words, vocab_size, pieces),
  }
  if begun:
    facts['changes'].append('head: starts as the MLM head before its decoder')
  if stays_new:
    facts['changes'].append(f'{len(stay)} parameters of {stays_new}: new')
  origin = '' if model.origin == path else f': {model.origin}'
  lines = [f'starting from {path}{origin}', *facts['changes']]
  print('\n  '.join(lines), flush=True)
  return params, facts


def fill_model(c: config_dict.ConfigDict, model: source.Source):
  """Sets a config's fields to what the source is.

  These are its sizes, the way it reads, and what its tokenizer does to text.
  """
  known = {field.name for field in dataclasses.fields(model.config)}
  for name in set(c.model) & known - set(OWN):
    c.model[name] = getattr(model.config, name)
  c.objective.kind = model.config.kind
  c.objective.nsp &= not (model.config.causal or model.config.modern)
  c.data.lowercase = model.tokenizer.lowercase
  c.data.strip_accents = str(model.tokenizer.strip_accents).lower()


def check_given(
  given: config_dict.ConfigDict,
  filled: config_dict.ConfigDict,
  typed: Collection[str],
):
  """Raises errors.UserError for what a user gives that is not as in the source.

  Given is what is not the default or is `typed`, in a flag or behind the config's name.
  `filled` is the config with what the source has.
  """
  if not given.init_from:
    return
  was, default, now = map(flatten, (given, declare_fields(), filled))
  wrong = [
    f'{name}={now[name]!r}, not {x!r}'
    for name, x in was.items()
    if x not in (now[name], 'auto', 'as_lowercase')
    and name.startswith(_THEIRS)
    and (name in typed or (name not in _SIZES and x != default[name]))
  ]
  if wrong:
    raise errors.UserError(
      f'init_from={given.init_from} has {"; ".join(wrong)}, which it keeps: leave out '
      'what differs (resize_positions=True is for max_positions).'
    )


def check_length(longest: int, positions: int, path: str, remedy: str = ''):
  """Raises errors.UserError for rows longer than the model's positions.

  `remedy` is what helps besides shorter rows.
  """
  if longest > positions:
    raise errors.UserError(
      f'phases.seq_length={longest} is more than the {positions} positions of '
      f'init_from={path}; set seq_length={positions} or less{remedy}.'
    )


def warn_of_long_rows(longest: int, path: str, model: source.Source):
  """Warns of rows longer than those that the model at a path was trained on."""
  if model.trained_length and longest > model.trained_length:
    why = 'its other positions are random, so that longer rows begin much worse'
    if model.config.modern:
      why = 'it has to learn what is further apart'
    print(
      f'WARNING: phases.seq_length={longest}, but {path} was trained on rows of '
      f'{model.trained_length} tokens: {why} (docs/convert.md)',
      flush=True,
    )


def check_segments(model: source.Source, path: str):
  if (count := model.config.type_vocab_size) != 2:
    raise errors.UserError(
      f'init_from={path} has {count} segment embeddings (type_vocab_size); only '
      'models with 2 can be trained.'
    )


def _merge(name, ours, theirs, words: int, pieces):
  """Returns their values in our shape; entries that they lack stay new."""
  if theirs is None:
    # Ours may be the zeros of `parameters.skip_layers`.
    if parameters.is_layer(name):
      raise ValueError(f'the source has no {name}.')
    return ours
  theirs = np.asarray(theirs, np.float32)
  if theirs.shape != ours.shape and name not in (*_WORDS, _POSITIONS):
    raise ValueError(
      f'{name} has the shape {theirs.shape}, not {ours.shape}; only the numbers '
      'of words and positions may differ.'
    )
  if name in _WORDS:  # rows after the last word are padding
    theirs = theirs[:words]
  merged = np.array(ours, np.float32)
  rows = min(len(merged), len(theirs))
  merged[:rows] = theirs[:rows]
  for row, ids in enumerate(pieces if name in _WORDS else (), words):
    if ids:
      merged[row] = theirs[ids].mean(0)
  return merged


def _list_changes(ours, theirs, words: int, size: int, pieces) -> list[str]:
  """Describes parts of the source that are not used, and parts that are new."""
  had, has = (len(x.get(_POSITIONS, ())) for x in (theirs, ours))
  there, here = (
    {name.split('/')[0] for name in tree} for tree in (theirs, ours)
  )
  means = sum(map(bool, pieces))
  more = f", {means:,} of them the means of their pieces'" if means else ''
  changes = {
    f'words {words:,} to {size - 1:,}: new embeddings and output biases{more}': (
      size > words
    ),
    f'positions {had:,} to {has - 1:,}: new embeddings': has > had,
    f'positions {has:,} to {had - 1:,}: left out': has < had,
  }
  for head in _HEADS:
    changes[f'{head}: new, the source has none'] = head in here - there
    changes[f'{head}: left out'] = head in there - here
  return [change for change, applies in changes.items() if applies]
