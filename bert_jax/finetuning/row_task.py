"""The base of tasks with one class, number or choice per row of a table."""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import errors
from bert_jax.finetuning import encode, metrics, supervised
from bert_jax.finetuning.readers import examples, splits, table_files
from bert_jax.runtime import files

# The flags that name the columns.
ASKED = splits.Columns('--text', '--pair', '--choices', '--label')
_WRITTEN = 'prediction', 'probability', 'probabilities'
_OF_LABEL = 'probability_'  # begins the names of columns, one for each label


class RowTask(supervised.Supervised):
  """A task whose rows have one label each, [N].

  Predictions are `chosen`, [N], and, except for numbers, `probability`, [N];
  for a user's JSONL file, also all `logits`, [N, C].
  """

  constant = (
    'the commonest class of training, or of the split if better; of numbers, the '
    'mean of training'
  )
  takes_keep = True
  cut = 'row'  # with which truncated rows are counted
  needed: tuple[str, ...] = ('text',)  # columns

  def read_file(self, source, split, path):
    table, labelled = table_files.read(path), split != 'test'
    return self.read_table(table, source.columns, labelled, examples.FIELDS)

  def read_table(self, table, columns, needs_label, asked):
    """Returns the rows of a table, see `examples.choose_columns`."""
    return examples.choose_columns(table, columns, needs_label, asked)

  def list_labels(self, source, contents):
    """Returns (); checks that the rows of training and dev have labels."""
    for split, rows in contents.items():
      if split.startswith(('train', 'dev')):
        rows.check_labelled(split)
    return ()

  def list_columns(self, source):
    known = splits.find_glue(source.glue) or source.columns
    return tuple(x for x in (known.text, known.pair) if x)

  def compare(self, names, labels, split, predicted, train=None):
    truth, chosen = split.labels, predicted['chosen']
    if train is None:
      return {'metrics': metrics.score(names, truth, chosen)}
    scored = metrics.compare(names, truth, chosen, train.labels)
    if not labels:
      return scored
    return scored | metrics.describe_classes(labels, truth, chosen)

  def write_split(self, folder, name, labels, split, predicted):
    """Writes SPLIT.tsv: id, label if known, prediction and probabilities."""
    known = [{'id': x} for x in split.list_ids()]
    if split.labels is not None:
      truth = (_name(labels, x) for x in split.labels)
      known = [x | {'label': y} for x, y in zip(known, truth, strict=True)]
    path = os.path.join(folder, f'{name}.tsv')
    write(path, list_rows(labels, predicted), known)

  def read_given(self, job):
    """Reads a table by the training data's columns, unless others are named."""
    trained = job.model.head.columns
    trained = (*trained, '', '') if trained else (None, '', None)
    both = zip(job.columns, trained, strict=False)
    columns = splits.Columns(*(y if x is None else x for x, y in both))
    columns = columns._replace(label=job.label)
    if None in (getattr(columns, x) for x in self.needed):
      asked = ' and '.join(f'--{x}=COLUMN' for x in self.needed)
      raise errors.UserError(
        f'the model does not say which columns hold what it reads; give {asked} '
        'and, if need be, --pair=COLUMN.'
      )
    table = table_files.read(job.given)
    kept = choose_kept(table, job.keep, job.output)
    rows = self.read_table(table, columns, bool(job.label), ASKED)
    if job.label:
      rows.check_labelled('the file')
    return dataclasses.replace(rows, kept=kept)

  def write_given(self, job, content, split, predicted):
    """Writes a row for each row of the input, after the columns to keep."""
    rows = list_rows(job.model.head.labels, predicted)
    write(job.output, rows, content.kept)
    if count := split.encoded.truncated:
      length = job.model.head.max_length
      cut = errors.count(count, self.cut)
      print(f'truncated to {length} tokens: {cut}')
    if empty := content.list_empty():
      rows = errors.count(len(empty), 'row')
      print(f'without text: {rows}, the first in line {empty[0]}')


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


def list_rows(
  labels: Sequence[str], predicted: dict[str, Any]
) -> Iterator[dict[str, Any]]:
  """Yields {column: value} of each row's prediction, see `RowTask`.

  `labels` are () for numbers, and for choices, which are named by number.
  """
  likely = predicted.get('probabilities')
  if 'logits' in predicted:
    likely = encode.to_probabilities(predicted['logits'])
  for i, chosen in enumerate(predicted['chosen']):
    row = {'prediction': _name(labels, chosen)}
    if 'probability' in predicted:
      row['probability'] = _round(predicted['probability'][i])
    if likely is not None:
      names = labels or map(str, range(len(likely[i])))
      numbers = map(_round, likely[i])
      row['probabilities'] = dict(zip(names, numbers, strict=True))
    yield row


def _name(labels, chosen):
  """Returns the name of a class, those of a set [C] of labels, or a number."""
  if chosen.ndim:
    return [labels[i] for i in np.flatnonzero(chosen)]
  if np.issubdtype(chosen.dtype, np.floating):
    return _round(chosen)
  return labels[chosen] if labels else str(chosen)


def _round(value: float) -> float:
  return float(table_files.format_number(value))


def choose_kept(
  table: table_files.Table, keep: Sequence[str], output: str
) -> Iterator[dict] | None:
  """Returns the columns of a table to copy, {name: value} of each row.

  ('all',) is all of them; () gives None. What the file `output` cannot hold is
  refused here, since predicting may take hours.
  """
  if not keep:
    return None
  names = table.names if tuple(keep) == ('all',) else keep
  for name in names:
    written = name in _WRITTEN or name.startswith(_OF_LABEL)
    if name not in table.names or written:
      problem = 'is written' if written else 'is not a column of the input'
      known = table_files.describe_names(table.path, table.names)
      raise errors.UserError(
        f'--keep: {name!r} {problem}; {table.path} has {known}.'
      )
  rows = [{name: row.get(name) for name in names} for _, row in table.rows]
  if output.endswith('.tsv'):
    for (line, _), row in zip(table.rows, rows, strict=True):
      if not all(table_files.fits_tsv(str(x)) for x in row.values()):
        problem = 'has a tab or a line feed, which a TSV file cannot hold'
        advice = 'write a .csv or .jsonl file.'
        raise errors.at_line(table.path, line, f'{problem}; {advice}')
  return iter(rows)


def write(
  output: str, rows: Iterator[dict], kept: Iterator[dict] | None = None
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
