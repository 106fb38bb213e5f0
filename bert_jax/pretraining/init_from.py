"""Starts a run from a trained model, to continue its pre-training.

`init_from` names the model. Its sizes, vocabulary and parameters are used; the
optimizer and the schedule start from the beginning. Parameters that the model
lacks are new.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import flatten
from bert_jax.data import dataset, manifest_file, recipe, vocab_pieces
from bert_jax.inference import source, transfer
from bert_jax.parallel import distributed
from bert_jax.pretraining import training_data
from bert_jax.runtime import files
from bert_jax.tokenization.basic_tokenizer import split_words
from bert_jax.tokenization.tokenizer import Tokenizer, read_vocab
from bert_jax.workdir import claim, paths

# What a run that has begun takes from its saved config.
_FILLED = (
  *('model.', 'objective.kind', 'data.vocab_size', 'data.lowercase'),
  'data.strip_accents',
)
# Entries that vocabularies keep free for words of users.
_UNUSED = re.compile(r'[\[<]unused[ _-]?\d+[\]>]', re.IGNORECASE)


def take_model(
  config: config_dict.ConfigDict, workdir: str
) -> config_dict.ConfigDict:
  """Returns the config with the sizes and the vocabulary of `init_from`.

  What differs from the given config is printed. A run that has begun keeps what
  was filled in then, even if its source is gone.
  """
  if not config.init_from:
    return config
  if claim.is_final(workdir):
    return _restore(config, workdir)
  training_data.check_directory(config.data.dir)
  model = source.read(config.init_from)
  transfer.check_segments(model, config.init_from)
  c = _fill(config, model)
  if not c.resize_positions:
    transfer.check_length(c, ', or resize_positions=True')
  keeps_added = False
  if c.data.dir:
    directory = dataset.fetch(c.data.dir, ())
    words = _check_data(c, model, directory)
    added = manifest_file.load_tokenizer(directory).added
    keeps_added = added == model.tokenizer.added
  elif c.data.vocab:
    words = _check_words(c, model, c.data.vocab)
  else:
    c.data.vocab, keeps_added = paths.source_vocab(workdir), True
    words = model.tokenizer.vocab
  c.data.vocab_size = len(words)
  if distributed.is_first():
    if taken := flatten(c).items() - flatten(config).items():
      # Not what they were: a value of `smoke` is nothing that the user gave.
      values = ', '.join(f'{name}={value!r}' for name, value in sorted(taken))
      print(f'as init_from={c.init_from}: {values}', flush=True)
    _describe_words(c, model.tokenizer, words, keeps_added)
    transfer.warn_of_long_rows(c, c.init_from, model)
  return c


def _list_own(config) -> list[str]:
  """Returns the fields of `model` that are the config's, not the source's."""
  resized = ['max_positions'] if config.resize_positions else []
  return [*transfer.OWN, 'initializer_std', *resized]


def _restore(config, workdir):
  own = [f'model.{name}' for name in _list_own(config)]
  filled = _FILLED if config.data.vocab else (*_FILLED, 'data.vocab')
  c = config.copy_and_resolve_references()
  claim.restore(
    c, workdir, lambda name: name.startswith(filled) and name not in own
  )
  c.objective.nsp &= c.objective.kind == 'mlm'
  return c


def _fill(config, model: source.Source):
  """Returns the config with the fields that follow from a model."""
  c = config.copy_and_resolve_references()
  transfer.fill_model(c, model)
  c.model.update({name: config.model[name] for name in _list_own(config)})
  return c


def _describe_words(c, theirs: Tokenizer, words: Sequence[str], keeps_added):
  """Prints how a vocabulary and its use differ from the source's."""
  pairs = itertools.zip_longest(theirs.vocab, words)
  new = [(i, b) for i, (a, b) in enumerate(pairs) if a != b]
  if names := [f'{i} is {word!r} now' for i, word in new if i < theirs.size]:
    many = f'unused entries replaced, whose embeddings are kept ({len(names)})'
    print(f'{many}: {errors.listing(names)}', flush=True)
  _warn_of_unused(c, [word for _, word in new])
  whole = [] if keeps_added else [x.word for x in theirs.added]
  if whole:
    print(
      f'WARNING: {errors.listing(whole, most=3)}: these words, which '
      f'{c.init_from} keeps whole, are split like any others in pre-training and '
      'by the model that it exports; with its own vocabulary (no data.vocab and '
      'no data.dir) they stay whole',
      flush=True,
    )


def _warn_of_unused(c, added: Sequence[str]):
  """Warns of added words that the tokenizer never finds in a text."""

  def occurs(word):
    # The rest of a word follows a letter.
    text = f'a{word[2:]}' if word.startswith('##') else word
    how = c.data.lowercase, c.data.strip_accents == 'true'
    return re.fullmatch(r'\[.*\]', word) or split_words(text, *how) == [text]

  if unused := [word for word in added if not occurs(word)]:
    print(
      f'WARNING: {errors.count(len(unused), "added word")} of the vocabulary '
      'cannot occur, since text is split and cleaned before it is looked up: '
      f'{errors.listing(unused, most=3)}',
      flush=True,
    )


def write_vocabulary(config: config_dict.ConfigDict, workdir: str):
  """Writes the source's vocabulary to the run, if it is to be used."""
  path = paths.source_vocab(workdir)
  if config.data.vocab != path or claim.is_final(workdir):
    return
  theirs = source.read(config.init_from).tokenizer
  with errors.explaining(f'cannot write {path}'):
    vocab_pieces.write(theirs.vocab, path)
    if theirs.added:
      files.write_json(recipe.added_path(path), theirs.added)


def start(
  config: config_dict.ConfigDict, directory: str, new: Any
) -> tuple[dict, dict]:
  """Replaces new parameters by the source's; see `train.task.Task.start`.

  The facts name the source and the parameters that stay new.
  """
  model = source.read(config.init_from)
  now = flatten(_fill(config, model))
  if changed := errors.find_changes(flatten(config), now):
    raise errors.UserError(
      f'init_from={config.init_from} is another model than when this run was '
      f'set up: {"; ".join(changed)}. Put the former one back, or begin another '
      'run.'
    )
  _check_data(config, model, directory)
  return transfer.transfer(model, config.init_from, new, config.data.vocab_size)


def _check_data(config, model: source.Source, directory: str) -> Sequence[str]:
  """Compares prepared data with the source; returns their vocabulary."""
  words = _check_words(config, model, manifest_file.vocab_path(directory))
  ours, theirs = manifest_file.load_tokenizer(directory), model.tokenizer
  for name in ('lowercase', 'strip_accents'):
    had, has = getattr(theirs, name), getattr(ours, name)
    if had != has:
      raise errors.UserError(
        f'init_from={config.init_from} was trained with {name}={had}, but '
        f'{directory} was prepared with {has}; prepare the data again with '
        f'data.{name}={str(had).lower()}.'
      )
  return words


def _fits(theirs: str, ours: str | None) -> bool:
  return theirs == ours or bool(ours and _UNUSED.fullmatch(theirs))


def _check_words(config, model: source.Source, path: str) -> Sequence[str]:
  """Returns a vocabulary, which must begin with the source's."""
  theirs, ours = model.tokenizer.vocab, read_vocab(path)
  pairs = itertools.zip_longest(theirs, ours[: len(theirs)])
  differing = (i for i, (a, b) in enumerate(pairs) if not _fits(a, b))
  i = next(differing, None)
  if i is not None:
    here = repr(ours[i]) if i < len(ours) else 'missing'
    raise errors.UserError(
      f'word {i:,} of init_from={config.init_from} is {theirs[i]!r}, in {path} '
      f'it is {here}; use the vocabulary of the source, to which words may be '
      'added at the end or in the place of [unused] entries.'
    )
  return ours
