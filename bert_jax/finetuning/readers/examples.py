"""Reads the labelled texts of a fine-tuning run: GLUE's files or the user's."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.finetuning.readers import glue, labels, splits, table_files

FIELDS = splits.Columns('data.text', 'data.pair', 'data.choices', 'data.label')


class Example(NamedTuple):
  """A row of a table."""

  line: int
  text: str
  pair: str | tuple[str, ...] | None  # the second text, or several, if any
  label: str | tuple[str, ...]  # of `labels.read`; several in `label_lists`
  id: str


@dataclasses.dataclass(frozen=True)
class Examples(splits.Content):
  """The rows of a split, in order."""

  ragged: Sequence[int] = ()  # lines that were left out: too few columns
  marked: Sequence[int] = ()  # and those with a `labels.find_mark`
  # Columns of each row to copy into its predictions, {name: value}.
  kept: Iterable[dict] | None = None

  @property
  def texts(self) -> list[str]:
    return [x.text for x in self.units]

  @property
  def pairs(self) -> list | None:
    """Returns the second texts, or tuples of them; None for single texts."""
    single = self.units[0].pair is None
    return None if single else [x.pair for x in self.units]

  def list_labels(self, source):
    if source.regression and all(x.label for x in self.units):
      return [_number(self.path, x) for x in self.units]
    return [x.label for x in self.units]

  def list_keys(self):
    return [(x.line, (x.text, x.pair)) for x in self.units]

  def list_empty(self) -> list[int]:
    return [
      x.line for x in self.units if not (x.text + ''.join(x.pair or '')).strip()
    ]

  def check_labelled(self, split: str):
    if missing := [x.line for x in self.units if x.label == '']:
      count = errors.count(len(missing), 'row')
      raise errors.UserError(
        f'{self.path}: {count} of {split} without a label, the first in line '
        f'{missing[0]}; give each one, or leave those rows out. NA, None, nan, '
        '- and their like are no labels; give a class of that name another.'
      )


def read_glue(name: str, split: str, path: str) -> Examples:
  known = glue.TASKS[name]
  test = split not in ('train', 'dev', 'dev_mismatched')
  table = table_files.read(path, () if test else known.headless, ragged=True)
  label = '' if test else known.label
  columns = splits.Columns(known.text, known.pair, label=label)
  rows = choose_columns(table, columns, not test)
  if not test:
    return rows
  name = next((x for x in ('index', 'id') if x in table.names), None)
  ids = [x.id for x in rows.units]
  if name:
    ids = [str(row.get(name)).strip() for _, row in table.rows]
  units = [x._replace(id=y) for x, y in zip(rows.units, ids, strict=True)]
  return dataclasses.replace(rows, units=units)


def choose_columns(
  table: table_files.Table,
  columns: splits.Columns,
  needs_label: bool = True,
  asked: splits.Columns = FIELDS,
) -> Examples:
  """Returns the examples in the columns of a table, which `asked` has named.

  `needs_label` makes a table without a column of labels an error.
  """
  text, pair, _, label = columns
  wanted = {asked.text: text, asked.pair: pair}
  if needs_label:
    wanted[asked.label] = label
  for field, name in wanted.items():
    if name not in table.names if name else field == asked.text:
      _join_columns(table, name, field)
  units = [
    Example(
      line,
      get_text(table, line, row, text),
      get_text(table, line, row, pair) if pair else None,
      labels.read(table.path, line, row.get(label) if label else None),
      str(i),
    )
    for i, (line, row) in enumerate(table.rows)
  ]
  mark = labels.find_mark({x.label for x in units})
  marked = [x.line for x in units if x.label == mark]
  if asked is not FIELDS or len(marked) == len(units):  # all rows are wanted
    units = [x._replace(label='') if x.label == mark else x for x in units]
    marked = []
  units = [x for x in units if x.label != mark]
  return Examples(table.path, units, ragged=table.ragged, marked=marked)


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
    f'{table.path} {problem}; it has '
    f'{table_files.describe_names(table.path, table.names)}; name one of these '
    f'by {field}=, if line 1 of the file names its columns.'
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
