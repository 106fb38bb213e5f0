"""Tests of jax's attention kernels for TPUs, in Pallas' interpreter."""

import functools
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from bert_jax.hardware import accelerators
from bert_jax.model import precision
from bert_jax.ops import splash_attention
from bert_jax.preflight import compile_step
from tests.ops import attentions


def run(name, length, packed=False, **options):
  if packed:
    options['pairs'] = np.arange(length) // np.array([[100], [300]])
  tokens = length, length - 60
  return attentions.with_gradient(name, (length, 1, 64), tokens, **options)


@pytest.mark.parametrize(
  'options',
  [
    {'length': 384, 'window': 64, 'packed': True},
    {'length': 256, 'rate': 0.0},
    {'length': 256, 'window': 100, 'dtype': 'bfloat16', 'tolerance': 0.02},
  ],
  ids=str,
)
def test_values_and_gradients_are_those_of_the_plain_path(options):
  attentions.check(run, 'splash', **options)


def test_what_the_kernels_cannot_do_is_said():
  can = splash_attention.unsupported
  assert can(128, 64) is can(8192, 128) is None
  assert can(100, 64) == (
    'a sequence length of 100: multiples of 128 up to 8,192 work'
  )
  assert '8320: multiples' in can(8320, 64)
  assert can(512, 32) == 'a head size of 32: 64 and 128 work'


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('libtpu') is None, reason='needs libtpu'
)
@pytest.mark.parametrize(
  'chip, length, window, dtype',
  [('v5e:2x2', 8192, 64, 'bfloat16'), ('v6e:2x2', 8192, None, 'float32')],
)
def test_the_longest_rows_are_compiled(chip, length, window, dtype):
  """Nothing of all pairs of tokens is kept: a head's are 256 MiB."""
  device, *_ = compile_step.describe_devices(accelerators.parse(chip))
  place = SingleDeviceSharding(device)
  qkv = jax.ShapeDtypeStruct((1, length, 3, 12, 64), dtype, sharding=place)
  ids = jax.ShapeDtypeStruct((1, length), jnp.int32, sharding=place)

  def gradient(qkv, ids):
    attend = functools.partial(
      splash_attention.attend, input_mask=ids, sequence_ids=ids, window=window
    )
    with precision.set_products('float32', dtype):
      return jax.grad(lambda x: jnp.sum(attend(x).astype('float32') ** 2))(qkv)

  compiled = jax.jit(gradient).lower(qkv, ids).compile()
  assert compiled.as_text().count('custom_call_target="tpu_custom_call"') == 3
  assert compiled.memory_analysis().temp_size_in_bytes < 2**30
