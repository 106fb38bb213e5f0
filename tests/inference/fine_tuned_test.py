"""Tests of which model a fine-tuning run trains."""

import pytest

from bert_jax.inference import fine_tuned
from bert_jax.model import classifier, parameters
from tests import models
from tests.finetuning import made

CASES = {
  'plain': ('classification', {}, classifier.Classifier, (8, 'pooler')),
  'bilstm': (
    'classification',
    {'model.bilstm': 6},
    classifier.Classifier,
    (12, 'bilstm'),
  ),
  'gpt': (
    'classification',
    {'finetuning.form': 'gpt'},
    classifier.GptClassifier,
    (8, 'mlm'),
  ),
  'tags': (
    'tagging',
    {'model.bilstm': 6},
    classifier.Classifier,
    (12, 'bilstm'),
  ),
  'features': (
    'tagging',
    {'model.bilstm': 6, 'finetuning.features': 'last'},
    classifier.FeatureClassifier,
    (12, 'bilstm'),
  ),
}


@pytest.mark.parametrize(
  'task, changes, kind, expected', CASES.values(), ids=CASES
)
def test_the_config_names_the_model(task, changes, kind, expected):
  c = made.make_config('a,b', '', **{**changes, 'finetuning.outputs': 5})
  c.task = task
  module = fine_tuned.make_module(c, models.CONFIG)
  assert type(module) is kind
  names, (width, part) = parameters.list_shapes(module), expected
  assert names['classifier/kernel'] == (width, 5)
  assert any(name.startswith(f'{part}/') for name in names)
  if kind is classifier.FeatureClassifier:
    assert 'beside/encoder/layer_1/mlp_in/kernel' in names
    assert names['bilstm/forward_0/ii/kernel'] == (2 * 8, 6)
  inputs = fine_tuned.list_inputs(3, 7)
  assert inputs['input_ids'].shape == (3, 7)


def test_flops_are_those_of_what_is_computed():
  def count(bert=models.CONFIG, **changes):
    task = changes.pop('task', 'classification')
    c = made.make_config('m', '', **changes)
    c.task = task
    module = fine_tuned.make_module(c, bert)
    return fine_tuned.count_flops(module, 5)

  bert = models.CONFIG.flops_per_sequence(5, 0)
  assert count() == count(task='tagging') == bert
  modern = models.MODERN.flops_per_sequence(5, 0)
  assert count(models.MODERN) == modern + 6 * 8 * 8  # the head, at [CLS]
  assert count(models.MODERN, task='tagging') == modern + 5 * 6 * 8 * 8
  # Two layers, 2 directions of 4 gates: 6 (8 + 6) and 6 (12 + 6) weights.
  lstm = 6 * 5 * 8 * 6 * (14 + 18)
  assert count(**{'model.bilstm': 6}) == bert + lstm
  gpt = count(**{'finetuning.form': 'gpt'})
  assert gpt == models.CONFIG.flops_per_sequence(5, 4)
  frozen = {'model.bilstm': 6, 'finetuning.features': 'last'}
  assert count(**frozen) == pytest.approx(bert / 3 + lstm)
  both = count(init_from='a,b', **frozen)
  wider = 6 * 5 * 8 * 6 * (22 + 18)
  assert both == pytest.approx(2 * bert / 3 + wider)


def test_a_head_names_its_model():
  def make(**parts):
    head = classifier.Head([[0.0]] * 12, [0.0] * 5, (), 7, (), **parts)
    return fine_tuned.make_head_module(head, models.CONFIG)

  assert type(make()) is classifier.Classifier and make().lstm_units == 0
  assert make(bilstm={}).lstm_units == 6
  assert type(make(form='gpt')) is classifier.GptClassifier
  tags = make(task='tagging', bilstm={})
  assert type(tags) is classifier.Classifier
  assert (tags.lstm_units, tags.tokens) == (6, True)


def test_several_sources_are_for_features_only():
  c = made.make_config('a,b', '')
  assert fine_tuned.list_sources(c) == ['a,b']
  c.finetuning.features = 'last'
  assert fine_tuned.list_sources(c) == ['a', 'b']
  c.init_from, c.finetuning.features = '', 'none'
  assert fine_tuned.list_sources(c) == []
