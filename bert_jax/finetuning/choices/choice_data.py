"""The data of a choice: rows of a text and the texts that may go with it.

Choice i of a row is encoded as a pair of the row's text and `pair choice`, where
`pair` is what all of its choices begin with, if anything.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import encode, task_data
from bert_jax.finetuning.readers import data_files, examples, table_files
from bert_jax.tokenization import tokenizer as tokenizer_lib


class Split(NamedTuple):
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


def make(
  config: config_dict.ConfigDict, tokenizer: tokenizer_lib.Tokenizer
) -> task_data.Data:
  """Reads and encodes the files of a config.

  Args:
    config: the experiment; phases.seq_length bounds the tokens of a pair.
    tokenizer: the model's tokenizer.

  Raises:
    errors.UserError: if files, columns or labels are missing or malformed, or
      rows differ in the number of their choices.
  """
  splits, facts = {}, {}
  for name, (rows, tokens) in _read(data_files.get_source(config), tokenizer):
    encoded = encode.join(tokenizer, *tokens, max(config.phases.seq_length))
    choices, labels = len(rows.pairs[0]), None
    if rows.labels is not None and all(rows.labels):
      labels = number_labels(rows, choices)
    splits[name] = Split(encoded, labels, choices)
    facts[name] = {
      'path': rows.path,
      'origin': rows.origin,
      'rows': len(rows.texts),
      'choices': choices,
      'longest': int(encoded.lengths.max()),
      'truncated': encoded.truncated,
      'empty_lines': examples.list_empty(rows),
      'repeated': task_data.describe_repeated(rows.path, rows.repeated),
    }
  counts = {name: x.choices for name, x in splits.items()}
  if len(set(counts.values())) > 1:
    said = ', '.join(f'{name} has {n}' for name, n in counts.items())
    raise errors.UserError(
      f'rows must have equally many choices, but of {said}; fill them up.'
    )
  return task_data.combine(
    splits, (), tokenizer, facts, choices=counts['train']
  )


# Kept, since completing the config and writing the data need the same tokens.
@functools.lru_cache(maxsize=1)
def _read(source, tokenizer):
  """Returns ((split, (rows, (ids of texts, ids of choices))), ...)."""
  found = []
  columns = source.text, source.pair, source.choices

  def read(split, path):
    return read_file(path, columns, source.label, split != 'test')

  for name, rows in examples.read_splits(source, read).items():
    found.append((name, (rows, tokenize(tokenizer, rows))))
  return tuple(found)


def tokenize(
  tokenizer: tokenizer_lib.Tokenizer, rows: examples.Examples
) -> tuple[list[list[int]], list[list[int]]]:
  """Returns the ids of the texts and choices of all pairs, R N each."""
  texts = encode.tokenize(tokenizer, rows.texts)
  repeated = [ids for ids, x in zip(texts, rows.pairs, strict=True) for _ in x]
  return repeated, encode.tokenize(
    tokenizer, [y for x in rows.pairs for y in x]
  )


def read_file(
  path: str,
  columns: tuple[str, str, str],
  label: str = '',
  needs_label: bool = False,
  asked: Sequence[str] = examples.FIELDS,
) -> examples.Examples:
  """Reads a file; its `pairs` are tuples of choices, of one length.

  Args:
    path: a CSV, TSV or JSONL file.
    columns: of the text, of what the choices begin with ('' if of nothing) and
      of the choices.
    label: column of the label; '' if there is none.
    needs_label: whether a file without that column is an error.
    asked: what the user names them by, such as `examples.FIELDS`.

  Raises:
    errors.UserError: if a column is missing, or a row is malformed.
  """
  table = table_files.read(path)
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
      raise errors.UserError(
        f'{table.path}: line {line} has {len(each)} choices, line {first} has '
        f'{count}; all rows need equally many.'
      )
  return found


def _read_list(table, line, value, name) -> tuple[str, ...]:
  texts = isinstance(value, list) and all(isinstance(x, str) for x in value)
  if not texts or len(value) < 2:
    raise errors.UserError(
      f'{table.path}: line {line}: {name!r} is no list of two or more texts; '
      'correct that line.'
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
      raise errors.UserError(
        f'{rows.path}: line {line} has the label {label!r}, which is no number '
        f'of a choice, from 0 to {choices - 1}.'
      )
  return np.array([int(label) for label in rows.labels], np.int32)


def describe(manifest: dict) -> list[str]:
  """Returns what the data are, as lines to print."""
  lines = []
  for name, x in manifest['splits'].items():
    cut = f', {x["truncated"]:,} choices truncated' if x['truncated'] else ''
    lines.append(
      f'{name}: {errors.count(x["rows"], "row")} of {x["choices"]} choices, longest '
      f'{x["longest"]} tokens{cut} ({x.get("origin", x["path"])})'
    )
    # Data made before they were counted lack them.
    if empty := x.get('empty_lines'):
      lines.append(
        f'WARNING: {errors.count(len(empty), "row")} of {x["path"]} without text, '
        f'kept; the first in line {empty[0]}'
      )
  return lines


def _pack(split: Split) -> dict[str, np.ndarray]:
  arrays = encode.pack(split.encoded)
  return arrays if split.labels is None else arrays | {'labels': split.labels}


def _unpack(arrays: dict[str, np.ndarray], facts: dict) -> Split:
  encoded = encode.unpack(arrays, facts['truncated'])
  return Split(encoded, arrays.get('labels'), facts['choices'])


FORMAT = task_data.Format(make, _pack, _unpack, describe, _read.cache_clear)
