"""Takes over the sizes and parameters of a trained model.

What it lacks stays new.
"""

import dataclasses
import re
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax import errors, param_names
from bert_jax.inference import source
from bert_jax.model import parameters
from bert_jax.workdir import fingerprint

_HEADS = ('mlm', 'pooler', 'nsp', 'mix', 'bilstm', 'classifier')
_WORDS = ('embeddings/word/embedding', 'mlm/bias')  # one row or value per word
_POSITIONS = 'embeddings/position/embedding'
# Fields of `model` that come from the recipe or chip, not from the source.
OWN = (
  *('dropout', 'attention_dropout', 'dtype', 'mask_value', 'initializer'),
  *('attention_init', 'bilstm'),
)


def transfer(
  model: source.Source,
  path: str,
  new: Any,
  vocab_size: int,
  stays_new: str = '',
) -> tuple[dict, dict]:
  """Replaces new parameters with a model's.

  Args:
    model: the trained model, of our sizes except the numbers of words and
      positions.
    new: parameters as a config initialises them, nested dict on the host.
    vocab_size: entries of the new vocabulary, which begins with the model's.
    stays_new: regular expression; parameters in whose names it is found stay
      new; empty takes over all.

  Returns:
    (params, facts): nested dict of float32 arrays; and a JSON object that names
    the source and the parameters that are new, which are printed, too.
  """
  theirs = param_names.flatten(model.params)
  ours = param_names.flatten(new)
  words = model.tokenizer.size
  kept = {name for name in ours if stays_new and re.search(stays_new, name)}

  def choose(name, x):
    return x if name in kept else _merge(name, x, theirs.get(name), words)

  params = param_names.map_named(choose, new)
  facts = {
    'path': path,
    'origin': model.origin,
    'fingerprint': fingerprint.combine(fingerprint.of_arrays(model.params)),
    'trained_length': model.trained_length or model.config.max_positions,
    'changes': _changes(ours, theirs, words, vocab_size),
  }
  if stays_new:
    facts['changes'].append(f'{len(kept)} parameters of {stays_new}: new')
  origin = '' if model.origin == path else f': {model.origin}'
  print(f'starting from {path}{origin}', flush=True)
  for change in facts['changes']:
    print(f'  {change}', flush=True)
  return params, facts


def fill_model(c: config_dict.ConfigDict, model: source.Source):
  """Sets a config's fields to what the source is.

  These are its sizes, the way it reads, and what its tokenizer does to text.
  """
  known = {field.name for field in dataclasses.fields(model.config)}
  for name in set(c.model) & known - set(OWN):
    c.model[name] = getattr(model.config, name)
  c.objective.kind = model.config.kind
  c.objective.nsp &= not model.config.causal
  c.data.lowercase = model.tokenizer.lowercase
  c.data.strip_accents = str(model.tokenizer.strip_accents).lower()


def check_length(c: config_dict.ConfigDict, remedy: str = ''):
  """Raises errors.UserError for rows longer than the model's positions.

  `remedy` is what helps besides shorter rows.
  """
  if max(c.phases.seq_length) > c.model.max_positions:
    raise errors.UserError(
      f'phases.seq_length={max(c.phases.seq_length)} is more than the '
      f'{c.model.max_positions} positions of init_from={c.init_from}; set '
      f'seq_length={c.model.max_positions} or less{remedy}.'
    )


def warn_of_long_rows(
  c: config_dict.ConfigDict, path: str, model: source.Source
):
  """Warns of rows longer than those that the model at a path was trained on."""
  longest = model.trained_length
  if longest and max(c.phases.seq_length) > longest:
    print(
      f'WARNING: phases.seq_length={c.phases.seq_length}, but {path} was trained '
      f'on rows of {longest} tokens: its other positions are random, so that '
      'longer rows begin much worse (docs/convert.md)',
      flush=True,
    )


def check_segments(model: source.Source, path: str):
  if (count := model.config.type_vocab_size) != 2:
    raise errors.UserError(
      f'init_from={path} has {count} segment embeddings (type_vocab_size); only '
      'models with 2 can be trained.'
    )


def _merge(name, ours, theirs, words: int):
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
  return merged


def _changes(ours, theirs, words: int, size: int) -> list[str]:
  """Describes parts of the source that are not used, and parts that are new."""
  changes = []
  if size > words:
    changes.append(
      f'words {words:,} to {size - 1:,}: new embeddings and output biases'
    )
  had, has = len(theirs[_POSITIONS]), len(ours[_POSITIONS])
  if has > had:
    changes.append(f'positions {had:,} to {has - 1:,}: new embeddings')
  if has < had:
    changes.append(f'positions {has:,} to {had - 1:,}: left out')
  there, here = (
    {name.split('/')[0] for name in tree} for tree in (theirs, ours)
  )
  for head in _HEADS:
    if head in here - there:
      changes.append(f'{head}: new, the source has none')
    if head in there - here:
      changes.append(f'{head}: left out')
  return changes
