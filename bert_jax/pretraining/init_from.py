"""Starts a run from a trained model, to continue its pre-training.

`init_from` names the model. Its parameters are used; the optimizer and the
schedule start from the beginning. Parameters that the model lacks are new.
Without one, `find_start` chooses `word_vectors`, if the config asks for them.
"""

import functools
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import flatten
from bert_jax.data import accents, dataset, manifest_file
from bert_jax.inference import source, transfer
from bert_jax.pretraining import word_vectors
from bert_jax.tokenization.tokenizer import read_vocab
from bert_jax.workdir import claim

# Fields of `model` that may differ from the source: they do not change what the
# parameters mean, or (the first) are compared separately.
_FREE = (
  'max_positions',
  'dropout',
  'attention_dropout',
  'initializer',
  'initializer_std',
  'attention_init',
  'mask_value',
  'dtype',
  'bilstm',
)


def check(config: config_dict.ConfigDict, workdir: str):
  """Checks the source before data is prepared.

  A run that has a checkpoint does not need the source any more.
  """
  if not config.init_from or claim.has_begun(workdir):
    return
  model = source.read(config.init_from)
  _check_model(config, model)  # before anything is fetched
  _check(config, model, config.data.dir and dataset.fetch(config.data.dir, ()))


def find_start(config: config_dict.ConfigDict, directory: str):
  """Returns `train.task.Task.start` of a config; None for random weights."""
  if config.init_from:
    return functools.partial(start, config, directory)
  if config.objective.word_vectors:
    return functools.partial(word_vectors.start, config, directory)
  return None


def start(
  config: config_dict.ConfigDict, directory: str, new: Any
) -> tuple[dict, dict]:
  """Replaces new parameters by the source's; see `train.task.Task.start`.

  The facts name the source and the parameters that stay new.
  """
  model = source.read(config.init_from)
  _check(config, model, directory)
  return transfer.transfer(model, config.init_from, new, config.data.vocab_size)


def _check(config, model: source.Source, directory: str):
  """Compares the source with the config and the data, '' if not yet prepared."""
  _check_model(config, model)
  if directory:
    _check_words(config, model, manifest_file.vocab_path(directory))
    ours = manifest_file.load_tokenizer(directory).strip_accents
  else:
    _check_words(config, model, config.data.vocab)
    ours = accents.decide_without_text(
      accents.read_choice(config.data.strip_accents, config.data.lowercase),
      config.data.lowercase,
      read_vocab(config.data.vocab),
    ).strip
  _check_accents(config, model, ours)


def _check_model(config, model: source.Source):
  """Raises errors.UserError that lists every field that differs."""
  transfer.check_segments(model, config.init_from)
  theirs = {
    f'model.{name}': getattr(model.config, name)
    for name in config.model
    if name not in _FREE
  }
  theirs['objective.kind'] = model.config.kind
  theirs['data.lowercase'] = model.tokenizer.lowercase
  fields = flatten(config)
  wrong = [
    f'{name} is {x!r} in init_from, {fields[name]!r} in the config'
    for name, x in theirs.items()
    if x != fields[name]
  ]
  had, has = model.config.max_positions, config.model.max_positions
  if had != has and not config.resize_positions:
    wrong.append(
      f'model.max_positions is {had} in init_from, {has} in the config '
      '(--config.resize_positions=True allows it)'
    )
  if wrong:
    raise errors.UserError(
      f'init_from={config.init_from} does not fit the config: '
      f'{"; ".join(wrong)}. Set these fields as in init_from.'
    )


def _check_words(config, model: source.Source, path: str):
  """Raises errors.UserError unless the vocabulary begins with the source's."""
  theirs, ours = model.tokenizer.vocab, read_vocab(path)
  differing = (i for i, word in enumerate(theirs) if ours[i : i + 1] != (word,))
  i = next(differing, None)
  if i is not None:
    here = repr(ours[i]) if i < len(ours) else 'missing'
    raise errors.UserError(
      f'word {i:,} of init_from={config.init_from} is {theirs[i]!r}, in {path} '
      f'it is {here}; use the vocabulary of the source, to which words may be '
      'added at the end.'
    )


def _check_accents(config, model: source.Source, ours: bool):
  """Raises errors.UserError unless the source strips accents like our data."""
  theirs = model.tokenizer.strip_accents
  if theirs != ours:
    raise errors.UserError(
      f'init_from={config.init_from} was trained with strip_accents={theirs}, '
      f'this data is made with {ours}; set data.strip_accents='
      f'{str(theirs).lower()}, and prepare the data with it.'
    )
