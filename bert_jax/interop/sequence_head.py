"""The heads of Hugging Face's classes, one for each of our tasks."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax import errors
from bert_jax.interop import config_file
from bert_jax.model import classifier

# {task: their class}
_CLASSES = {
  'classification': 'BertForSequenceClassification',
  'multi_label': 'BertForSequenceClassification',
  'tagging': 'BertForTokenClassification',
  'choice': 'BertForMultipleChoice',
  'spans': 'BertForQuestionAnswering',
}
_SEVERAL = 'multi_label_classification'  # the problem_type of multi_label
_SPANS = 'start', 'end'  # the outputs of that class
# Of Google's run_squad.py; every question has an answer.
_USUAL = classifier.Spans(128, 64, 30, None)
_MAX_LENGTH = 384
# The key of config.json for what only we write.
_OURS = 'bert_jax'


def _list_names(task: str, modern: bool) -> tuple[str, ...]:
  """Returns the names of a head's kernel and bias, then of the layers before."""
  layer = 'qa_outputs' if task == 'spans' and not modern else 'classifier'
  before = ('head.dense.weight', 'head.norm.weight') if modern else ()
  return f'{layer}.weight', f'{layer}.bias', *before


def to_tensors(head: classifier.Head) -> dict[str, np.ndarray]:
  """Returns {their name: contiguous float32 array}."""
  arrays, before = [head.kernel.T, head.bias], head.transform
  if before is not None:
    arrays += [before['transform']['kernel'].T, before['norm']['scale']]
  names = _list_names(head.task, before is not None)
  contiguous = (np.ascontiguousarray(x, np.float32) for x in arrays)
  return dict(zip(names, contiguous, strict=True))


def describe(head: classifier.Head) -> dict[str, Any]:
  """Returns the fields of config.json that describe a head."""
  ours = {'max_length': head.max_length, 'columns': list(head.columns)}
  if head.task == 'multi_label':
    ours |= head.settings._asdict()
  elif head.settings is not None:
    ours['spans'] = head.settings._asdict()
  described = {
    'architectures': ['Modern' * bool(head.transform) + _CLASSES[head.task]],
    'problem_type': None,
    'task_specific_params': {_OURS: ours},
  }
  if head.task == 'spans':
    return described
  names = head.labels or ('LABEL_0',)
  if head.task == 'classification':
    kind = 'single_label_classification' if head.labels else 'regression'
    described['problem_type'] = kind
  elif head.task == 'multi_label':
    described['problem_type'] = _SEVERAL
  return described | {
    'id2label': {str(i): name for i, name in enumerate(names)},
    'label2id': {name: i for i, name in enumerate(names)},
  }


def read(
  path: str, theirs: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> classifier.Head | None:
  """Returns the head of a folder; None if it has none that we support.

  `theirs` is the content of `path`, its config.json.
  """
  modern = theirs.get('model_type') == 'modernbert'
  kinds, prefix = theirs.get('architectures'), 'Modern' * modern
  tasks = [k for k, x in _CLASSES.items() if kinds == [prefix + x]]
  if not tasks or _list_names(tasks[0], modern)[0] not in tensors:
    return None
  kind = theirs.get('problem_type')
  several = 'multi_label' in tasks and kind == _SEVERAL
  task = 'multi_label' if several else tasks[0]
  weight, bias, *before = _list_names(task, modern)
  kernel = np.ascontiguousarray(np.asarray(tensors[weight], np.float32).T)
  added = np.asarray(tensors.get(bias, ()), np.float32)
  if kernel.shape != (theirs['hidden_size'], *added.shape):
    raise errors.UserError(
      f'{path}: {weight} and {bias} have the shapes {kernel.T.shape} and '
      f'{added.shape}, which its hidden_size does not allow; copy it again.'
    )
  transform = None
  if modern:
    dense, scale = (np.asarray(tensors.get(x, ()), np.float32) for x in before)
    if (dense.shape, scale.shape) != ((len(kernel),) * 2, (len(kernel),)):
      wrong = 'are missing, or not as its hidden_size says; copy it again'
      raise errors.UserError(f'{path}: {" and ".join(before)} {wrong}.')
    turned = np.ascontiguousarray(dense.T)
    transform = {'transform': {'kernel': turned}, 'norm': {'scale': scale}}
  one = kind == 'regression' and len(added) == 1
  if not (one or several or kind in (None, 'single_label_classification')):
    return None
  labels, most = (), theirs['max_position_embeddings']
  if task == 'spans':
    labels = _SPANS
    if len(added) != len(labels):
      config_file.refuse(path, 'the number of outputs', len(added), '2')
  elif several or (kind != 'regression' and len(added) > 1):
    labels = _read_labels(path, theirs, len(added))
  what = f'{path}: what task_specific_params say of {_OURS} is wrong'
  odd = TypeError, ValueError, AttributeError
  with errors.explaining(what, 'export the model again.', odd):
    ours = (theirs.get('task_specific_params') or {}).get(_OURS) or {}
    settings: classifier.Spans | classifier.Threshold | None = None
    if task == 'multi_label':
      settings = classifier.Threshold(float(ours.get('threshold', 0.5)))
    elif task == 'spans':
      settings = classifier.Spans(**(_USUAL._asdict() | ours.get('spans', {})))
    usual = min(most, _MAX_LENGTH) if task == 'spans' else most
    max_length, columns = ours.get('max_length', usual), ours.get('columns', [])
    if not 5 <= max_length <= most or not isinstance(columns, list):
      raise ValueError(f'max_length={max_length}, columns={columns}')
  found = kernel, added, labels, max_length, tuple(columns), task
  return classifier.Head(*found, settings=settings, transform=transform)


def _read_labels(path, theirs, count) -> tuple[str, ...]:
  named = theirs.get('id2label')
  if named is None:  # transformers leaves out LABEL_0, LABEL_1
    return tuple(f'LABEL_{i}' for i in range(count))
  labels = {k: str(x) for k, x in named.items()} if type(named) is dict else {}
  keys = [str(i) for i in range(count)]
  if set(labels) != set(keys) or len(set(labels.values())) != count:
    allowed = f'a name for each of {count} outputs, once'
    config_file.refuse(path, 'id2label', named, allowed)
  return tuple(labels[key] for key in keys)
