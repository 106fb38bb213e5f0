"""Tests of the classification head in Hugging Face's format."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

from bert_jax import errors
from bert_jax.interop import hugging_face, sequence_head
from bert_jax.model import classifier
from tests import models

# Sizes that differ: D = 8, C = 3.
HEAD = classifier.Head(
  np.arange(24, dtype=np.float32).reshape(8, 3),
  np.array([1, 2, 3], np.float32),
  ('no', 'yes', 'perhaps'),
  6,
  ('premise', 'claim'),
)
SETS = HEAD._replace(task='multi_label', settings=classifier.Threshold(0.25))
SPANS = HEAD._replace(
  kernel=HEAD.kernel[:, :2],
  bias=HEAD.bias[:2],
  labels=('start', 'end'),
  columns=(),
  task='spans',
  settings=classifier.Spans(3, 2, 4, -1.5),
)
NUMBER = HEAD._replace(kernel=HEAD.kernel[:, :1], bias=HEAD.bias[:1], labels=())


def export(path, head):
  params = models.make_params()
  for part in ('mlm', 'nsp'):
    del params[part]
  tokenizer = models.TOKENIZER
  hugging_face.export(str(path), params, models.CONFIG, tokenizer, None, head)
  return params


def assert_same(found, head):
  np.testing.assert_array_equal(found.kernel, head.kernel)
  np.testing.assert_array_equal(found.bias, head.bias)
  assert found[2:] == head[2:]


KINDS = {
  'classification': 'BertForSequenceClassification',
  'multi_label': 'BertForSequenceClassification',
  'tagging': 'BertForTokenClassification',
  'choice': 'BertForMultipleChoice',
  'spans': 'BertForQuestionAnswering',
}
of_every_kind = pytest.mark.parametrize(
  'head',
  [
    HEAD,
    NUMBER,
    HEAD._replace(task='tagging'),
    NUMBER._replace(task='choice'),
    SPANS,
    SETS,
  ],
  ids=['classes', 'number', 'tokens', 'choice', 'spans', 'sets'],
)


@of_every_kind
def test_what_is_exported_is_read(tmp_path, head):
  params = export(tmp_path / 'out', head)
  settings = json.loads((tmp_path / 'out/tokenizer_config.json').read_text())
  assert settings['model_max_length'] == 6  # of 7 positions
  model = hugging_face.read(str(tmp_path / 'out'))
  found = model.head
  assert_same(found, head)
  models.assert_same(model[0], params)
  described = json.loads((tmp_path / 'out' / 'config.json').read_text())
  assert described['architectures'] == [KINDS[head.task]]
  assert model.report.left_over == []


def export_modern(path, head):
  """Exports a head of the modern body; returns it and the other parameters."""
  params = models.make_params(models.MODERN, with_nsp=False)
  mlm = params.pop('mlm')
  head = head._replace(transform={x: mlm[x] for x in ('transform', 'norm')})
  bert = dataclasses.replace(models.MODERN, pooling='mean')
  hugging_face.export(str(path), params, bert, models.TOKENIZER, None, head)
  return head, params


@of_every_kind
def test_the_modern_bodys_head_has_layers_of_its_own(tmp_path, head):
  head, params = export_modern(tmp_path, head)
  described = json.loads((tmp_path / 'config.json').read_text())
  assert described['architectures'] == [f'Modern{KINDS[head.task]}']
  assert described['classifier_pooling'] == 'mean'
  tensors = safetensors.numpy.load_file(tmp_path / 'model.safetensors')
  assert 'classifier.weight' in tensors and 'decoder.bias' not in tensors
  dense = head.transform['transform']['kernel']
  np.testing.assert_array_equal(tensors['head.dense.weight'], dense.T)
  model = hugging_face.read(str(tmp_path))
  models.assert_same(model.params, params)
  models.assert_same(model.head.transform, head.transform)
  assert_same(model.head._replace(transform=0), head._replace(transform=0))
  assert model.config.pooling == 'mean' and model.report.left_over == []


def test_a_modern_head_without_its_layers_is_refused(tmp_path):
  export_modern(tmp_path, HEAD)
  path = tmp_path / 'model.safetensors'
  tensors = safetensors.numpy.load_file(path)
  del tensors['head.norm.weight']
  safetensors.numpy.save_file(tensors, path)
  with pytest.raises(errors.UserError, match='head.norm.weight are missing'):
    hugging_face.read(str(tmp_path))


def test_a_folder_of_transformers_own_has_labels_by_number(tmp_path):
  export(tmp_path / 'out', HEAD)
  models.edit_json(
    tmp_path / 'out' / 'config.json',
    **dict.fromkeys(
      ('id2label', 'label2id', 'problem_type', 'task_specific_params'), ...
    ),
  )
  found = hugging_face.read(str(tmp_path / 'out')).head
  assert_same(
    found,
    HEAD._replace(
      labels=('LABEL_0', 'LABEL_1', 'LABEL_2'),
      max_length=models.CONFIG.max_positions,
      columns=(),
    ),
  )


def test_a_head_for_spans_of_transformers_own_has_the_usual_windows(tmp_path):
  export(tmp_path / 'out', SPANS)
  tensors = safetensors.numpy.load_file(tmp_path / 'out' / 'model.safetensors')
  assert tensors['qa_outputs.weight'].shape == (2, 8)
  assert tensors['qa_outputs.bias'].tolist() == [1, 2]
  models.edit_json(tmp_path / 'out' / 'config.json', task_specific_params=...)
  found = hugging_face.read(str(tmp_path / 'out')).head
  assert found.settings == (128, 64, 30, None) and found.labels == (
    'start',
    'end',
  )
  assert found.max_length == models.CONFIG.max_positions  # below 384
  theirs = {'hidden_size': 8, 'max_position_embeddings': 512}
  theirs['architectures'] = ['BertForQuestionAnswering']
  assert sequence_head.read('', theirs, tensors).max_length == 384


def ours(**values):
  return {'task_specific_params': {'bert_jax': {'max_length': 6, **values}}}


@pytest.mark.parametrize(
  'head, fields, message',
  [
    (SPANS, ours(spans=[128]), 'config.json: what .* say of bert_jax is wrong'),
    (
      HEAD._replace(task='spans', settings=SPANS.settings),
      {},
      'outputs is 3, not 2',
    ),
    (HEAD, {'id2label': dict.fromkeys('012', 'a')}, 'not a name for each of 3'),
    (HEAD, ours(max_length=8), 'wrong: max_length=8, columns='),
    (HEAD._replace(kernel=HEAD.kernel[:6]), {}, r'\(3, 6\) and \(3,\), which'),
  ],
)
def test_a_malformed_head_is_refused(tmp_path, head, fields, message):
  export(tmp_path / 'out', head)
  models.edit_json(tmp_path / 'out' / 'config.json', **fields)
  with pytest.raises(errors.UserError, match=message):
    hugging_face.read(str(tmp_path / 'out'))


@pytest.mark.parametrize(
  'fields',
  [
    {'architectures': ['BertForNextSentencePrediction']},
    {
      'architectures': ['BertForTokenClassification'],
      'problem_type': 'multi_label_classification',
    },
    {'problem_type': 'regression'},  # of three numbers
  ],
)
def test_a_head_of_another_kind_is_left_over(tmp_path, fields):
  export(tmp_path / 'out', HEAD)
  models.edit_json(tmp_path / 'out' / 'config.json', **fields)
  model = hugging_face.read(str(tmp_path / 'out'))
  found = model.head
  assert found is None
  assert model.report.left_over == ['classifier.bias', 'classifier.weight']


def test_a_classifier_needs_the_pooler(tmp_path):
  export(tmp_path / 'out', HEAD)
  path = tmp_path / 'out' / 'model.safetensors'
  tensors = safetensors.numpy.load_file(path)
  kept = {name: x for name, x in tensors.items() if 'pooler' not in name}
  safetensors.numpy.save_file(kept, path)
  with pytest.raises(errors.UserError, match='lacks bert.pooler, which it'):
    hugging_face.read(str(tmp_path / 'out'))
