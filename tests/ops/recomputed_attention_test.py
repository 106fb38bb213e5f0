"""Tests of attention that recomputes its weights: that of the plain path."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.model import attention, bert_config
from bert_jax.ops import recomputed_attention
from bert_jax.parallel import device_mesh, row_keys
from tests.ops import attentions

B, S, H, K = 3, 8, 4, 2
PAIRS = np.arange(S) // np.array([[3], [5], [20]])
KEY = jax.random.key(4)
ONE_HEAD = 4 * S * S  # bytes of its scores


@pytest.fixture(autouse=True)
def two_heads(monkeypatch):
  """Blocks have two heads of a row, if nothing else is set."""
  monkeypatch.setattr(recomputed_attention, 'CPU_BLOCK', 2 * ONE_HEAD)


def recompute(name='recompute', length=S, **options):
  # A row without padding, one with, one of padding only.
  return attentions.with_gradient(
    name, (length, H, K), (length, 5, 0), **options
  )


check = functools.partial(attentions.check, recompute, 'recompute')


@pytest.mark.parametrize(
  'options',
  [
    {'mask_value': -3.0},
    {'separate_heads': True, 'key': KEY},
    {'key': row_keys.for_rows(KEY, 5, 1)},
    {'dtype': 'bfloat16', 'key': KEY, 'tolerance': 0.02},  # of 2 ** -8
  ],
  ids=str,
)
def test_values_and_gradients_are_those_of_the_plain_path(options):
  check(**options)


@pytest.mark.parametrize('size', [1, 2**20])
def test_blocks_of_each_size_compute_the_same(monkeypatch, size):
  """One head, all rows."""
  monkeypatch.setattr(recomputed_attention, 'CPU_BLOCK', size)
  check(pairs=PAIRS, causal=True, key=KEY, rate=0.5)


@pytest.mark.parametrize(
  'options',
  [
    {'window': 1},
    {'window': 2, 'pairs': PAIRS, 'length': 8},
    {'window': 2, 'causal': True, 'length': 7},  # blocks of 2
    {'window': 1, 'key': KEY, 'rate': 0.5},  # of all keys
    {'window': 3},  # as wide as the row
    {'dtype': 'bfloat16', 'window': 1, 'tolerance': 0.02},
  ],
  ids=str,
)
def test_windows_are_those_of_the_plain_path(monkeypatch, options):
  monkeypatch.setattr(recomputed_attention, 'NEAR', 1)
  check(**options)


@pytest.mark.parametrize('window', [None, 5])
def test_long_rows_are_computed_for_some_queries_at_a_time(monkeypatch, window):
  monkeypatch.setattr(recomputed_attention, 'CPU_BLOCK', 1)
  monkeypatch.setattr(recomputed_attention, '_FEW', 3)  # 4 divides 8
  check(window=window, pairs=PAIRS, causal=True)


def test_odd_lengths_drop_the_same_weights():
  check(key=row_keys.for_rows(KEY, 5, 1), rate=0.5, length=6)


@pytest.mark.parametrize('impl', ['threefry2x32', 'rbg'])
def test_the_backward_pass_drops_what_the_forward_pass_dropped(impl):
  config = bert_config.BertConfig(
    11, H * K, 1, H, 8, attention='recompute', attention_dropout=0.5
  )
  key = jax.random.key(4, impl=impl)
  tokens = attention.Tokens(attentions.make_mask(S, S, 5, 0))
  attentions.check_slope(
    lambda x: attention.attend(x, jnp.zeros((3, H, K)), tokens, key, config),
    (B, S, 3, H, K),
  )


def compile_gradient(name, remat=False, mesh=None, key=KEY, window=None):
  """Compiles four layers of attention at length 128, where S² is much."""
  rows, length, heads, k = 2, 128, 16, 2
  config = bert_config.BertConfig(
    *(11, heads * k, 1, heads, 8),
    attention=name,
    separate_heads=mesh is not None,
  )
  tokens = attention.Tokens(jnp.ones((rows, length), jnp.int32))
  bias = jnp.zeros((3, heads, k))

  def attend(x):
    mixed = attention.attend(x, bias, tokens, key, config, window=window)
    return jnp.stack([mixed, 2 * mixed, 3 * mixed], 2)

  if remat:
    attend = jax.checkpoint(attend)

  def loss(x):
    for _ in range(4):
      x = attend(x)
    return jnp.sum(x**2)

  split = mesh and NamedSharding(mesh, P(None, None, None, 'model'))
  shape = rows, length, 3, heads, k
  x = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=split)
  return jax.jit(jax.grad(loss)).lower(x).compile()


SQUARE = 4 * 2 * 16 * 128 * 128  # float32 bytes of [B, H, S, S]


def test_no_array_of_all_pairs_of_tokens_is_made(monkeypatch):
  monkeypatch.setattr(recomputed_attention, 'CPU_BLOCK', 1)
  compiled = compile_gradient('recompute', remat=True)
  assert compiled.memory_analysis().temp_size_in_bytes < SQUARE


@pytest.mark.parametrize('window', [None, 4])
def test_no_array_of_all_pairs_of_a_head_is_made(monkeypatch, window):
  for name in ('CPU_BLOCK', 'NEAR', '_FEW'):
    monkeypatch.setattr(recomputed_attention, name, 1)
  compiled = compile_gradient('recompute', key=None, window=window)
  assert not re.search(r'\[(\d+,)*128,128[],]', compiled.as_text())


def test_one_block_is_recomputed_too(monkeypatch):
  """XLA could find that the forward pass has computed the same."""
  monkeypatch.setattr(recomputed_attention, 'CPU_BLOCK', 2**30)
  assert compile_gradient('recompute').as_text().count(' exponential(') == 8


def test_a_mesh_that_splits_the_heads_sends_nothing():
  mesh = device_mesh.make_mesh(4, jax.devices()[:4])
  text = compile_gradient('recompute', mesh=mesh).as_text()
  for collective in ('all-gather', 'all-to-all', 'collective-permute'):
    assert collective not in text


@pytest.mark.parametrize(
  'size, split_heads, expected',
  [
    (1, True, (1, 1)),
    (5 * ONE_HEAD, True, (1, 3)),
    (6 * ONE_HEAD, True, (1, 6)),
    (25 * ONE_HEAD, True, (4, 6)),
    (36 * ONE_HEAD, True, (4, 6)),  # 6 rows do not divide 8
    (48 * ONE_HEAD, True, (8, 6)),
    (1, False, (1, 6)),
  ],
)
def test_blocks_are_as_large_as_allowed(size, split_heads, expected):
  found = recomputed_attention.choose_blocks(8, 6, S * S, size, split_heads)
  assert (found.rows, found.group) == expected
  whole = jnp.arange(8 * 6 * S).reshape(8, 6, S)
  split = found.split(whole)
  assert split.shape == (found.count, *expected, S)
  np.testing.assert_array_equal(found.join(split), whole)
