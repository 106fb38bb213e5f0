"""The data of a fine-tuning run: encoded once, in WORKDIR/data."""

import functools
from typing import NamedTuple

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import (
  encode,
  feature_files,
  feature_rows,
  gpt_form,
  task_data,
)
from bert_jax.finetuning.readers import data_files, examples
from bert_jax.tokenization import tokenizer as tokenizer_lib


class Split(NamedTuple):
  """The rows of a split.

  Attributes:
    encoded: their ids, or their features.
    labels: classes, int32 [N], or numbers, float32 [N]; None if unknown.
    ids: their ids in a submission.
  """

  encoded: encode.Encoded | feature_rows.FeatureRows
  labels: np.ndarray | None
  ids: np.ndarray

  @property
  def size(self) -> int:
    return len(self.encoded.ends)

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int [N]."""
    return self.encoded.lengths


def make(
  config: config_dict.ConfigDict, tokenizer: tokenizer_lib.Tokenizer
) -> task_data.Data:
  """Reads and encodes the files of a config.

  Args:
    config: the experiment; phases.seq_length bounds the tokens of a row.
    tokenizer: the model's tokenizer.

  Raises:
    errors.UserError: as `examples.read_splits` and `examples.number_labels`.
  """
  source = data_files.get_source(config)
  known = data_files.find_glue(source.glue)
  read = _read(source, tokenizer)
  labels = known.labels if known else ()
  if not known and not config.finetuning.regression:
    labels = examples.list_labels(dict(read)['train'][0])
    if len(labels) < 2:
      raise errors.UserError(
        f'{source.input} has only the label {labels[0]!r}; there is nothing to '
        'tell apart. For numbers set finetuning.regression=True.'
      )
  join = gpt_form.join if config.finetuning.form == 'gpt' else encode.join
  splits, facts = {}, {}
  for name, (rows, tokens) in read:
    encoded = join(tokenizer, *tokens, max(config.phases.seq_length))
    numbers = None
    if rows.labels is not None and all(rows.labels):
      numbers = examples.number_labels(rows, labels)
    splits[name] = Split(encoded, numbers, np.array(rows.ids))
    facts[name] = _describe(rows, splits[name], labels)
  return task_data.combine(splits, labels, tokenizer, facts)


# Kept, since completing the config and writing the data need the same tokens.
@functools.lru_cache(maxsize=1)
def _read(source, tokenizer):
  """Returns ((split, (examples, (ids of texts, ids of pairs or None))), ...)."""
  found = []
  for name, rows in examples.read_splits(source).items():
    texts = encode.tokenize(tokenizer, rows.texts)
    pairs = rows.pairs and encode.tokenize(tokenizer, rows.pairs)
    found.append((name, (rows, (texts, pairs))))
  return tuple(found)


def _describe(rows, split, labels) -> dict:
  """Returns the facts about a split, for the manifest."""
  facts = {
    'path': rows.path,
    'origin': rows.origin,
    'rows': split.size,
    'tokens': len(split.encoded.ids),
    'longest': int(split.encoded.lengths.max()),
    'truncated': split.encoded.truncated,
    'empty_lines': examples.list_empty(rows),
    'repeated': task_data.describe_repeated(rows.path, rows.repeated),
    'ragged_lines': list(rows.ragged),
    'pairs': rows.pairs is not None,
  }
  if split.labels is None:
    return facts
  if labels:
    counts = np.bincount(split.labels, minlength=len(labels)).tolist()
    return facts | {'labels': dict(zip(labels, counts, strict=True))}
  return facts | {
    'labels': {
      name: float(getattr(split.labels, name)()) for name in ('min', 'max')
    }
  }


def describe(manifest: dict) -> list[str]:
  """Returns what the data are, as lines to print."""
  lines = []
  for name, x in manifest['splits'].items():
    parts = [f'{name}: {errors.count(x["rows"], "row")}']
    if 'labels' in x and manifest['labels']:
      shown = [f'{label} ({n:,})' for label, n in x['labels'].items()]
      parts.append(f'labels {errors.listing(shown, most=10)}')
    elif 'labels' in x:
      parts.append('labels from {min:,} to {max:,}'.format(**x['labels']))
    parts.append(f'longest {x["longest"]} tokens')
    if x['truncated']:
      parts.append(f'{x["truncated"]:,} truncated')
    # Data made by an earlier version lack it.
    lines.append(', '.join(parts) + f' ({x.get("origin", x["path"])})')
    for what, numbers in (
      ('without text, kept as [CLS] [SEP]', x['empty_lines']),
      ('with too few columns, left out', x['ragged_lines']),
    ):
      if numbers:
        lines.append(
          f'WARNING: {errors.count(len(numbers), "row")} of {x["path"]} {what}; '
          f'the first in line {numbers[0]}'
        )
  return lines


def _pack(split: Split) -> dict[str, np.ndarray]:
  arrays = encode.pack(split.encoded) | {'row_ids': split.ids}
  return arrays if split.labels is None else arrays | {'labels': split.labels}


def _unpack(arrays: dict[str, np.ndarray], facts: dict) -> Split:
  encoded = encode.unpack(arrays, facts['truncated'])
  return Split(encoded, arrays.get('labels'), arrays['row_ids'])


def _list_tokens(split: Split) -> feature_files.Rows:
  return feature_files.take_all(split.encoded)


def _replace_ids(split: Split, features: feature_rows.FeatureRows) -> Split:
  return split._replace(encoded=features)


FORMAT = task_data.Format(
  make,
  _pack,
  _unpack,
  describe,
  _read.cache_clear,
  _list_tokens,
  _replace_ids,
)
