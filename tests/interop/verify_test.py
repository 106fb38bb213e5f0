"""What a written model is compared by."""

import dataclasses
import importlib.util

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.inference import fine_tuned
from bert_jax.interop import hugging_face, rename, verify
from bert_jax.model import classifier, heads
from tests import models


def make_params(config=models.CONFIG):
  """Returns parameters of the size that training gives them."""
  shapes = models.shapes(config, True)
  random = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: random.standard_normal(x.shape, np.float32) * np.float32(0.1),
    shapes,
  )


@pytest.mark.parametrize('causal', [False, True])
def test_outputs_are_those_of_the_pretraining_model(causal):
  config = dataclasses.replace(models.CONFIG, causal=causal)
  params = make_params()
  found = verify.compute_outputs(params, config)
  with jax.default_matmul_precision('highest'):
    mlm, nsp = heads.PretrainingModel(config).apply(
      {'params': params}, verify.make_batch(config)
    )
  np.testing.assert_allclose(found['mlm'], mlm, atol=1e-6)
  np.testing.assert_allclose(found['nsp'], nsp, atol=1e-6)
  assert found['hidden'].shape == (3, 7, 8)
  assert found['pooled'].shape == (3, 8)


def test_outputs_of_an_encoder_are_its_hidden_states():
  params = make_params()
  alone = verify.compute_outputs(rename.keep_parts(params, ()), models.CONFIG)
  assert list(alone) == ['hidden']
  full = verify.compute_outputs(params, models.CONFIG)
  np.testing.assert_array_equal(alone['hidden'], full['hidden'])


def make_head(task, params):
  """Returns (parameters without other heads, a head) of a fine-tuned model."""
  labels = {
    'classification': ('no', 'yes', 'perhaps'),
    'tagging': ('O', 'B', 'I'),
    'choice': (),
    'spans': ('start', 'end'),
  }[task]
  random = np.random.default_rng(1)
  outputs, width = len(labels) or 1, models.CONFIG.hidden_size
  head = classifier.Head(
    random.standard_normal((width, outputs), np.float32),
    random.standard_normal(outputs, np.float32),
    labels,
    max_length=6,
    columns=(),
    task=task,
    spans=classifier.Spans(3, 2, 4, None) if task == 'spans' else None,
  )
  whole = head.add_to(params)
  return {name: x for name, x in whole.items() if name != 'classifier'}, head


TASKS = ['classification', 'tagging', 'choice', 'spans']


@pytest.mark.parametrize('task', TASKS)
def test_outputs_of_a_head_are_those_of_the_fine_tuned_model(task):
  params, head = make_head(task, make_params())
  found = verify.compute_outputs(params, models.CONFIG, head)
  with jax.default_matmul_precision('highest'):
    logits = fine_tuned.make_head_module(head, models.CONFIG).apply(
      {'params': head.add_to(params)}, verify.make_batch(models.CONFIG)
    )
  np.testing.assert_allclose(found['classifier'], logits, atol=1e-6)


@pytest.mark.skipif(
  not all(map(importlib.util.find_spec, ('torch', 'transformers'))),
  reason='torch and transformers are not installed',
)
@pytest.mark.filterwarnings('default')  # theirs
@pytest.mark.parametrize('task', TASKS)
def test_heads_compute_the_same_in_transformers(tmp_path, task):
  params, head = make_head(task, make_params())
  path, config = str(tmp_path / 'out'), models.CONFIG
  hugging_face.export(path, params, config, models.TOKENIZER, None, head)
  ours = verify.compute_outputs(params, config, head)
  found = verify.compare(ours, verify.compute_theirs(path, config), config)
  assert set(found) == {'classifier', 'hidden'}
  other = verify.compute_outputs(
    params, config, head._replace(bias=head.bias + 1)
  )
  with pytest.raises(errors.UserError, match='its source: classifier by 1.0'):
    verify.compare(other, verify.compute_theirs(path, config), config)


def test_differences_are_over_tokens_and_too_large_ones_are_refused():
  ours = verify.compute_outputs(make_params(), models.CONFIG)
  other = jax.tree.map(np.copy, ours)
  other['hidden'][2, 6] += 1  # padding
  other['nsp'][0, 1] += 2e-5
  found = verify.compare(ours, other, models.CONFIG)
  assert found['hidden'] == found['mlm'] == 0
  assert 1e-5 < found['nsp'] < 3e-5
  other['mlm'][0, 6, 10] += 1
  with pytest.raises(errors.UserError, match='its source: mlm by 1.0'):
    verify.compare(ours, other, models.CONFIG)
  other['mlm'][0, 6, 10] = np.nan
  with pytest.raises(errors.UserError, match='its source: mlm by nan'):
    verify.compare(ours, other, models.CONFIG)


def test_without_transformers_there_is_nothing_to_compare(monkeypatch):
  monkeypatch.setattr(verify.importlib.util, 'find_spec', lambda name: None)
  assert verify.compute_theirs('anywhere', models.CONFIG) is None
