"""Reads the labelled texts of a fine-tuning run: GLUE's files or one's own."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.corpus import tfds_text
from bert_jax.finetuning.readers import (
  data_files,
  glue,
  sampling,
  table_files,
)

_IDS = ('index', 'id')  # columns that number the rows of GLUE's test files
# What names the columns of a text, of a second text, of choices and labels.
FIELDS = 'data.text', 'data.pair', 'data.choices', 'data.label'


class Examples(NamedTuple):
  """The rows of a split, in order.

  Attributes:
    path: the file.
    lines: their line numbers in it.
    texts: first texts.
    pairs: second texts, or tuples of them; None for single texts.
    labels: as written, '' where one is missing; None without such a column.
    ids: the rows' ids in a submission.
    ragged: numbers of lines that were left out, having too few columns.
    held_out: whether they are rows of the training file, for want of a dev file.
    repeated: numbers of the lines whose texts are also those of a training row.
  """

  path: str
  lines: list[int]
  texts: list[str]
  pairs: list[Any] | None
  labels: list[str] | None
  ids: list[str]
  ragged: Sequence[int] = ()
  held_out: bool = False
  repeated: Sequence[int] = ()

  @property
  def origin(self) -> str:
    """Returns where the rows are from, to print."""
    return f'held out of {self.path}' if self.held_out else self.path


def read_splits(
  source: data_files.Source, read: Callable[[str, str], Examples] | None = None
) -> dict[str, Examples]:
  """Reads the files of a source.

  Without a dev file, a share `data.heldout` of the training rows of each class
  becomes `dev`, the same for every seed. Of more rows than `data.max_documents`,
  a sample is taken.

  Args:
    read: (split, path) -> its rows; None reads texts and pairs.

  Raises:
    errors.UserError: if files, columns or labels are missing or malformed.
  """
  read = read or functools.partial(_read_own, source)
  if data_files.find_glue(source.glue):
    read = functools.partial(read_split, source.glue)
  found = {
    split: read(split, path)
    for split, path in data_files.find_files(source).items()
  }
  if 'dev' not in found:
    found['train'], found['dev'] = _hold_out(source, found['train'])
  if source.max_documents:
    found = {
      split: _take(
        rows, sampling.take_sample(range(len(rows.texts)), source.max_documents)
      )
      for split, rows in found.items()
    }
  for split, rows in found.items():
    if split == 'train' or split.startswith('dev'):
      check_labelled(split, rows)
  return {x: _mark_repeated(found['train'], found[x]) for x in found}


def _mark_repeated(train: Examples, rows: Examples) -> Examples:
  if rows is train:
    return rows
  ours, theirs = (
    zip(x.texts, x.pairs or x.texts, strict=True) for x in (train, rows)
  )
  repeated = sampling.find_repeated(ours, theirs)
  return rows._replace(repeated=[rows.lines[i] for i in repeated])


def read_split(glue_name: str, split: str, path: str) -> Examples:
  """Reads a file of a GLUE task, see `glue.TASKS`."""
  known = glue.TASKS[glue_name]
  test = split not in ('train', 'dev', 'dev_mismatched')
  if path.startswith(tfds_text.PREFIX):
    return _read_tfds(known, path, test)
  table = table_files.read(path, () if test else known.headless, ragged=True)
  label = '' if test else known.label
  rows = choose_columns(table, known.text, known.pair, label, not test)
  return rows._replace(ids=_read_ids(table)) if test else rows


def _read_tfds(known: glue.Glue, path: str, test: bool) -> Examples:
  """Reads a split of GLUE in TFDS, which names classes and columns otherwise."""
  table = table_files.read(path)
  text, pair = known.tfds or (known.text, known.pair)
  rows = choose_columns(table, text, pair, '' if test else 'label', not test)
  if known.labels and not test:
    theirs = tfds_text.open_split(path).dataset_info.features['label'].names
    ours = dict(zip(theirs, known.labels, strict=True))  # in the same order
    rows = rows._replace(labels=[ours.get(x, '') for x in rows.labels])
  return rows._replace(ids=[str(row['idx']) for _, row in table.rows])


def _read_own(source: data_files.Source, split: str, path: str) -> Examples:
  return choose_columns(
    table_files.read(path),
    source.text,
    source.pair,
    source.label,
    needs_label=split != 'test',
  )


def choose_columns(
  table: table_files.Table,
  text: str,
  pair: str,
  label: str,
  needs_label: bool = True,
  asked: Sequence[str] = FIELDS,
) -> Examples:
  """Returns the examples in the named columns of a table.

  Args:
    pair: column of the second text; '' if there is none.
    needs_label: whether a table without the column `label` is an error.
    asked: what the user names the columns by, such as `FIELDS`.

  Raises:
    errors.UserError: if a column is missing, or a value is not a text.
  """
  wanted = {asked[0]: text, asked[1]: pair}
  if needs_label:
    wanted[asked[3]] = label
  for field, name in wanted.items():
    if name not in table.names if name else field == asked[0]:
      raise errors.UserError(
        f'{table.path} has no column {name!r}; it has '
        f'{table_files.describe_names(table.path, table.names)}; name one of '
        f'these by {field}=, if line 1 of the file names its columns.'
      )

  def texts(name):
    return [get_text(table, line, row, name) for line, row in table.rows]

  labels = None
  if label and label in table.names:
    labels = [_label(row.get(label)) for _, row in table.rows]
  return Examples(
    path=table.path,
    lines=[line for line, _ in table.rows],
    texts=texts(text),
    pairs=texts(pair) if pair else None,
    labels=labels,
    ids=[str(i) for i in range(len(table.rows))],
    ragged=table.ragged,
  )


def get_text(table: table_files.Table, line: int, row: dict, name: str) -> str:
  """Returns the text in a column; raises errors.UserError if it is none."""
  value = row.get(name)
  if not isinstance(value, str):
    got = 'nothing' if value is None else f'a {type(value).__name__}'
    raise errors.at_line(
      table.path, line, f'has in {name!r} {got}, not a text; correct that line.'
    )
  return value


def _label(value) -> str:
  """Returns a label as text; JSON's true is 'true', null is missing."""
  if value is None:
    return ''
  if isinstance(value, bool):
    return str(value).lower()
  return str(value).strip()


def _read_ids(table) -> list[str]:
  name = next((name for name in _IDS if name in table.names), None)
  if name is None:
    return [str(i) for i in range(len(table.rows))]
  lines: dict[str, int] = {}
  for line, row in table.rows:
    first = lines.setdefault(row[name], line)
    if first != line:
      raise errors.UserError(
        f'{table.path}: lines {first} and {line} have the same {name} '
        f'{row[name]!r}; each row needs its own.'
      )
  return list(lines)


def _hold_out(source, rows: Examples) -> tuple[Examples, Examples]:
  """Splits training rows; the share of each class is held out."""
  labels = rows.labels
  if source.regression and all(labels):
    labels = [_number(rows, i) for i in range(len(labels))]
  number = np.arange(len(rows.texts))
  held_out = sampling.hold_out(rows.path, source.heldout, number, labels)
  train, dev = (_take(rows, np.flatnonzero(x)) for x in (~held_out, held_out))
  return train, dev._replace(held_out=True)


def _take(rows: Examples, chosen) -> Examples:
  def take(values):
    return None if values is None else [values[i] for i in chosen]

  return rows._replace(
    lines=take(rows.lines),
    texts=take(rows.texts),
    pairs=take(rows.pairs),
    labels=take(rows.labels),
    ids=take(rows.ids),
  )


def check_labelled(split: str, rows: Examples):
  """Raises errors.UserError if a row has no label."""
  missing = [n for n, x in zip(rows.lines, rows.labels, strict=True) if not x]
  if missing:
    count = errors.count(len(missing), 'row')
    raise errors.UserError(
      f'{rows.path}: {count} of {split} without a label, the first in line '
      f'{missing[0]}; give each one, or leave those rows out.'
    )


def list_empty(rows: Examples) -> list[int]:
  """Returns the line numbers of rows without any text."""
  pairs = rows.pairs or [''] * len(rows.texts)
  return [
    line
    for line, text, pair in zip(rows.lines, rows.texts, pairs, strict=True)
    if not (text + ''.join(pair)).strip()
  ]


def list_labels(rows: Examples) -> tuple[str, ...]:
  """Returns the labels of rows, each once, sorted; whole numbers by value.

  Raises:
    errors.UserError: if a label cannot be written to a TSV file.
  """
  for line, label in zip(rows.lines, rows.labels, strict=True):
    if not table_files.fits_tsv(label):
      raise errors.at_line(
        rows.path,
        line,
        f'has the label {label!r}; give it a name without a tab or line feed.',
      )
  found = sorted(set(rows.labels))
  try:
    return tuple(sorted(found, key=int))
  except ValueError:
    return tuple(found)


def number_labels(rows: Examples, labels: Sequence[str]) -> np.ndarray:
  """Returns the rows' classes as int32 [N]; as float32 if `labels` is empty.

  Raises:
    errors.UserError: if a label is none of `labels`, or is not a number.
  """
  if not labels:
    return np.array([_number(rows, i) for i in range(len(rows.labels))], 'f4')
  index = {label: i for i, label in enumerate(labels)}
  unknown = [i for i, x in enumerate(rows.labels) if x not in index]
  if unknown:
    first = unknown[0]
    raise errors.at_line(
      rows.path,
      rows.lines[first],
      f'has the label {rows.labels[first]!r}, which no training row has '
      f'({errors.count(len(unknown), "such row")}); known are '
      f'{errors.listing(list(labels))}. Correct the label, or train on it, too.',
    )
  return np.array([index[label] for label in rows.labels], 'i4')


def _number(rows, i) -> float:
  try:
    value = float(rows.labels[i])
  except ValueError:
    value = math.nan
  if not math.isfinite(value):
    raise errors.at_line(
      rows.path,
      rows.lines[i],
      f'has the label {rows.labels[i]!r}, which is not a number; '
      'finetuning.regression needs one in each row.',
    )
  return value
