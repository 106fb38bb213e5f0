"""What a written model is compared by."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.interop import rename, verify
from bert_jax.model import heads
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


def test_outputs_are_in_float32_whatever_the_model_trains_in():
  half = dataclasses.replace(models.CONFIG, dtype='bfloat16')
  params = make_params()
  ours = verify.compute_outputs(params, half)
  other = verify.compute_outputs(params, models.CONFIG)
  assert not any(verify.compare(ours, other, half).values())


def test_rows_have_padding_and_both_segments():
  batch = verify.make_batch(models.CONFIG)
  assert batch['input_mask'].sum(axis=1).tolist() == [7, 6, 4]
  assert batch['segment_ids'].tolist()[2] == [0, 0, 1, 1, 0, 0, 0]


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
