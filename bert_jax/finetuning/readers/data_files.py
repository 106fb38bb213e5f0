"""Finds the files that a fine-tuning run reads."""

import dataclasses
import os

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.corpus import tfds_text
from bert_jax.finetuning.readers import glue, table_files
from bert_jax.runtime import storage

_SPLITS = ('train', 'dev', 'test')
# {split: its names in TFDS}
_TFDS_SPLITS = {
  'train': ('train',),
  'dev': ('validation', 'validation_matched'),
  'dev_mismatched': ('validation_mismatched',),
  'test': ('test', 'test_matched'),
  'test_mismatched': ('test_mismatched',),
}
# Of files of tagged words, and of questions about passages.
WORDS, QUESTIONS = ('.conll', '.txt'), ('.json',)
_EXTENSIONS = (*table_files.EXTENSIONS, *WORDS, *QUESTIONS)


@dataclasses.dataclass(frozen=True)
class Source:
  """Where a run's examples come from: fields of `data` and of `finetuning`.

  `regression` is also what follows from a GLUE task, whose labels are numbers.
  """

  input: str
  text: str
  pair: str
  label: str
  choices: str
  heldout: float
  max_documents: int
  glue: str
  regression: bool


def get_source(config: config_dict.ConfigDict) -> Source:
  """Returns where the examples of a config come from."""
  fields = [x.name for x in dataclasses.fields(Source)][:-2]
  known = find_glue(config.finetuning.glue)
  return Source(
    *(config.data[x] for x in fields),
    config.finetuning.glue,
    not known.labels if known else config.finetuning.regression,
  )


def find_glue(name: str) -> glue.Glue | None:
  """Returns the GLUE task of a name; None for '', other data."""
  if name and name not in glue.TASKS:
    raise errors.UserError(
      f'finetuning.glue={name!r} is not one of {", ".join(glue.TASKS)}.'
    )
  return glue.TASKS[name] if name else None


def find_files(source: Source) -> dict[str, str]:
  """Returns {split: path} of a source's input.

  It names files, `train=FILE,dev=FILE,test=FILE`, or a folder: of the GLUE
  task, of all of GLUE, or with files train.*, dev.* and test.*; or a dataset of
  TFDS, `tfds:NAME/CONFIG`, whose splits are files here: `tfds:NAME/CONFIG:SPLIT`.
  """
  known, given = find_glue(source.glue), source.input
  if given.startswith(tfds_text.PREFIX):
    found = _find_tfds_splits(given)
  elif '=' in given:
    found = _parse_files(given, known.files if known else _SPLITS)
  elif known:
    found = _find_glue_files(known, given)
  else:
    found = _find_own_files(given)
  if 'train' not in found:
    named = '=' in given or given.startswith(tfds_text.PREFIX)
    there = named or storage.exists(given)
    problem = 'has no training file' if there else 'does not exist'
    raise errors.UserError(
      f'data.input={given} {problem}; give a folder with '
      f'{known.files["train"] if known else "train.csv, .tsv or .jsonl"}, or '
      'train=FILE,dev=FILE,test=FILE.'
    )
  return found


def list_glue(folder: str) -> list[str]:
  """Returns the names of GLUE's tasks with a training file in a folder."""
  return [
    name
    for name, known in glue.TASKS.items()
    if os.path.isfile(os.path.join(folder, known.folder, known.files['train']))
  ]


def _parse_files(given: str, splits) -> dict[str, str]:
  found = {}
  for item in given.split(','):
    split, equals, path = item.partition('=')
    if not (equals and path) or split not in splits or split in found:
      raise errors.UserError(
        f'data.input={given}: {item!r} is not SPLIT=FILE with one of '
        f'{", ".join(splits)}, each once.'
      )
    found[split] = path
  return {split: found[split] for split in splits if split in found}


def _find_tfds_splits(given: str) -> dict[str, str]:
  there = tfds_text.list_splits(given)
  return {
    split: f'{given}:{name}'
    for split, names in _TFDS_SPLITS.items()
    for name in names
    if name in there
  }


def _find_glue_files(known: glue.Glue, folder: str) -> dict[str, str]:
  inner = os.path.join(folder, known.folder)
  folder = inner if os.path.isdir(inner) else folder
  paths = {
    split: os.path.normpath(os.path.join(folder, name))
    for split, name in known.files.items()
  }
  return {split: x for split, x in paths.items() if os.path.isfile(x)}


def _find_own_files(folder: str) -> dict[str, str]:
  names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
  found: dict[str, str] = {}
  for name in names:
    split, _, rest = name.partition('.')
    if split in _SPLITS and f'.{rest}'.startswith(_EXTENSIONS):
      if split in found:
        raise errors.UserError(
          f'data.input={folder} has {os.path.basename(found[split])} and {name}; '
          'name the files: train=FILE,dev=FILE,test=FILE.'
        )
      found[split] = os.path.join(folder, name)
  return {split: found[split] for split in _SPLITS if split in found}
