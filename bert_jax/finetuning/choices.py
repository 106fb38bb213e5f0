"""The task of choosing one of several texts (arXiv 1810.04805, section 4.4).

Choice i of a row is encoded as a pair of the row's text and `pair choice`, where
`pair` is what all of its choices begin with, if anything. The model gives each
choice a number: the product of one vector with C, the final vector of [CLS]. The
choices' softmax is over these.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import encode, row_task, supervised, task_data
from bert_jax.finetuning.readers import data_files, examples, table_files
from bert_jax.model import losses
from bert_jax.parallel import row_keys
from bert_jax.tokenization import tokenizer as tokenizer_lib

INPUTS = 'input_ids', 'input_mask', 'segment_ids'
_USUAL = 4  # choices of a row in SWAG


class ChoiceRows(NamedTuple):
  """R rows of N choices.

  Attributes:
    encoded: the pairs, N for each row, one after the other, R N.
    labels: which choice is right, from 0, int32 [R]; None if unknown.
    choices: N.
  """

  encoded: encode.Encoded
  labels: np.ndarray | None
  choices: int

  @property
  def size(self) -> int:
    """Returns the number of rows."""
    return len(self.encoded.ends) // self.choices

  @property
  def ids(self) -> range:
    """Returns the numbers of the rows."""
    return range(self.size)

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of the longest choice of each row, int [R]."""
    return self.encoded.lengths.reshape(-1, self.choices).max(1)


class Choices(row_task.RowTask):
  """One of several choices, as many in each row; `labels` are ()."""

  name = 'choice'
  card = supervised.Card('multiple-choice', 'MultipleChoice')
  doing = 'choosing'
  cut = 'choice'

  # From files to rows.

  def read(self, config, tokenizer):
    """Reads and encodes tables; rows of all files have equally many choices."""
    where, splits, facts = data_files.get_source(config), {}, {}
    columns = where.text, where.pair, where.choices

    def read(split, path):
      table = table_files.read(path)
      return read_table(table, columns, where.label, split != 'test')

    for name, rows in examples.read_splits(where, read).items():
      labelled = rows.labels is not None and all(rows.labels)
      split = encode_rows(tokenizer, rows, max(config.phases.seq_length))
      if labelled:
        split = split._replace(labels=number_labels(rows, split.choices))
      splits[name] = split
      facts[name] = task_data.list_row_facts(rows, split.encoded)
      facts[name]['choices'] = split.choices
    counts = {name: x.choices for name, x in splits.items()}
    if len(set(counts.values())) > 1:
      said = ', '.join(f'{name} has {n}' for name, n in counts.items())
      raise errors.UserError(
        f'rows must have equally many choices, but of {said}; fill them up.'
      )
    choices = counts['train']
    return task_data.combine(splits, (), tokenizer, facts, choices=choices)

  def pack(self, split):
    arrays = encode.pack(split.encoded)
    return arrays if split.labels is None else arrays | {'labels': split.labels}

  def unpack(self, arrays, facts):
    encoded = encode.unpack(arrays, facts['truncated'])
    return ChoiceRows(encoded, arrays.get('labels'), facts['choices'])

  def describe_data(self, manifest):
    lines = []
    for name, x in manifest['splits'].items():
      cut = f', {x["truncated"]:,} choices truncated' if x['truncated'] else ''
      lines.append(
        f'{name}: {errors.count(x["rows"], "row")} of {x["choices"]} choices, '
        f'longest {x["longest"]} tokens{cut} ({x.get("origin", x["path"])})'
      )
      # Data made before they were counted lack them.
      if empty := x.get('empty_lines'):
        lines.append(
          f'WARNING: {errors.count(len(empty), "row")} of {x["path"]} without '
          f'text, kept; the first in line {empty[0]}'
        )
    return lines

  def list_columns(self, config):
    """Returns the columns of the text, of the choices' beginning and of them."""
    return config.data.text, config.data.pair, config.data.choices

  # From rows to a loss.

  def make_batch(self, data, split, rows, length):
    """Returns ids, masks and segments of all choices, [b, N, S], and labels."""
    labels = np.zeros(len(rows), np.int32)
    if split.labels is not None:
      labels = split.labels[rows]
    pairs = rows[:, None] * split.choices + np.arange(split.choices)  # [b, N]
    batch = encode.make_batch(split.encoded, pairs.ravel(), length, data.pad_id)
    shape = *pairs.shape, length
    return {name: x.reshape(shape) for name, x in batch.items()} | {
      'labels': labels,
      'label_weights': np.ones(len(rows), np.float32),
    }

  def list_shapes(self, config, module, phase, rows):
    shape = rows, _count(config), phase.seq_length  # [B, N, S]
    return {
      **dict.fromkeys(INPUTS, jax.ShapeDtypeStruct(shape, jnp.int32)),
      'labels': jax.ShapeDtypeStruct((rows,), jnp.int32),
      'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
    }

  def compute_sums(self, module, params, batch, key):
    """Returns the sums, and {'logits': [B, N]}."""
    rows, choices, length = batch['input_ids'].shape
    pairs = {name: batch[name].reshape(-1, length) for name in INPUTS}
    if key is not None:
      key = row_keys.for_parts(key, choices)
    logits = supervised.apply(module, params, pairs, key)  # [B N, 1]
    logits = logits.reshape(rows, choices)
    loss, hits = losses.sum_tokens(
      logits, batch['labels'], batch['label_weights']
    )
    return {'cross_entropy': loss, 'accuracy': hits}, {'logits': logits}

  def expect_loss(self, config, module):
    return math.log(_count(config))

  def describe_batch(self, batch):
    tokens = batch['input_mask'].sum()
    rows, choices, _ = batch['input_ids'].shape
    return [
      f'first batch: {rows} rows of {choices} choices of '
      f'{tokens / rows / choices:.1f} tokens, '
      f'{1 - tokens / batch["input_mask"].size:.1%} padding'
    ]

  # From predictions to scores.

  def list_metrics(self, labels, glue=''):
    """Returns the accuracy alone: choices have no classes."""
    return ('accuracy',)

  def describe_prediction(self, config, labels):
    return 'which of several texts goes best with another'

  # Predictions for a user's file.

  def read_given(self, job):
    """Reads the rows of a table, by the columns of training unless named."""
    head = job.model.head
    trained = head.columns if len(head.columns) == 3 else (None, '', None)
    names = [
      default if name is None else name
      for name, default in zip(job.columns, trained, strict=True)
    ]
    if None in names:
      raise errors.UserError(
        'the model does not say which columns hold texts and choices; give '
        '--text=COLUMN and --choices=COLUMN, and --pair=COLUMN if need be.'
      )
    table, kept = row_task.read_table(job)
    rows = read_table(
      *(table, names, job.label, bool(job.label), row_task.ASKED)
    )
    split = encode_rows(job.model.tokenizer, rows, head.max_length)
    if row_task.check_labelled(job, rows):
      split = split._replace(labels=number_labels(rows, split.choices))
    return supervised.Given(split, kept)


TASK = Choices()


def _count(config) -> int:
  """Returns the choices of a row; where no data is read, as many as usual."""
  return config.finetuning.num_choices or _USUAL


def encode_rows(
  tokenizer: tokenizer_lib.Tokenizer, rows: examples.Examples, max_length: int
) -> ChoiceRows:
  """Returns rows from `read_table`, encoded, without labels."""
  texts = encode.tokenize(tokenizer, rows.texts)
  repeated = [ids for ids, x in zip(texts, rows.pairs, strict=True) for _ in x]
  choices = encode.tokenize(tokenizer, [y for x in rows.pairs for y in x])
  encoded = encode.join(tokenizer, repeated, choices, max_length)
  return ChoiceRows(encoded, None, len(rows.pairs[0]))


def read_table(
  table: table_files.Table,
  columns: Sequence[str],
  label: str = '',
  needs_label: bool = False,
  asked: Sequence[str] = examples.FIELDS,
) -> examples.Examples:
  """Returns the rows of a table; `pairs` are tuples of choices, of one length.

  Args:
    table: a CSV, TSV or JSONL file.
    columns: of the text, of what the choices begin with ('' if of nothing) and
      of the choices.
    needs_label: whether a file without that column is an error.
    asked: what the user names them by, such as `examples.FIELDS`.

  Raises:
    errors.UserError: if a column is missing, or a row is malformed.
  """
  text, pair, choice = columns
  rows = examples.choose_columns(table, text, pair, label, needs_label, asked)
  begins = rows.pairs or [''] * len(rows.texts)
  choices = _read_choices(table, choice, asked[2])
  return rows._replace(
    pairs=[
      tuple(f'{begin} {x}' for x in each)
      for begin, each in zip(begins, choices, strict=True)
    ]
  )


def _read_choices(table, name, asked) -> list[tuple[str, ...]]:
  if name and name in table.names:
    found = [
      _read_list(table, line, row[name], name) for line, row in table.rows
    ]
  else:
    numbered = [f'{name}{i}' for i in range(len(table.names))]
    columns = [x for x in numbered if x in table.names]
    if not name or columns != numbered[: max(len(columns), 2)]:
      raise errors.UserError(
        f'{table.path} has neither a column {name!r} with lists nor {name}0 and '
        f'{name}1; it has {table_files.describe_names(table.path, table.names)}; '
        f'name one of these by {asked}=, if line 1 of the file names its columns.'
      )
    found = [
      tuple(examples.get_text(table, line, row, x) for x in columns)
      for line, row in table.rows
    ]
  first, count = table.rows[0][0], len(found[0])
  for (line, _), each in zip(table.rows, found, strict=True):
    if len(each) != count:
      raise errors.at_line(
        table.path,
        line,
        f'has {len(each)} choices, line {first} has {count}; all rows need '
        'equally many.',
      )
  return found


def _read_list(table, line, value, name) -> tuple[str, ...]:
  texts = isinstance(value, list) and all(isinstance(x, str) for x in value)
  if not texts or len(value) < 2:
    raise errors.at_line(
      table.path,
      line,
      f'has in {name!r} what is not a list of two or more texts; correct that '
      'line.',
    )
  return tuple(value)


def number_labels(rows: examples.Examples, choices: int) -> np.ndarray:
  """Returns which choice of each row is right, int32 [R].

  Raises:
    errors.UserError: if a label is not the number of a choice.
  """
  known = [str(i) for i in range(choices)]
  for line, label in zip(rows.lines, rows.labels, strict=True):
    if label not in known:
      raise errors.at_line(
        rows.path,
        line,
        f'has the label {label!r}, which is not the number of a choice, from 0 '
        f'to {choices - 1}.',
      )
  return np.array([int(label) for label in rows.labels], np.int32)
