"""What a training step keeps, counted for shapes that can be added up."""

import functools
import types

import jax
import pytest

from bert_jax import config
from bert_jax.parallel import device_mesh
from bert_jax.preflight import memory_model
from bert_jax.train import task, tuning

GPU = types.SimpleNamespace(platform='gpu', device_kind='NVIDIA H200')


@functools.cache
def model(arguments='', devices=1):
  """Returns the memory of LARGE's shapes with two layers, 4 rows of 512."""
  c = config.pretraining('large')
  c.phases.batch_size = (4, 4)
  c.phases.seq_length = (512, 512)
  config.apply_arguments(c, f'num_layers=2,dtype=bfloat16,rng=rbg,{arguments}')
  (phase, _) = task.list_phases(c)
  c = tuning.resolve(c, GPU, phase.seq_length)
  mesh = device_mesh.make_mesh(c.mesh.model, jax.devices()[:devices])
  return memory_model.model_step(c, phase, mesh)


def test_a_layer_keeps_what_its_arrays_add_up_to():
  per_row = (model('num_layers=3').activations - model().activations) / 4
  # MiB of [512, 1024] in bfloat16: input, 3 for queries, keys and values,
  # mixed, 2 of LayerNorms' inputs, 1 of the MLP's, 4 + 4 around GELU; a bit of
  # dropout for each number of two of them, and for each of 16 x 512 x 512 weights
  # of attention. Little else.
  assert per_row / 2**20 == pytest.approx(16 + 2 / 16 + 1 / 2, abs=0.1)


def test_weights_of_attention_are_kept_by_xla_only():
  kept = model('attention=xla').activations - model().activations
  square = 16 * 512 * 512  # of a row, bytes
  # Probabilities in float32, what dropout chose, and what it left in bfloat16;
  # less a bit for what it chose, maximum and sum of each softmax. What dropout
  # chose of two activations is a byte each, instead of a bit.
  weights = square * (4 + 1 + 2 - 1 / 8)
  chosen = 2 * 512 * 1024 * (1 - 1 / 8)
  assert kept == pytest.approx(2 * 4 * (weights + chosen), rel=0.002)


def test_rematerialised_layers_keep_their_input():
  plain, remat = model(), model('remat=layer')
  assert remat.activations < 0.35 * plain.activations
  assert remat.workspace > plain.workspace


def test_micro_batches_share_the_room_and_add_up_in_float32():
  one, four = model(), model('accumulate=4')
  assert four.activations == pytest.approx(one.activations / 4, rel=0.01)
  assert four.gradients == 3 * one.gradients
  assert one.gradients == one.weights == one.parameters / 2


def test_devices_share_rows_and_the_optimizer():
  one, four = model(), model(devices=4)
  assert four.activations == pytest.approx(one.activations / 4, rel=0.01)
  assert four.optimizer < one.optimizer / 3
  assert four.weights == one.weights


def test_a_language_model_has_logits_of_every_token():
  masked, every = model(), model('kind=ltr')
  assert every.logits == pytest.approx(511 / 20 * masked.logits, rel=0.001)
  # In float32, they are its largest short-lived array.
  libraries = 2**28
  assert every.workspace == pytest.approx(libraries + 2 * every.logits)
