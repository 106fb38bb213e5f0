"""Reads tables whose texts have several labels each, or none.

A column has lists: JSON's or, in CSV and TSV, as Python writes them, or names
between commas, semicolons or bars; [] is no label, an empty field an unknown one.
Or each label has a column, with 1 where it is true, 0 where not. Lists of 0 and 1
are read like such columns, whose names are numbers, from 0.
"""

import ast
import collections
import dataclasses
import re
from typing import Any

from bert_jax import errors
from bert_jax.finetuning.readers import examples, labels, splits, table_files

_MARKS, _OPEN = re.compile('[,;|]'), ('[', '{')
_FLAGS = {'0': 0, '0.0': 0, 'false': 0, '1': 1, '1.0': 1, 'true': 1}
_UNKNOWN = {'', '-1', '-1.0', 'none', 'nan'}  # -1: Jigsaw's, of rows not scored


@dataclasses.dataclass(frozen=True)
class LabelLists(examples.Examples):
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

  def flatten(self) -> examples.Examples:
    units = [x._replace(label=y) for x in self.units for y in x.label]
    return examples.Examples(self.path, units)


def read(
  table: table_files.Table,
  columns: splits.Columns,
  needs_label: bool,
  asked: splits.Columns,
) -> LabelLists:
  """Returns the rows of a table, see `examples.choose_columns`."""
  rows = examples.choose_columns(
    table, columns._replace(label=''), False, asked
  )
  names, lists = columns.label.split(','), [''] * len(table.rows)
  missing = [x for x in names if x not in table.names]
  if columns.label in table.names:
    lists = _read_lists(table, columns.label)
  elif not missing:
    lists = [_read_flags(table.path, *x, names) for x in table.rows]
  elif needs_label:
    problem = f'has no column {missing[0]!r}'
    examples.refuse_columns(table, problem, asked.label)
  units = [x._replace(label=y) for x, y in zip(rows.units, lists, strict=True)]
  return LabelLists(table.path, units, ragged=table.ragged)


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
  names = (labels.read(path, line, x) for x in values)
  return [x for x in names if x]
