"""Reads a split of a TFDS dataset as rows with named columns."""

from typing import Any

import numpy as np

from bert_jax import errors
from bert_jax.corpus import tfds_text

_NUMBER = 'idx'  # the feature that numbers GLUE's rows


def read(path: str) -> tuple[tuple[str, ...], list[tuple[int, dict]]]:
  """Returns (columns, [(number of the row, {column: value})]).

  The rows are in the order of the data that the dataset was made from, if it
  numbers them (TFDS stores them shuffled). Texts and lists of texts are str,
  classes are their names, other values as TFDS has them; a missing class is None.

  Args:
    path: tfds:NAME/CONFIG:SPLIT.

  Raises:
    errors.UserError: as `tfds_text.open_split`; and if there are no rows.
  """
  source = tfds_text.open_split(path)
  features = source.dataset_info.features
  rows = [
    {name: _decode(value, features[name]) for name, value in example.items()}
    for example in source
  ]
  if not rows:
    raise errors.UserError(f'{path} has no rows; give a split that has some.')
  if _NUMBER in features:
    rows.sort(key=lambda row: row[_NUMBER])
  return tuple(features), list(enumerate(rows))


def _decode(value: Any, feature: Any) -> Any:
  if isinstance(value, bytes):
    return value.decode('utf-8', 'replace')
  if isinstance(value, list | np.ndarray):
    return [_decode(x, None) for x in value]
  if hasattr(feature, 'int2str'):  # a class; -1 in test sets
    return feature.int2str(int(value)) if value >= 0 else None
  return value.item() if isinstance(value, np.generic) else value
