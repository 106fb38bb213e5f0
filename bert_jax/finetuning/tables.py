"""Predictions for rows of tables: what is said of the rows, and what is written."""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import errors
from bert_jax.finetuning import encode
from bert_jax.finetuning.readers import examples, table_files
from bert_jax.runtime import files

_WRITTEN = 'prediction', 'probability', 'probabilities'
_OF_LABEL = 'probability_'  # begins the names of columns, one for each label


def list_facts(rows: examples.Examples) -> dict[str, Any]:
  """Returns facts about rows, see `Supervised.encode`."""
  missing = [x.line for x in rows.units if x.label == '']
  some = missing if len(missing) < len(rows.units) else []
  wrong = {
    'without text, but kept': rows.list_empty(),
    'with too few columns, left out': rows.ragged,
    'labelled - or -1, which is none, left out': rows.marked,
    'without a label, not scored': some,
  }
  return {'counts': [errors.count(len(rows.units), 'row')], 'warnings': wrong}


def describe_counts(labels: Sequence[str], counts: np.ndarray) -> str:
  shown = [f'{x} ({n:,})' for x, n in zip(labels, counts, strict=True)]
  return f'labels {errors.listing(shown, most=10)}'


def list_rows(
  labels: Sequence[str], predicted: dict[str, Any]
) -> Iterator[dict[str, Any]]:
  """Yields {column: value} of each row's prediction.

  `labels` are () for numbers, and for choices, which are named by number. Of
  `predicted`, `chosen`, [N], is needed.
  """
  likely = predicted.get('probabilities')
  if 'logits' in predicted:
    likely = encode.to_probabilities(predicted['logits'])
  for i, chosen in enumerate(predicted['chosen']):
    row = {'prediction': name(labels, chosen)}
    if 'probability' in predicted:
      row['probability'] = _round(predicted['probability'][i])
    if likely is not None:
      names = labels or map(str, range(len(likely[i])))
      numbers = map(_round, likely[i])
      row['probabilities'] = dict(zip(names, numbers, strict=True))
    yield row


def name(labels, chosen):
  """Returns the name of a class, those of a set [C] of labels, or a number."""
  if chosen.ndim:
    return [labels[i] for i in np.flatnonzero(chosen)]
  if np.issubdtype(chosen.dtype, np.floating):
    return _round(chosen)
  return labels[chosen] if labels else str(chosen)


def _round(value: float) -> float:
  return float(table_files.format_number(value))


def keep_columns(
  rows: examples.Examples, keep: Sequence[str], output: str
) -> examples.Examples:
  """Returns rows with columns to copy into predictions, and without their table.

  ('all',) is all columns. What the file `output` cannot hold is refused here, since
  predicting may take hours.
  """
  table = rows.table
  names = table.names if tuple(keep) == ('all',) else keep
  for name in names:
    written = name in _WRITTEN or name.startswith(_OF_LABEL)
    if name not in table.names or written:
      problem = 'is written' if written else 'is not a column of the input'
      known = table_files.describe_names(table.names)
      raise errors.UserError(
        f'--keep: {name!r} {problem}; {table.path} has {known}.'
      )
  kept = [{name: row.get(name) for name in names} for _, row in table.rows]
  if output.endswith('.tsv'):
    for (line, _), row in zip(table.rows, kept, strict=True):
      if not all(table_files.fits_tsv(str(x)) for x in row.values()):
        problem = 'has a tab or a line feed, which a TSV file cannot hold'
        advice = 'write a .csv or .jsonl file.'
        raise errors.at_line(table.path, line, f'{problem}; {advice}')
  return dataclasses.replace(rows, table=None, kept=kept if keep else None)


def write(
  output: str, rows: Iterator[dict], kept: Sequence[dict] | None = None
):
  """Writes rows, {column: value}, to a file, atomically; `kept` come before."""
  if kept is not None:
    rows = (x | y for x, y in zip(kept, rows, strict=True))
  files.write_file(output, lambda new: _write(new, output, rows))


def _write(new, output, rows):
  """Writes rows to the file `new`, in the format of the name `output`."""
  if output.endswith('.jsonl'):
    with table_files.open_new(new) as file:
      file.writelines(
        json.dumps(row, ensure_ascii=False) + '\n' for row in rows
      )
    return
  rows = map(_flatten, rows)
  first = next(rows)
  values = ([*x.values()] for x in itertools.chain([first], rows))
  table = itertools.chain([[*first]], values)
  table_files.write_table(new, table, os.path.splitext(output)[1])


def _flatten(row):
  """Returns a row of a table: lists as JSON, a column for each probability."""
  likely = row.pop('probabilities', {})
  row |= {_OF_LABEL + name: x for name, x in likely.items()}
  return {
    name: json.dumps(x, ensure_ascii=False) if isinstance(x, list) else x
    for name, x in row.items()
  }
