"""The splits of a run: which files they are, what is held out, samples."""

import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import hashing
from bert_jax.finetuning.readers import glue, table_files
from bert_jax.runtime import storage

_HELD_OUT, _SAMPLE = 4, 6  # tags of hashes
# {split: the words by which names of files tell that they are it}
_SPLITS = {
  'train': {'train', 'training', 'trainset'},
  'dev': {
    *('dev', 'devel', 'development', 'devset', 'eval', 'testa'),  # CoNLL's
    *('valid', 'validate', 'validation', 'val'),
  },
  'test': {'test', 'testing', 'testset', 'testb'},
}
# Extensions of files of tagged words, and of questions about passages.
WORDS, QUESTIONS = ('.conll', '.txt'), ('.json',)
_OF_TAGS = '.conllu', '.bio', '.iob', '.iob2', '.bmes'  # as published
_EXTENSIONS = tuple(
  dict.fromkeys((*table_files.READ, *WORDS, *_OF_TAGS, *QUESTIONS))
)


class Columns(NamedTuple):
  """Names of columns, or of the fields or flags that name them; '' is none."""

  text: str
  pair: str = ''
  choices: str = ''
  label: str = ''


FIELDS = Columns('data.text', 'data.pair', 'data.choices', 'data.label')
ASKED = Columns(
  '--text', '--pair', '--choices', '--label'
)  # of `bert_jax.predict`


class Source(NamedTuple):
  """Where a run's examples come from: fields of `data` and of `finetuning`."""

  input: str
  columns: Columns = Columns('')
  heldout: float = 0.0
  max_documents: int = 0
  glue: str = ''
  regression: bool = False  # also for a task of GLUE with numbers
  unanswerable: bool = False


def get_source(config: config_dict.ConfigDict) -> Source:
  """Returns where the examples of a config come from."""
  c, f = config.data, config.finetuning
  known = find_glue(f.glue)
  columns = Columns(c.text, c.pair, c.choices, c.label)
  if known:
    columns = Columns(known.text, known.pair, label=known.label)
  return Source(
    c.input,
    columns,
    c.heldout,
    c.max_documents,
    f.glue,
    not known.labels if known else f.regression,
    f.unanswerable,
  )


def find_glue(name: str) -> glue.Glue | None:
  """Returns the GLUE task of a name; None for '', other data."""
  if name and name not in glue.TASKS:
    raise errors.UserError(
      f'finetuning.glue={name!r} is not one of {", ".join(glue.TASKS)}.'
    )
  return glue.TASKS[name] if name else None


def find_files(source: Source) -> dict[str, str]:
  """Returns {split: path} of a source's input: files, or a folder with them."""
  known, given = find_glue(source.glue), source.input
  if '=' in given and not storage.exists(given):
    paths = _parse_files(given, (*_SPLITS, *(known.more if known else ())))
  elif known:
    paths = _find_glue_files(known, given)
  else:
    paths = _find_own_files(given)
  if 'train' not in paths:
    problem, name = 'does not exist', f'train{", ".join(_EXTENSIONS)}'
    if os.path.isfile(given):
      problem = 'is one file'
    elif '=' in given or storage.exists(given):
      unread = list_unread(source)
      more = f', only {errors.listing(unread)}' if unread else ''
      problem = f'has no training file{more}'
    raise errors.UserError(
      f'data.input={given} {problem}; give a folder with {name}, or '
      'train=FILE,dev=FILE,test=FILE.'
    )
  return paths


def list_glue(folder: str) -> list[str]:
  """Returns the names of GLUE's tasks with a training file in a folder."""
  return [
    name
    for name, known in glue.TASKS.items()
    if storage.is_folder(os.path.join(folder, known.folder))
    if 'train' in _find_glue_files(known, folder)
  ]


def _parse_files(given: str, splits) -> dict[str, str]:
  paths = {}
  for item in given.split(','):
    split, equals, path = item.partition('=')
    if not (equals and path) or split not in splits or split in paths:
      raise errors.UserError(
        f'data.input={given}: {item!r} is not SPLIT=FILE with one of '
        f'{", ".join(splits)}, each once.'
      )
    paths[split] = path
  return {split: paths[split] for split in splits if split in paths}


def _find_glue_files(known: glue.Glue, folder: str) -> dict[str, str]:
  inner = os.path.join(folder, known.folder)
  folder = inner if storage.is_folder(inner) else folder
  scheme, mark, rest = folder.rpartition('://')
  paths = {
    split: scheme + mark + os.path.normpath(os.path.join(rest, name))
    for split, name in known.more.items()
  }
  more = {split: x for split, x in paths.items() if storage.exists(x)}
  return _find_own_files(folder) | more


def _find_own_files(folder: str) -> dict[str, str]:
  """Returns {split: path} by words of names; train.csv wins over train_old.csv."""
  named: dict[str, list[tuple[bool, str]]] = {split: [] for split in _SPLITS}
  for name in storage.list_names(folder) if storage.is_folder(folder) else []:
    words = set(re.split(r'[\W_]+', name.lower()))
    fitting = [split for split, known in _SPLITS.items() if words & known]
    is_table = text_files.get_extension(name) in _EXTENSIONS
    if is_table and len(fitting) == 1 and 'mismatched' not in words:
      stem = name.lower().partition('.')[0].removesuffix('_matched')
      named[fitting[0]].append((stem not in _SPLITS[fitting[0]], name))
  for split, files in named.items():
    equal = [name for longer, name in files if longer == min(files)[0]]
    if len(equal) > 1:
      raise errors.UserError(
        f'data.input={folder} has {errors.listing(equal)} for {split}; name the '
        'files: train=FILE,dev=FILE,test=FILE.'
      )
  return {k: os.path.join(folder, min(x)[1]) for k, x in named.items() if x}


def list_unread(source: Source) -> list[str]:
  """Returns the names in a folder that are no file of a split."""
  if source.glue or not storage.is_folder(source.input):
    return []
  read = {os.path.basename(x) for x in _find_own_files(source.input).values()}
  names = storage.list_names(source.input)
  return [x for x in names if x not in read and not x.startswith('.')]


@dataclasses.dataclass(frozen=True)
class Content:
  """What a file holds, or a part of it."""

  path: str
  units: list[Any]  # its rows, sentences or questions, in order
  origin: str = ''  # where they are from, to print, if not just `path`
  notes: Sequence[str] = ()  # how the file was read, to print

  def list_groups(self) -> Sequence[int]:
    """Returns the number of each unit's group, which is held out whole."""
    return range(len(self.units))

  def list_labels(self, source: Source) -> Sequence[str | float]:
    """Returns what units are held out evenly by: classes, numbers or ()."""
    return ()

  def list_keys(self) -> list[tuple[Any, tuple]]:
    """Returns (name, key) of each unit; equal texts have equal keys."""
    raise NotImplementedError

  def list_texts(self) -> list[str]:
    return [x for _, key in self.list_keys() for x in key if isinstance(x, str)]

  def take(self, chosen: Sequence[int]) -> Self:
    units = [self.units[i] for i in chosen]
    return dataclasses.replace(self, units=units)


def read(
  source: Source, read_file: Callable[[str, str], Content]
) -> dict[str, Content]:
  """Reads the files of a source; without a dev file, dev is held out."""
  paths = find_files(source)
  contents = {split: read_file(split, path) for split, path in paths.items()}
  if 'dev' not in contents:
    whole = contents['train']
    groups, labels = whole.list_groups(), whole.list_labels(source)
    out = hold_out(whole.path, source.heldout, groups, labels)
    if len(set(groups)) == len(groups):
      # Copies of training units stay there, if there is anything else.
      keys = [key for _, key in whole.list_keys()]
      known = {key for key, held in zip(keys, out, strict=True) if not held}
      unseen = out & np.array([key not in known for key in keys])
      out = unseen if unseen.any() else out
    dev = whole.take(np.flatnonzero(out))
    contents['train'] = whole.take(np.flatnonzero(~out))
    origin = f'held out of {whole.path}'
    contents['dev'] = dataclasses.replace(dev, origin=origin)
  return {
    split: x.take(take_sample(x.list_groups(), source.max_documents))
    for split, x in contents.items()
  }


def find_repeated(contents: dict[str, Content]) -> dict[str, list[Any]]:
  """Returns {split: names of its units that are in training, too}."""
  known = {key for _, key in contents['train'].list_keys()}
  others = [split for split in contents if split != 'train']
  return {'train': []} | {
    split: [name for name, key in contents[split].list_keys() if key in known]
    for split in others
  }


def take_sample(groups: Sequence[int], most: int) -> np.ndarray:
  """Returns the numbers of at most `most` rows, ascending; 0 is all of them.

  A larger sample has the rows of a smaller one. All groups but one stay whole.
  """
  keys = hashing.mix(_SAMPLE, np.asarray(groups))
  return np.sort(np.argsort(keys, kind='stable')[: most or None])


def hold_out(
  path: str,
  share: float,
  groups: Sequence[int],
  labels: Sequence[str | float] = (),
) -> np.ndarray:
  """Returns which training rows are held out for dev, bool [N].

  They do not depend on the run's seed. Groups stay whole. With labels, the share
  is taken of every class, which keeps a row to train on, or of any range of
  numbers.
  """
  units, first, unit_of = np.unique(
    groups, return_index=True, return_inverse=True
  )
  order = np.argsort(hashing.mix(_HELD_OUT, units), kind='stable')
  candidates = order
  if len(labels):
    known = np.array(labels)[first]
    order = order[np.argsort(known[order], kind='stable')]
    same = known[order][1:] == known[order][:-1]
    numbers = np.issubdtype(known.dtype, np.number)
    candidates = order if numbers else order[1:][same]
  # Evenly spread over the rows in the order of their labels.
  ends = np.arange(len(candidates) + 1) * share * len(units)
  ends = np.floor(ends / max(len(candidates), 1) + 1e-9)
  chosen = candidates[ends[1:] > ends[:-1]]
  if len(chosen) in (0, len(units)):
    raise errors.UserError(
      f'{path} has {len(groups)} rows, of which data.heldout={share} holds out '
      f'{len(chosen)}; change it, or give a file: dev=FILE.'
    )
  return np.isin(unit_of, chosen)
