"""Starts a run from a trained model, to continue its pre-training.

`init_from` names the model. Its sizes, vocabulary and parameters are used; the
optimizer and the schedule start from the beginning. Parameters that the model
lacks are new.
Without one, `find_start` chooses `word_vectors`, if the config asks for them.
"""

import functools
from collections.abc import Sequence
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import flatten
from bert_jax.data import dataset, manifest_file, vocab_pieces
from bert_jax.inference import source, transfer
from bert_jax.parallel import distributed
from bert_jax.pretraining import word_vectors
from bert_jax.tokenization.tokenizer import read_vocab
from bert_jax.workdir import claim, paths

# What a run that has begun takes from its saved config.
_FILLED = (
  *('model.', 'objective.kind', 'data.vocab_size', 'data.lowercase'),
  'data.strip_accents',
)


def take_model(
  config: config_dict.ConfigDict, workdir: str
) -> config_dict.ConfigDict:
  """Returns the config with the sizes and the vocabulary of `init_from`.

  What differs from the given config is printed. A run that has begun keeps what
  was filled in then, even if its source is gone.
  """
  if not config.init_from:
    return config
  c = config.copy_and_resolve_references()
  if claim.is_final(workdir):
    own = {f'model.{name}' for name in transfer.OWN}
    filled = _FILLED if c.data.vocab else (*_FILLED, 'data.vocab')
    claim.restore(
      c, workdir, lambda name: name.startswith(filled) and name not in own
    )
    c.objective.nsp &= c.objective.kind == 'mlm'
    return c
  model = source.read(c.init_from)
  transfer.check_segments(model, c.init_from)
  transfer.fill_model(c, model)
  if c.resize_positions:
    c.model.max_positions = config.model.max_positions
  else:
    transfer.check_length(c, ', or resize_positions=True')
  if c.data.dir:
    directory = dataset.fetch(c.data.dir, ())
    words = _check_data(c, model, directory)
  elif c.data.vocab:
    words = _check_words(c, model, c.data.vocab)
  else:
    c.data.vocab, words = paths.vocab(workdir), model.tokenizer.vocab
  c.data.vocab_size = len(words)
  _print_changes(config, c)
  return c


def _print_changes(given, c):
  given = flatten(given)
  changed = [
    f'{name}={value}'
    for name, value in flatten(c).items()
    if value != given[name]
  ]
  if changed and distributed.is_first():
    print(f'as in init_from={c.init_from}: {", ".join(changed)}', flush=True)


def write_vocabulary(config: config_dict.ConfigDict, workdir: str):
  """Writes the source's vocabulary to the run, if it is to be used."""
  path = paths.vocab(workdir)
  if (
    config.init_from
    and config.data.vocab == path
    and not claim.is_final(workdir)
  ):
    words = source.read(config.init_from).tokenizer.vocab
    with errors.explaining(f'cannot write {path}'):
      vocab_pieces.write(words, path)


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
  _check_data(config, model, directory)
  return transfer.transfer(model, config.init_from, new, config.data.vocab_size)


def _check_data(config, model: source.Source, directory: str) -> Sequence[str]:
  """Compares prepared data with the source; returns their vocabulary."""
  words = _check_words(config, model, manifest_file.vocab_path(directory))
  ours = manifest_file.load_tokenizer(directory).strip_accents
  theirs = model.tokenizer.strip_accents
  if theirs != ours:
    raise errors.UserError(
      f'init_from={config.init_from} was trained with strip_accents={theirs}, '
      f'{directory} was made with {ours}; prepare it again with '
      f'--strip_accents={str(theirs).lower()}.'
    )
  return words


def _check_words(config, model: source.Source, path: str) -> Sequence[str]:
  """Returns a vocabulary, which must begin with the source's."""
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
  return ours
