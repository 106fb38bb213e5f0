"""Starts a run from a trained model, to continue its pre-training.

`init_from` names the model. Its sizes, vocabulary and parameters are used; the
optimizer and the schedule start from the beginning. Words may be added to the
vocabulary. Parameters that the model lacks are new.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import flatten, recipes
from bert_jax.data import dataset, manifest_file, recipe
from bert_jax.inference import source, transfer
from bert_jax.parallel import distributed
from bert_jax.pretraining import adaptation, training_data
from bert_jax.runtime import files
from bert_jax.tokenization.basic_tokenizer import split_words
from bert_jax.tokenization.fast_tokenizer import load
from bert_jax.tokenization.tokenizer import Tokenizer
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
  name = config.init_from
  if not name:
    return config
  if claim.is_final(workdir):
    return _restore(config, workdir)
  training_data.check_directory(config.data.dir)
  model = source.read(name)
  transfer.check_segments(model, name)
  if config.resize_positions and model.config.modern:
    raise errors.UserError(
      f'init_from={name} has no table of positions; leave resize_positions out.'
    )
  theirs, thetas = model.config.rope_theta, config.phases.rope_thetas
  if thetas and thetas[0] < theirs:
    raise errors.UserError(
      f'init_from={name} has a rope_theta of {theirs:g}, and phases.rope_thetas '
      f'begins with {thetas[0]:g}; give no less, or () for the same.'
    )
  c = _fill(config, model)
  longest, most = max(c.phases.seq_length), c.model.max_positions
  if not c.resize_positions:
    transfer.check_length(longest, most, name, ', or resize_positions=True')
  keeps_added = False
  if c.data.dir:
    directory = dataset.fetch(c.data.dir, ())
    words, added = _check_data(name, model.tokenizer, directory)
    keeps_added = added == model.tokenizer.added
  elif c.data.vocab:
    words = _check_words(name, model.tokenizer, c.data.vocab)
  else:
    words, keeps_added = model.tokenizer.vocab, True
    c.data.vocab = paths.source_vocab(workdir) + model.tokenizer.file_name
  c.data.vocab_size = len(words) + c.data.add_words
  if distributed.is_first():
    if taken := flatten(c).items() - flatten(config).items():
      # Not what they were: a value of `smoke` is nothing that the user gave.
      values = ', '.join(f'{name}={value!r}' for name, value in sorted(taken))
      print(f'as init_from={name}: {values}', flush=True)
    whole = [] if keeps_added else [x.word for x in model.tokenizer.added]
    for line in _describe_words(name, model.tokenizer, words, whole):
      print(line, flush=True)
    transfer.warn_of_long_rows(longest, name, model)
  return c


def _list_own(resizes: bool) -> list[str]:
  """Returns the fields of `model` that are the config's, not the source's."""
  return [*transfer.OWN, 'initializer_std', *['max_positions'] * resizes]


def _restore(config, workdir):
  own = [f'model.{name}' for name in _list_own(config.resize_positions)]
  filled = _FILLED if config.data.vocab else (*_FILLED, 'data.vocab')
  c = config.copy_and_resolve_references()
  saved = claim.restore(
    c, workdir, lambda name: name.startswith(filled) and name not in own
  )
  c.objective.nsp &= saved['objective.nsp']
  if c.model.body == 'modern' and c.data.rows == 'pairs':
    c.data.rows = saved['data.rows']
  c.optimizer.learning_rate = recipes.choose_rate(c)
  return c


def _fill(config, model: source.Source):
  """Returns the config with the fields that follow from a model."""
  c = config.copy_and_resolve_references()
  transfer.fill_model(c, model)
  c.objective.nsp &= 'nsp' in model.params
  c.optimizer.learning_rate = recipes.choose_rate(c)
  own = _list_own(c.resize_positions)
  c.model.update({name: config.model[name] for name in own})
  if model.config.modern:  # it has as many positions as are asked for
    c.model.max_positions = max(c.model.max_positions, *c.phases.seq_length)
    if c.data.rows == 'pairs' and not c.data.dir:
      # Random second texts are for NSP, and it has no segments to tell them apart.
      c.data.rows = 'full_sentences'
  return c


def _describe_words(
  name: str, theirs: Tokenizer, words: Sequence[str], split: Sequence[str]
) -> list[str]:
  """Says how a vocabulary and its use differ from the source's.

  `split` are words that the source keeps whole, and the run does not.
  """
  lines, size = [], theirs.size
  pairs = itertools.zip_longest(theirs.vocab, words)
  new = [(i, b) for i, (a, b) in enumerate(pairs) if a != b]
  if names := [f'{i} is {word!r} now' for i, word in new if i < size]:
    lines.append(
      f'unused entries replaced, whose embeddings are kept ({len(names)}): '
      f'{errors.listing(names)}'
    )

  def occurs(word):
    # The rest of a word follows a letter.
    text = f'a{word[2:]}' if word.startswith('##') else word
    how = theirs.lowercase, bool(theirs.strip_accents)
    return re.fullmatch(r'\[.*\]', word) or split_words(text, *how) == [text]

  if unused := [word for _, word in new if not occurs(word)]:
    lines.append(
      f'WARNING: {errors.count(len(unused), "added word")} of the vocabulary '
      'cannot occur, since text is split and cleaned before it is looked up: '
      f'{errors.listing(unused, most=3)}'
    )
  if split:
    lines.append(
      f'WARNING: {errors.listing(split, most=3)}: these words, which {name} '
      'keeps whole, are split like any others in pre-training and by the model '
      'that it exports; with its own vocabulary (no data.vocab and no data.dir) '
      'they stay whole'
    )
  return lines


def write_vocabulary(config: config_dict.ConfigDict, workdir: str):
  """Writes the source's vocabulary to the run, if it is to be used."""
  path = config.data.vocab
  own = path.startswith(paths.source_vocab(workdir))
  if not own or claim.is_final(workdir):
    return
  theirs = source.read(config.init_from).tokenizer
  files.write_text(path, theirs.to_bytes().decode())
  if theirs.added:
    files.write_json(recipe.added_path(path), theirs.added)


def start(
  config: config_dict.ConfigDict, directory: str, new: Any
) -> tuple[dict, dict]:
  """Replaces new parameters by the source's; see `trainer.task.Task.start`.

  The facts name the source and the parameters that stay new, and say how well it
  predicts held-out text.
  """
  model, name = source.read(config.init_from), config.init_from
  now = flatten(_fill(config, model))
  if changed := errors.find_changes(flatten(config), now):
    raise errors.UserError(
      f'init_from={name} is another model than when this run was set up: '
      f'{"; ".join(changed)}. Put the former one back, or begin another run.'
    )
  words, _ = _check_data(name, model.tokenizer, directory)
  size, unknown = model.tokenizer.size, [model.tokenizer.unk_id]
  spelled = map(model.tokenizer.spell, words[size:])
  pieces = [[] if ids == unknown else ids for ids in spelled]
  params, facts = transfer.transfer(
    model, name, new, config.data.vocab_size, pieces=pieces
  )
  if 'mlm' in model.params:
    texts = adaptation.read_texts(directory, config.phases.seq_length[0], size)
    facts |= {'words': size, 'before': adaptation.measure(model, texts)}
  return params, facts


def _check_data(name: str, theirs: Tokenizer, directory: str) -> tuple:
  """Compares prepared data with the source; returns their words and added ones."""
  path, ours = (
    manifest_file.vocab_path(directory),
    manifest_file.load_tokenizer(directory),
  )
  words = _check_words(name, theirs, path)
  for how in ('lowercase', 'strip_accents'):
    had, has = getattr(theirs, how), getattr(ours, how)
    if had != has:
      raise errors.UserError(
        f'init_from={name} was trained with {how}={had}, but {directory} was '
        f'prepared with {has}; prepare the data again with '
        f'data.{how}={str(had).lower()}.'
      )
  return words, ours.added


def _check_words(name: str, theirs: Tokenizer, path: str) -> Sequence[str]:
  """Returns a vocabulary, which must begin with the source's."""
  words = load(path)
  if (words.space or theirs.space) and words != theirs:
    raise errors.UserError(
      f'init_from={name} has another tokenizer than {path}, and only WordPiece '
      'can get more words; leave data.vocab out, to use its own.'
    )
  ours = words.vocab
  pairs = itertools.zip_longest(theirs.vocab, ours[: theirs.size])
  for i, (had, has) in enumerate(pairs):
    if had != has and not (has and _UNUSED.fullmatch(had)):
      raise errors.UserError(
        f'word {i:,} of init_from={name} is {had!r}, in {path} it is '
        f'{repr(has) if has else "missing"}; use the vocabulary of the source, '
        'to which words may be added at the end or in the place of [unused] '
        'entries.'
      )
  return ours
