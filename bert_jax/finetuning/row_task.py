"""What tasks with one class, number or choice for each row of a table share."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from bert_jax import errors
from bert_jax.finetuning import (
  metrics,
  predicted_rows,
  predictions,
  supervised,
)
from bert_jax.finetuning.readers import examples, table_files

# The flags that name the columns of a text, of a second text, of choices and of
# labels.
ASKED = '--text', '--pair', '--choices', '--label'


class RowTask(supervised.Supervised):
  """A task whose rows have `labels`, [N] or None if unknown, and `ids`, [N].

  What is decided is `chosen`, [N], and `probability`, [N], unless it is of a
  number; for a JSONL file of a user, `chosen` and all `logits`, [N, C].

  Attributes:
    cut: what is counted of rows that are too long.
  """

  cut = 'row'

  def decide(self, split, kept, settings, tune):
    """Returns what was kept; of logits, also what is `chosen`."""
    if 'logits' in kept:
      logits = kept['logits']
      number = logits.shape[1] == 1
      kept = kept | {'chosen': logits[:, 0] if number else logits.argmax(-1)}
    return kept, settings

  def measure(self, names, labels, split, found):
    return metrics.score(names, split.labels, found['chosen'])

  def compare(self, names, labels, split, found, train):
    """Scores what is chosen; of classes also how well each is told apart."""
    truth, chosen = split.labels, found['chosen']
    scored = metrics.compare(names, truth, chosen, train.labels)
    if not labels:
      return scored
    return scored | metrics.describe_classes(labels, truth, chosen)

  def write_split(self, folder, name, labels, split, found):
    """Writes SPLIT.tsv: id, label if known, prediction and its probability."""
    columns = {'id': map(str, split.ids)}
    values_of = (('label', split.labels), ('prediction', found['chosen']))
    for column, values in values_of:
      if values is not None:
        columns[column] = (
          labels[x] if labels else table_files.format_number(x) for x in values
        )
    if 'probability' in found:
      likely = found['probability']
      columns['probability'] = map(table_files.format_number, likely)
    rows = [tuple(columns), *zip(*columns.values(), strict=True)]
    table_files.write_tsv(os.path.join(folder, f'{name}.tsv'), rows)

  def choose_keep(self, job):
    """Keeps all logits for JSONL, which has the probabilities of all classes."""
    if job.output.endswith('.jsonl'):
      return predictions.fill
    return predictions.keep_likeliest

  def write_given(self, job, given, found):
    """Writes a row for each row of the input, after the columns to keep."""
    rows = list_rows(job.model.head.labels, found)
    predicted_rows.write(job.output, rows, given.about, job.safe_cells)
    if count := given.rows.encoded.truncated:
      length = job.model.head.max_length
      cut = errors.count(count, self.cut)
      print(f'truncated to {length} tokens: {cut}')


def list_rows(
  labels: Sequence[str], found: dict[str, Any]
) -> Iterable[dict[str, Any]]:
  """Yields {column: value} of what was decided for each row, see `RowTask`.

  Args:
    labels: names of the classes; () for choices, which are named by number.
  """
  logits = found.get('logits')
  if logits is not None and logits.shape[1] > 1:
    names = labels or [str(i) for i in range(logits.shape[1])]
    return predicted_rows.list_probabilities(names, logits)
  if 'probability' in found:
    chosen, likely = found['chosen'], found['probability']
    names = (labels[i] if labels else str(i) for i in chosen)
    return predicted_rows.list_likeliest(names, likely)
  return predicted_rows.list_numbers(found['chosen'])


def read_table(job) -> tuple[table_files.Table, Any]:
  """Returns the table of a job, and its columns to keep in the output."""
  table = table_files.read(job.given)
  return table, predicted_rows.choose_kept(table, job.keep)


def check_labelled(job, rows: examples.Examples) -> bool:
  """Returns whether a job asks for scores; raises errors.UserError without labels."""
  if job.label:
    examples.check_labelled(job.given, rows)
  return bool(job.label)
