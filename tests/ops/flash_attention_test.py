"""Tests of the GPU's attention kernels, in Pallas' interpreter."""

import functools
import re
import types

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.ops import flash_attention
from bert_jax.parallel import row_keys
from bert_jax.preflight import gpus
from tests.ops import attentions

B, S, H, K = 3, 128, 2, 16
# A row without padding, and two with.
MASK = (np.arange(S) < np.array([[S], [100], [60]])).astype(np.int32)
PAIRS = np.arange(S) // np.array([[50], [70], [200]])
KEY = jax.random.key(4)


def run(name, length=S, k=K, dtype='float32', mask=MASK, **options):
  qkv = attentions.make_qkv(B, length, H, k, dtype)
  return attentions.with_gradient(name, qkv, mask, **options)


def check(tolerance=2e-6, **options):
  for ours, plain in zip(
    run('flash', **options), run('xla', **options), strict=True
  ):
    assert np.linalg.norm(ours - plain) / np.linalg.norm(plain) < tolerance


@pytest.mark.parametrize(
  'options',
  [
    {},
    {'k': 64, 'causal': True},
    {'pairs': PAIRS},
    {'causal': True, 'pairs': PAIRS, 'key': KEY, 'rate': 0.5},
    {'mask_value': -3.0},
    {'mask_value': -3.4e38, 'key': KEY},
    {'dtype': 'bfloat16', 'key': KEY, 'tolerance': 0.02},  # of 2 ** -8
  ],
  ids=lambda x: ', '.join(x),
)
def test_values_and_gradients_are_those_of_the_plain_path(options):
  check(**options)


@pytest.mark.parametrize(
  'key',
  [KEY, row_keys.for_rows(KEY, 5, 1), jax.random.key(4, impl='rbg')],
  ids=['threefry', 'rows', 'rbg'],
)
def test_every_generator_drops_the_weights_that_the_plain_path_drops(key):
  check(key=key)
  assert np.abs(run('flash', key=key)[0] - run('flash')[0]).max() > 0.1


@pytest.mark.parametrize(
  'length',
  [
    *(64, 192),
    *(pytest.param(n, marks=pytest.mark.slow) for n in (576, 1088)),
  ],
)
def test_words_have_a_bit_for_each_block_of_keys(length):
  """Of 1, 3, 9 and 17 blocks; the last two need words of 16 and 32 bits."""
  mask = (np.arange(length) < np.array([[length], [60], [9]])).astype(np.int32)
  check(length=length, mask=mask, key=KEY, rate=0.5)


PADDING = (np.arange(S) < np.array([[S], [100], [0]])).astype(np.int32)


def test_a_row_of_padding_only_has_almost_what_the_plain_path_has():
  """10,000 is subtracted from its scores, which leaves few digits."""
  check(mask=PADDING, key=KEY, tolerance=1e-3)


def test_lower_masks_are_those_of_10_000():
  for low, usual in zip(
    run('flash', mask=PADDING, mask_value=-3.4e38),
    run('flash', mask=PADDING, mask_value=-1e4),
    strict=True,
  ):
    np.testing.assert_array_equal(low, usual)


def test_what_the_kernels_cannot_do_is_said():
  with pytest.raises(errors.UserError, match='100: multiples of 64 up to 2,0'):
    run('flash', length=100, mask=MASK[:, :100])
  assert 'size of 24: 16, 32' in flash_attention.unsupported(128, 24)
  assert flash_attention.unsupported(2048, 128) is None


def test_more_numbers_than_an_offset_can_count_are_refused():
  """2^15 rows of 128 tokens with 3 x 64 numbers are below 2^31, 3 x 256 not."""
  rows = 2**15

  def attend(heads):
    qkv = jax.ShapeDtypeStruct((rows, 128, 3, heads, 64), 'bfloat16')
    mask = jax.ShapeDtypeStruct((rows, 128), 'int32')
    run = functools.partial(
      flash_attention.attend, key=None, rate=0.1, mask_value=-1e4
    )
    return jax.eval_shape(run, qkv, mask).shape

  assert attend(1) == (rows, 128, 1, 64)
  with pytest.raises(errors.UserError, match='32,768 rows of 128 at once'):
    attend(4)


@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
@pytest.mark.parametrize('k', [16, 32, 64, 128])
def test_heads_of_each_size_lower_for_gpus(k, dtype):
  def loss(qkv, mask):
    out = flash_attention.attend(
      *(qkv, mask, KEY), rate=0.1, mask_value=-1e4, causal=True
    )
    return out.astype('float32').sum()

  shapes = (((2, 2048, 3, 2, k), dtype), ((2, 2048), 'int32'))
  program = types.SimpleNamespace(
    jitted=jax.jit(jax.grad(loss)),
    arguments=[jax.ShapeDtypeStruct(*x) for x in shapes],
  )
  text = gpus.lower(program).as_text()
  calls = re.findall(r'flash_\w+', text)
  assert {'flash_forward', 'flash_backward'} <= set(calls)
