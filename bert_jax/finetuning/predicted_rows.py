"""Writes what is predicted for the rows of a table, as CSV, TSV or JSONL."""

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_jax import errors
from bert_jax.finetuning import predictions
from bert_jax.finetuning.readers import table_files
from bert_jax.runtime import files

_WRITTEN = 'prediction', 'probability', 'probabilities'
_FORMULAS = '=', '+', '-', '@', '\t', '\r'  # how those of spreadsheets begin


def list_likeliest(
  names: Iterable[str], likely: Iterable[float]
) -> Iterator[dict]:
  """Yields {column: value} of rows: the likeliest class and its probability."""
  for name, share in zip(names, likely, strict=True):
    yield {'prediction': name, 'probability': round_number(share)}


def list_probabilities(
  names: Sequence[str], logits: np.ndarray
) -> Iterator[dict]:
  """Yields {column: value} of rows, with the probabilities of all classes.

  Args:
    logits: float32 [N, C].
  """
  for row in logits:
    likely = predictions.to_probabilities(row)
    i = int(likely.argmax())
    yield {
      'prediction': names[i],
      'probability': round_number(likely[i]),
      'probabilities': dict(zip(names, map(round_number, likely), strict=True)),
    }


def list_numbers(values: Iterable[float]) -> Iterator[dict]:
  """Yields {column: value} of rows whose prediction is a number."""
  for value in values:
    yield {'prediction': round_number(value)}


def round_number(value: float) -> float:
  """Returns a number in 8 digits."""
  return float(table_files.format_number(value))


def _disarm(value) -> str:
  """Returns a value as a text that no spreadsheet takes for a formula."""
  is_formula = isinstance(value, str) and value.startswith(_FORMULAS)
  return f"'{value}" if is_formula else str(value)


def choose_kept(
  table: table_files.Table, keep: Sequence[str]
) -> Iterator[dict] | None:
  """Returns the columns of a table that are copied, {name: value} of each row.

  Args:
    keep: names of its columns; ('all',) is all; none returns None.

  Raises:
    errors.UserError: if there is no such column, or one is written anyway.
  """
  if not keep:
    return None
  names = table.names if tuple(keep) == ('all',) else keep
  for name in names:
    if name not in table.names or name in _WRITTEN:
      problem = (
        'is written' if name in _WRITTEN else 'is not a column of the input'
      )
      known = table_files.describe_names(table.path, table.names)
      raise errors.UserError(
        f'--keep: {name!r} {problem}; {table.path} has {known}.'
      )
  return ({name: row.get(name) for name in names} for _, row in table.rows)


def write(
  output: str,
  rows: Iterator[dict],
  kept: Iterator[dict] | None = None,
  safe_cells: bool = False,
):
  """Writes rows, {column: value}, to a file, atomically.

  Args:
    output: the file, whose extension says in which format.
    kept: further columns of each row, before these.
    safe_cells: whether a table is to be harmless in a spreadsheet, which would
      take texts such as =A1 for formulas.
  """
  if kept is not None:
    rows = (x | y for x, y in zip(kept, rows, strict=True))
  files.write_file(output, lambda new: _write(new, output, rows, safe_cells))


def _write(new, output, rows, safe_cells):
  """Writes rows to the file `new`, in the format of the name `output`."""
  if output.endswith('.jsonl'):
    with open(new, 'w', encoding='utf-8', newline='\n') as file:
      file.writelines(
        json.dumps(row, ensure_ascii=False) + '\n' for row in rows
      )
    return
  first = next(rows)
  names = [name for name in first if name != 'probabilities']
  to_text = _disarm if safe_cells else str
  fields = (
    ['' if row[name] is None else to_text(row[name]) for name in names]
    for row in itertools.chain([first], rows)
  )
  table = itertools.chain([names], fields)
  if output.endswith('.tsv'):
    table_files.write_tsv(new, table)
    return
  with open(new, 'w', encoding='utf-8', newline='') as file:
    csv.writer(file, lineterminator='\n').writerows(table)
