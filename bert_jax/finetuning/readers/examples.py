"""Reads labelled texts from tables: GLUE's files or the user's.

Also texts with several labels each, or none. A column has lists: JSON's or, in CSV
and TSV, as Python writes them, or names between commas, semicolons or bars; [] is no
label, an empty field an unknown one. Or each label has a column, with 1 where it is
true, 0 where not. Lists of 0 and 1 are read like such columns, whose names are
numbers, from 0.
"""

import ast
import collections
import dataclasses
import functools
import math
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.finetuning.readers import glue, splits, table_files

# What pandas reads as missing, and what R, databases and spreadsheets write.
_MISSING = {
  *('', 'nan', 'NaN', '-nan', '-NaN', 'null', 'NULL', 'None', r'\N'),
  *('NA', 'N/A', 'n/a', '<NA>', '#N/A', '#NA', 'Null', 'NAN', 'NaT'),
}
_MARKS, _OPEN = re.compile('[,;|]'), ('[', '{')
_FLAGS = {'0': 0, '0.0': 0, 'false': 0, '1': 1, '1.0': 1, 'true': 1}
_UNKNOWN = {'', '-1', '-1.0', 'none', 'nan'}  # -1: Jigsaw's, of rows not scored


class Example(NamedTuple):
  """A row of a table."""

  line: int
  text: str
  pair: str | tuple[str, ...] | None  # the second text, or several, if any
  label: str | tuple[str, ...]  # of `read_label`; several in `LabelLists`
  id: str


@dataclasses.dataclass(frozen=True)
class Examples(splits.Content):
  """The rows of a split, in order."""

  ragged: Sequence[int] = ()  # lines that were left out: too few columns
  marked: Sequence[int] = ()  # and those with a `find_mark`
  table: table_files.Table | None = None  # of a file to predict for
  kept: Sequence[dict] | None = None  # its columns to copy into predictions

  @property
  def texts(self) -> list[str]:
    return [x.text for x in self.units]

  @property
  def pairs(self) -> list | None:
    """Returns the second texts, or tuples of them; None for single texts."""
    single = self.units[0].pair is None
    return None if single else [x.pair for x in self.units]

  def list_labels(self, source):
    if source.regression:
      return [_number(self.path, x) for x in self.units]
    return [x.label for x in self.units]

  def list_keys(self):
    return [(x.line, (x.text, x.pair)) for x in self.units]

  def list_empty(self) -> list[int]:
    return [
      x.line for x in self.units if not (x.text + ''.join(x.pair or '')).strip()
    ]


@dataclasses.dataclass(frozen=True)
class LabelLists(Examples):
  """The rows of a split; a label is a tuple of names, '' if it is unknown."""

  def list_labels(self, source):
    """Returns each row's rarest label; its number if it is a label's first.

    Such a row is not held out, so that each label is learnt.
    """
    counts = collections.Counter(y for x in self.units for y in x.label)
    seen: set[str] = set()
    groups = []
    for i, x in enumerate(self.units):
      rarest = min(x.label, key=counts.__getitem__, default='')
      groups.append(rarest if seen.issuperset(x.label) else f'\t{i}')
      seen.update(x.label)
    return groups

  def flatten(self) -> Examples:
    units = [x._replace(label=y) for x in self.units for y in x.label]
    return Examples(self.path, units)


def read_glue(name: str, split: str, path: str) -> Examples:
  known = glue.TASKS[name]
  columns = splits.Columns(known.text, known.pair, label=known.label)
  if split in ('train', 'dev', 'dev_mismatched'):
    table = table_files.read(path, known.headless, ragged=True)
    return choose_columns(table, columns)
  table = table_files.read(path, ragged=True)
  rows = choose_columns(table, columns._replace(label=''), False)
  name = next((x for x in ('index', 'id') if x in table.names), None)
  if not name:
    return rows
  ids = [str(row.get(name)).strip() for _, row in table.rows]
  units = [x._replace(id=y) for x, y in zip(rows.units, ids, strict=True)]
  return dataclasses.replace(rows, units=units)


def choose_columns(
  table: table_files.Table,
  columns: splits.Columns,
  labelled: bool | None = True,
  asked: splits.Columns = splits.FIELDS,
) -> Examples:
  """Returns the examples in columns of a table, see `Supervised.read`."""
  text, pair, _, label = columns
  wanted = {asked.text: text, asked.pair: pair}
  if labelled:
    wanted[asked.label] = label
  for field, name in wanted.items():
    if name not in table.names if name else field == asked.text:
      _join_columns(table, name, field)
  units = [
    Example(
      line,
      get_text(table, line, row, text),
      get_text(table, line, row, pair) if pair else None,
      read_label(table.path, line, row.get(label) if label else None),
      str(i),
    )
    for i, (line, row) in enumerate(table.rows)
  ]
  mark, given = find_mark({x.label for x in units}), asked is not splits.FIELDS
  marked = [x.line for x in units if x.label == mark]
  if given or len(marked) == len(units):  # all rows are wanted
    units = [x._replace(label='') if x.label == mark else x for x in units]
    marked = []
  units = [x for x in units if x.label != mark]
  if labelled:
    _check_labelled(table.path, units)
  more = {'ragged': table.ragged, 'table': table if given else None}
  return Examples(table.path, units, marked=marked, **more)


def _check_labelled(path, units):
  if missing := [x.line for x in units if x.label == '']:
    count = errors.count(len(missing), 'row')
    raise errors.UserError(
      f'{path}: {count} without a label, the first in line {missing[0]}; give '
      'each one, or leave those rows out. NA, None, nan, - and their like are no '
      'labels; give a class of that name another.'
    )


def read_lists(
  table: table_files.Table,
  columns: splits.Columns,
  labelled: bool | None,
  asked: splits.Columns,
) -> LabelLists:
  """Returns the rows of a table with several labels each."""
  rows = choose_columns(table, columns._replace(label=''), False, asked)
  names, lists = columns.label.split(','), [''] * len(table.rows)
  missing = [x for x in names if x not in table.names]
  if columns.label in table.names:
    lists = _read_lists(table, columns.label)
  elif not missing:
    lists = [_read_flags(table.path, *x, names) for x in table.rows]
  elif labelled:
    problem = f'has no column {missing[0]!r}'
    refuse_columns(table, problem, asked.label)
  units = [x._replace(label=y) for x, y in zip(rows.units, lists, strict=True)]
  if labelled:
    _check_labelled(table.path, units)
  ragged, kept = table.ragged, rows.table
  return LabelLists(table.path, units, ragged=ragged, table=kept)


def _read_flags(path, line, row, names) -> tuple[str, ...] | str:
  flags = {x: str(row.get(x)).strip().lower() for x in names}
  if _UNKNOWN.issuperset(flags.values()):
    return ''
  for name, x in flags.items():
    if x not in _FLAGS:
      problem = f'has in {name!r} {x!r}, not 0 or 1; correct that line.'
      raise errors.at_line(path, line, problem)
  return tuple(name for name, x in flags.items() if _FLAGS[x])


def _read_lists(table, name) -> list[tuple[str, ...] | str]:
  values = [(line, row.get(name)) for line, row in table.rows]
  texts = [x for _, x in values if isinstance(x, str) and x[:1] not in _OPEN]
  marks = sorted({mark for x in texts for mark in _MARKS.findall(x)})
  if len(marks) > 1:
    raise errors.UserError(
      f'{table.path} has {" and ".join(map(repr, marks))} in {name!r}; separate '
      'all labels by one of these, or give lists, such as ["a", "b"].'
    )
  if marks:
    print(f'{table.path}: {name!r} has labels separated by {marks[0]!r}')
  lists = [_read_list(table.path, *x) for x in values]
  numbers = {y for x in lists for y in x} <= {0, 1}
  if numbers and any(len(set(x)) < len(x) for x in lists):
    lists = [x and [i for i, y in enumerate(x) if y] for x in lists]
  return [
    x if x == '' else tuple(dict.fromkeys(_read_names(table.path, line, x)))
    for (line, _), x in zip(values, lists, strict=True)
  ]


def _read_list(path, line, value) -> Any:
  """Returns a list of names or numbers; '' if it is unknown."""
  if isinstance(value, str) and value[:1] in _OPEN:
    try:
      value = ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
      pass  # refused below
  elif not isinstance(value, list | dict):
    given = _MARKS.split(value) if isinstance(value, str) else [value]
    return _read_names(path, line, given) or ''
  known = isinstance(value, list)
  if not known or not all(isinstance(x, str | int | float) for x in value):
    problem = f'has the labels {value!r}, not a list of names'
    raise errors.at_line(path, line, f'{problem}; correct that line.')
  return value


def _read_names(path, line, values) -> list[str]:
  names = (read_label(path, line, x) for x in values)
  return [x for x in names if x]


def read_label(path: str, line: int, value: Any) -> str:
  """Returns a label as a text, the same for equal ones; '' if it is missing."""
  label = _name('' if value is None else str(value))
  if label is None:
    problem = f'has the label {str(value)[:60]!r}, a list or an object'
    advice = 'give one, or set finetuning.multi_label=True to learn several.'
    raise errors.at_line(path, line, f'{problem}; {advice}')
  return label


@functools.lru_cache
def _name(text: str) -> str | None:
  text = text.strip()
  if text in _MISSING:
    return ''
  if text[0] + text[-1] in ('[]', '{}'):
    return None
  if text in ('True', 'False', 'TRUE', 'FALSE'):  # true and false in JSON
    return text.lower()
  whole = re.fullmatch(r'(-?[0-9]+)\.0+', text)
  return whole[1] if whole else unicodedata.normalize('NFC', text)


def find_mark(labels: Collection[str]) -> str | None:
  """Returns which label of a file says that a row has none, if one does.

  In SNLI it is '-'; on Hugging Face's hub, -1 beside 0, 1, 2 and so on, or alone.
  """
  if '-' in labels:
    return None if '+' in labels else '-'
  others = set(labels) - {'-1'}
  numbered = others == set(map(str, range(len(others))))
  two = len(others) in (1, 2)  # -1 may be the third
  return '-1' if '-1' in labels and numbered and not two else None


def _join_columns(table: table_files.Table, name: str, field: str):
  """Makes a column of several, as of 'title + body'."""
  parts = [x.strip() for x in name.split('+')]
  for part in parts:
    if part not in table.names or not part:
      refuse_columns(table, f'has no column {part!r}', field)
  for line, row in table.rows:
    row[name] = ' '.join(get_text(table, line, row, x) for x in parts)


def refuse_columns(table: table_files.Table, problem: str, field: str):
  raise errors.UserError(
    f'{table.path} {problem}; it has {table_files.describe_names(table.names)}; '
    f'name one of these by {field}=, if line 1 of the file names its columns, and '
    'its separator is that of its kind: the comma of .csv, the tab of others.'
  )


def get_text(table: table_files.Table, line: int, row: dict, name: str) -> str:
  """Returns the text in a column, '' for JSON's null."""
  value = row.get(name, ...)
  value = '' if value is None else value
  if not isinstance(value, str):
    got = 'nothing' if value is ... else f'a {type(value).__name__}'
    problem = f'has in {name!r} {got}, not a text; correct that line.'
    raise errors.at_line(table.path, line, problem)
  return value


def list_classes(rows: Examples) -> tuple[str, ...]:
  """Returns the labels of rows, sorted; whole numbers by value."""
  for x in rows.units:
    if not table_files.fits_tsv(x.label):
      problem = f'has the label {x.label!r}; give one without tab or line feed.'
      raise errors.at_line(rows.path, x.line, problem)
  names = sorted({x.label for x in rows.units})
  try:
    return tuple(sorted(names, key=int))
  except ValueError:
    return tuple(names)


def number_labels(rows: Examples, labels: Sequence[str]) -> np.ndarray:
  """Returns the rows' classes as int32 [N]; as float32 if `labels` is empty."""
  if not labels:
    return np.array([_number(rows.path, x) for x in rows.units], np.float32)
  index = {label: i for i, label in enumerate(labels)}
  if unknown := [x for x in rows.units if x.label not in index]:
    first, count = unknown[0], errors.count(len(unknown), 'such row')
    problem = f'has the label {first.label!r}, which is not learnt ({count})'
    advice = f'known are {errors.listing(labels)}. Correct it, or train on it.'
    raise errors.at_line(rows.path, first.line, f'{problem}; {advice}')
  return np.array([index[x.label] for x in rows.units], np.int32)


def _number(path: str, row: Example) -> float:
  try:
    value = float(row.label)
  except ValueError:
    value = math.nan
  if not math.isfinite(value):
    problem = f'has the label {row.label!r}, which is not a number'
    advice = 'finetuning.regression needs one in each row.'
    raise errors.at_line(path, row.line, f'{problem}; {advice}')
  return value
