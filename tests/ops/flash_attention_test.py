"""Tests of the GPU's attention kernels, in Pallas' interpreter."""

import functools
import re

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.ops import dropout, flash_attention
from bert_jax.parallel import row_keys
from tests import lowering
from tests.ops import attentions

S, H, K = 128, 2, 16
KEY = jax.random.key(4)


def run(name, length=S, k=K, tokens=None, packed=False, **options):
  # A row without padding, and two with.
  tokens = tokens or (length, length - 28, length // 2 - 4)
  if packed:
    options['pairs'] = np.arange(length) // np.array([[50], [70], [200]])
  return attentions.with_gradient(name, (length, H, k), tokens, **options)


check = functools.partial(attentions.check, run, 'flash')


# Of one, two and three blocks.
@pytest.mark.parametrize(
  'length, options',
  [
    (64, {'k': 64, 'causal': True}),
    (192, {'causal': True, 'packed': True, 'key': KEY, 'rate': 0.5}),
    (128, {'mask_value': -3.0, 'k': 128}),
    (128, {'dtype': 'bfloat16', 'key': KEY, 'tolerance': 0.02}),  # of 2 ** -8
  ],
  ids=str,
)
def test_values_and_gradients_are_those_of_the_plain_path(length, options):
  check(length=length, **options)


@pytest.mark.parametrize(
  'options',
  [
    {'window': 64, 'packed': True, 'key': KEY},
    {'window': 1, 'causal': True, 'tokens': (256,)},
  ],
  ids=str,
)
def test_windows_are_those_of_the_plain_path(options):
  check(length=256, **options)


@pytest.mark.parametrize('size', [64, 32])
def test_blocks_beyond_the_window_are_not_read(size):
  """Of 8,192 tokens, those that see 63 to 128, or are seen by them."""
  call = flash_attention._Call(256, -1e4, False, False, 1)
  first, end = flash_attention._near(call, np.int32(1), size, 8192)
  assert (int(first) * size, int(end) * size) == (64 - size, 128 + size)


@pytest.mark.parametrize(
  'key', [KEY, row_keys.for_rows(KEY, 5, 1)], ids=['threefry', 'rows']
)
def test_threefry_drops_the_weights_that_the_plain_path_drops(key):
  check(key=key)
  assert np.abs(run('flash', key=key)[0] - run('flash')[0]).max() > 0.1


def test_another_generator_draws_the_bits_only(monkeypatch):
  """The plain path is given the same weights to keep."""
  length = 192
  key = jax.random.key(4, impl='rbg')

  def draw(key, shape):
    words = flash_attention.draw_kept(key, (*shape[:2], shape[-1]), 230)
    words = words.reshape(*shape[:2], -1, 1, 2, 1, length)
    place = np.arange(32, dtype='u4').reshape(1, 1, 1, 4, 1, 8, 1)
    return (255 * (1 - (words >> place & 1))).reshape(shape).astype('uint8')

  monkeypatch.setattr(dropout, 'draw', draw)
  check(length=length, key=key)


@pytest.mark.parametrize('impl', ['rbg', 'threefry2x32'])
def test_as_many_weights_are_kept_as_asked_for(impl):
  key = jax.random.key(4, impl=impl)
  words = flash_attention.draw_kept(key, (2, 2, 128), 200)
  kept = np.unpackbits(np.asarray(words).view('uint8'))
  assert len(kept) == 2 * 2 * 128**2
  assert abs(kept.mean() - 200 / 256) < 0.01


def test_a_row_of_padding_only_has_almost_what_the_plain_path_has():
  """10,000 is subtracted from its scores, which leaves few digits."""
  check(tokens=(S, 50, 0), key=KEY, tolerance=1e-3)


def test_lower_masks_are_those_of_10_000():
  get = functools.partial(run, 'flash', tokens=(S, 50, 0))
  for low, usual in zip(
    get(mask_value=-3.4e38), get(mask_value=-1e4), strict=True
  ):
    np.testing.assert_array_equal(low, usual)


def test_what_the_kernels_cannot_do_is_said():
  with pytest.raises(errors.UserError, match='100: multiples of 64 up to 8,1'):
    run('flash', length=100)
  assert 'size of 24: 16, 32' in flash_attention.unsupported(128, 24)
  assert flash_attention.unsupported(8192, 128) is None
  assert 'length of 8256' in flash_attention.unsupported(8256, 128)


def test_more_numbers_than_an_offset_can_count_are_refused():
  """2^15 rows of 128 tokens with 3 x 64 numbers are below 2^31, 3 x 256 not."""
  rows = 2**15

  def attend(heads):
    qkv = jax.ShapeDtypeStruct((rows, 128, 3, heads, 64), 'bfloat16')
    bias = jax.ShapeDtypeStruct((3, heads, 64), 'float32')
    mask = jax.ShapeDtypeStruct((rows, 128), 'int32')
    run = functools.partial(
      flash_attention.attend, key=None, rate=0.1, mask_value=-1e4
    )
    return jax.eval_shape(run, qkv, bias, mask).shape

  assert attend(1) == (rows, 128, 1, 64)
  with pytest.raises(errors.UserError, match='32,768 rows of 128 at once'):
    attend(4)


@pytest.mark.parametrize(
  'k, dtype, length',
  [
    (16, 'float32', 64),
    (32, 'bfloat16', 128),
    (64, 'bfloat16', 8192),
    (128, 'float32', 2048),
  ],
)
def test_heads_of_each_size_lower_for_gpus(k, dtype, length):
  window = 64 if length == 8192 else None

  def loss(qkv, bias, mask):
    out = flash_attention.attend(
      *(qkv, None if window else bias, mask, KEY),
      rate=0.1,
      mask_value=-1e4,
      causal=True,
      window=window,
    )
    return out.astype('float32').sum()

  text = lowering.lower_for_gpus(
    jax.grad(loss, (0, 1)),
    jax.ShapeDtypeStruct((2, length, 3, 2, k), dtype),
    jax.ShapeDtypeStruct((3, 2, k), 'float32'),
    jax.ShapeDtypeStruct((2, length), 'int32'),
  )
  assert {'flash_forward', 'flash_backward'} <= set(
    re.findall(r'flash_\w+', text)
  )
  # Not more blocks in advance than there are, or than cheap GPUs have memory for.
  stages = set(re.findall(r'num_stages = (\d)', text))
  assert stages == {str(min(2 if k == 128 else 3, length // 64))}
