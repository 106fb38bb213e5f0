"""The heads of Hugging Face's classes, one for each of our tasks."""

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax import errors
from bert_jax.model import classifier

# {task: their class}
_CLASSES = {
  'classification': 'BertForSequenceClassification',
  'tagging': 'BertForTokenClassification',
  'choice': 'BertForMultipleChoice',
}
_WEIGHT, _BIAS = 'classifier.weight', 'classifier.bias'
NAMES = _WEIGHT, _BIAS
# Where config.json has room for what only we write.
_OURS = 'bert_jax'


def to_tensors(head: classifier.Head) -> dict[str, np.ndarray]:
  """Returns {their name: contiguous float32 array}."""
  return {
    _WEIGHT: np.ascontiguousarray(head.kernel.T, np.float32),
    _BIAS: np.ascontiguousarray(head.bias, np.float32),
  }


def describe(head: classifier.Head) -> dict[str, Any]:
  """Returns the fields of config.json that describe a head."""
  names = head.labels or ('LABEL_0',)
  kind = 'single_label_classification' if head.labels else 'regression'
  return {
    'architectures': [_CLASSES[head.task]],
    'id2label': {str(i): name for i, name in enumerate(names)},
    'label2id': {name: i for i, name in enumerate(names)},
    'problem_type': kind if head.task == 'classification' else None,
    'task_specific_params': {
      _OURS: {'max_length': head.max_length, 'columns': list(head.columns)}
    },
  }


def read(
  path: str, theirs: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> classifier.Head | None:
  """Returns the head of a folder; None if it has none of our kinds.

  Ours choose one of several classes, or give one number.

  Args:
    path: its config.json, for error messages.
    theirs: the content of config.json.
    tensors: {their name: array}.

  Raises:
    errors.UserError: if the head is malformed.
  """
  named = theirs.get('architectures')
  tasks = [task for task, name in _CLASSES.items() if named == [name]]
  if not tasks or _WEIGHT not in tensors:
    return None
  kernel = np.asarray(tensors[_WEIGHT], np.float32).T
  bias = np.asarray(tensors.get(_BIAS, ()), np.float32)
  if kernel.ndim != 2 or bias.shape != kernel.shape[1:]:
    raise errors.UserError(
      f'{path}: {_WEIGHT} and {_BIAS} have the shapes {kernel.T.shape} and '
      f'{bias.shape}, which do not belong together; copy the model again.'
    )
  kind = theirs.get('problem_type')
  one = kind == 'regression' and len(bias) == 1
  if not one and kind not in (None, 'single_label_classification'):
    return None
  labels = ()
  if kind != 'regression' and len(bias) > 1:
    labels = _read_labels(path, theirs, len(bias))
  ours = theirs.get('task_specific_params')
  ours = ours.get(_OURS) if isinstance(ours, dict) else None
  ours = ours if isinstance(ours, dict) else {}
  most = theirs['max_position_embeddings']
  max_length, columns = ours.get('max_length', most), ours.get('columns', [])
  if not (type(max_length) is int and 5 <= max_length <= most):
    raise errors.UserError(
      f'{path}: max_length is {reprlib.repr(max_length)}, not a number of '
      f'tokens from 5 to {most}.'
    )
  if not (isinstance(columns, list) and all(type(x) is str for x in columns)):
    raise errors.UserError(
      f'{path}: columns are {reprlib.repr(columns)}, not a list of names.'
    )
  kernel = np.ascontiguousarray(kernel)
  return classifier.Head(
    kernel, bias, labels, max_length, tuple(columns), tasks[0]
  )


def _read_labels(path, theirs, count) -> tuple[str, ...]:
  named = theirs.get('id2label')
  if named is None:  # transformers leaves out LABEL_0, LABEL_1
    return tuple(f'LABEL_{i}' for i in range(count))
  keys = [str(i) for i in range(count)]
  if (
    not isinstance(named, dict)
    or set(named) != set(keys)
    or len(set(map(str, named.values()))) != count
  ):
    raise errors.UserError(
      f'{path}: id2label is {reprlib.repr(named)}, which does not name each of '
      f'{count} outputs once.'
    )
  return tuple(str(named[key]) for key in keys)
