"""Tests of the attention kernels, in Pallas' interpreter."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax import errors
from bert_jax.ops import fused_attention
from bert_jax.ops.attention_tiling import Call, Step
from bert_jax.parallel import row_keys
from tests.ops import attentions

B, S, H, K = 3, 128, 2, 64
TOKENS = S, 100, 0  # a row without padding, one with, one of padding only
PAIRS = np.arange(S) // np.array([[50], [70], [200]])
KEY = jax.random.key(4)


def run(name='fused', s=S, h=H, k=K, tokens=TOKENS, **options):
  return attentions.with_gradient(name, (s, h, k), tokens, **options)


check = functools.partial(attentions.check, run, 'fused')


def attend(qkv, mask, key=None, rate=0.1):
  """Calls the kernels without biases."""
  bias = jnp.zeros(qkv.shape[2:], jnp.float32)
  return fused_attention.attend(
    qkv, bias, jnp.asarray(mask), key, rate=rate, mask_value=-10_000.0
  )


@pytest.mark.parametrize(
  'options',
  [
    {'h': 4, 'k': 32, 'mask_value': -3.0},
    {'h': 1, 'k': 128, 'causal': True, 'pairs': PAIRS},
    {'dtype': 'bfloat16', 'key': KEY, 'tolerance': 0.02},  # of 2 ** -8
  ],
  ids=str,
)
def test_heads_and_masks_equal_the_plain_path(options):
  check(**options)


@pytest.mark.parametrize(
  'step',
  [
    Step(rows=3, lanes=256, groups=2, blocks=2, separate=False),
    Step(rows=1, lanes=256, groups=1, blocks=2, separate=True),
  ],
  ids=str,
)
def test_each_step_of_the_grid_equals_the_plain_path(monkeypatch, step):
  monkeypatch.setattr(Call, 'step', lambda *_: step)
  s = 256
  check(
    s=s,
    h=4,
    tokens=(s, 200, 0),
    pairs=np.arange(s) // 90 + np.zeros((B, 1), int),
    causal=True,
    key=KEY,
  )


@pytest.mark.parametrize(
  'key', [KEY, row_keys.for_rows(KEY, 5, 1)], ids=['threefry', 'rows']
)
def test_dropout_is_that_of_the_plain_path(key):
  check(key=key)
  assert np.abs(run(key=key)[0] - run()[0]).max() > 0.1


def test_a_tpu_is_given_no_64_bit_types():
  def loss(qkv, key):  # B = 4, so that there is a loop over rows, too
    return jnp.sum(attend(qkv, jnp.ones(qkv.shape[:2], jnp.int32), key))

  with jax.enable_x64(True):
    qkv = jax.ShapeDtypeStruct((4, 256, 3, 4, 64), jnp.float32)
    traced = jax.jit(jax.grad(loss)).trace(qkv, jax.random.key(0, impl='rbg'))
    # Lowering fails where types of loops differ.
    assert traced.lower(lowering_platforms=('tpu',)).as_text()


def test_the_backward_pass_drops_what_the_forward_pass_dropped():
  key = jax.random.key(4, impl='rbg')
  mask = attentions.make_mask(S, *TOKENS)
  attentions.check_slope(
    lambda x: attend(x, mask, key, rate=0.5), (B, S, 3, H, K)
  )


def test_a_device_of_four_does_its_rows():
  mesh = jax.make_mesh(
    (4,), ('data',), axis_types=(jax.sharding.AxisType.Auto,)
  )
  qkv = jax.random.normal(jax.random.key(1), (4, S, 3, H, K))
  mask = jnp.asarray(attentions.make_mask(S, 128, 90, 60, 1))

  def gradient(qkv, mask, first):
    key = row_keys.for_rows(jax.random.key(4), first, 0)
    return jax.grad(lambda x: jnp.sum(attend(x, mask, key) ** 2))(qkv)

  split = jax.shard_map(
    lambda q, m: gradient(q, m, jax.lax.axis_index('data')),
    mesh=mesh,
    in_specs=(P('data'), P('data')),
    out_specs=P('data'),
    check_vma=False,
  )
  whole = jax.jit(lambda q, m: gradient(q, m, 0))(qkv, mask)
  np.testing.assert_allclose(jax.jit(split)(qkv, mask), whole, atol=1e-5)


@pytest.mark.parametrize(
  'shape, says',
  [
    ((1, 96, 3, 2, 64), 'length of 96'),
    ((1, 640, 3, 2, 64), 'length of 640'),
    ((1, 128, 3, 2, 96), 'size of 96'),
    ((1, 128, 3, 3, 64), '3 heads of size 64'),
    ((1, 512, 3, 8, 16), 'heads of size 16 in float32'),
  ],
)
def test_other_shapes_are_refused(shape, says):
  with pytest.raises(errors.UserError, match=says):
    attend(jnp.zeros(shape), jnp.ones(shape[:2]))
