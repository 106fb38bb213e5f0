"""Tests of the GPU's LayerNorm kernels, in Pallas' interpreter."""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax.ops import layer_norm, normalisation_kernels
from tests import lowering

EPSILON = 1e-12
KEEP = 230
AXES = 'data', 'model'


def make_arrays(shape, dtype, kind='alone'):
  """Returns x, scale, bias, a gradient of the result, update and kept.

  Args:
    kind: alone, nothing is added; sum, an update is; or dropout, with it.
  """
  rng = np.random.default_rng(0)
  x, gradient, update = (rng.normal(0.5, 2, shape) for _ in range(3))
  scale, bias = (rng.normal(1, 0.5, shape[-1:]) for _ in range(2))
  x, gradient, update = (jnp.asarray(x, dtype) for x in (x, gradient, update))
  scale, bias = jnp.asarray(scale, 'f4'), jnp.asarray(bias, 'f4')
  kept = None
  if kind == 'alone':
    update = None
  if kind == 'dropout':
    bits = jnp.asarray(rng.integers(0, 256, shape) < KEEP)
    kept = normalisation_kernels.pack(bits)
  return [x, scale, bias, gradient, update, kept]


def run(forward, backward, arrays):
  """Returns the results of both, as a list."""
  x, scale, bias, gradient, update, kept = arrays
  keep = 256 if kept is None else KEEP
  y, mean, inverse, total = forward(
    *(x, scale, bias, update, kept),
    epsilon=EPSILON,
    dtype=str(gradient.dtype),
    keep=keep,
  )
  found = backward(
    *(total, mean, inverse, scale, gradient, kept),
    keep=keep,
    added=update is not None,
  )
  return jax.tree.leaves((y, mean, inverse, total, found))


def check(arrays):
  ours = run(
    normalisation_kernels.forward, normalisation_kernels.backward, arrays
  )
  plain = run(layer_norm._plain_forward, layer_norm._plain_backward, arrays)
  for one, other in zip(ours, plain, strict=True):
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    one, other = (np.asarray(x, 'f8') for x in (one, other))
    # A few numbers of bfloat16 are rounded to a neighbour, 2 ** -8 away; sums
    # with dropout are rounded once instead of twice.
    bits = 2.0**-8 if ours[0].dtype == jnp.bfloat16 else 1e-6
    np.testing.assert_allclose(one, other, 2 * bits, bits * np.abs(other).max())
    distance = np.linalg.norm(one - other) / np.linalg.norm(other)
    near = 2e-4 if arrays[-1] is None else 3e-3
    assert distance < (near if bits == 2.0**-8 else 1e-6)


@pytest.mark.parametrize(
  'shape, dtype, kind',
  [
    ((2, 64, 64), 'bfloat16', 'dropout'),
    ((3, 8, 64), 'float32', 'sum'),
    ((2, 12, 1024), 'bfloat16', 'dropout'),
    ((3, 8, 768), 'float32', 'alone'),
    ((3, 8, 768), 'bfloat16', 'dropout'),
  ],
)
def test_values_and_gradients_are_those_of_the_plain_code(shape, dtype, kind):
  """In blocks of 8, 8, 2 and 1 rows."""
  check(make_arrays(shape, dtype, kind))


def test_rows_that_do_not_fill_bytes():
  """In blocks of 2 rows."""
  check(make_arrays((3, 22, 64), 'float32'))


def test_a_byte_has_the_bits_of_eight_rows():
  kept = np.random.default_rng(0).random((2, 12, 5)) < 0.5
  packed = normalisation_kernels.pack(jnp.asarray(kept))
  assert packed.shape == (3, 5)
  rows = kept.reshape(24, 5)
  assert packed[1, 2] == sum(int(rows[8 + j, 2]) << j for j in range(8))
  unpacked = normalisation_kernels.unpack(packed)
  np.testing.assert_array_equal(unpacked, rows)


@pytest.mark.parametrize('size', [768, 1024])
def test_a_program_adds_up_the_gradients_of_several_blocks(monkeypatch, size):
  """For 1024, blocks 0, 3, 6, 9 and so on; for 768, 24 blocks."""
  jax.clear_caches()  # of what was traced for more programs
  for name in ('BACKWARD', 'BACKWARD_PIECES'):
    few = getattr(normalisation_kernels, name)._replace(programs=3)
    monkeypatch.setattr(normalisation_kernels, name, few)
  check(make_arrays((2, 12, size), 'float32', 'dropout'))


def loss(x, scale, bias, update=None, update_bias=None, bits=None):
  added, keep = None, 256
  if bits is not None:
    keep, kept = KEEP, normalisation_kernels.pack(bits < KEEP)
    added = layer_norm.Update(update, update_bias, kept)
  how = layer_norm.Normalisation(EPSILON, str(x.dtype), True, keep)
  y = layer_norm.normalise(x, scale, bias, how, added)
  return jnp.sum(y.astype('float32'))


def lower(function, shape, dtype='bfloat16', added=False):
  """Returns the names of the kernels in a function lowered for CUDA."""
  vector = shape[-1:], 'float32'
  shapes = [(shape, dtype), vector, vector]
  if added:
    shapes += [(shape, dtype), vector, (shape, 'uint8')]
  arguments = (jax.ShapeDtypeStruct(*x) for x in shapes)
  text = lowering.lower_for_gpus(function, *arguments)
  return set(re.findall(r'normalise_\w+', text))


BOTH = {'normalise_forward', 'normalise_backward'}
GRADIENT = jax.grad(loss, argnums=(0, 1, 2))


@pytest.mark.parametrize(
  'size, dtype, added',
  [
    (64, 'float32', False),
    (768, 'bfloat16', True),
    (1024, 'float32', True),
    (4096, 'bfloat16', True),
  ],
)
def test_rows_of_each_size_lower_for_gpus(size, dtype, added):
  assert lower(GRADIENT, (2, 128, size), dtype, added) == BOTH


@pytest.mark.parametrize('shape', [(2, 32), (2, 100), (0, 64), (2**21, 1024)])
def test_other_rows_are_normalised_without_kernels(shape):
  assert lower(GRADIENT, shape) == set()


def test_without_triton_there_are_no_kernels(monkeypatch):
  monkeypatch.setitem(sys.modules, 'jax.experimental.pallas.triton', None)
  monkeypatch.delattr('jax.experimental.pallas.triton', raising=False)
  assert lower(GRADIENT, (2, 64)) == set()


@pytest.mark.parametrize('manual, found', [(AXES, BOTH), (('data',), set())])
def test_kernels_are_only_where_nothing_is_partitioned_automatically(
  manual, found
):
  mesh = jax.make_mesh(
    (2, 2), AXES, axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  mapped = jax.shard_map(
    GRADIENT,
    mesh=mesh,
    axis_names=set(manual),
    in_specs=(P('data'), P(), P()),
    out_specs=(P('data'), P('data'), P('data')),
    check_vma=False,
  )
  assert lower(mapped, (4, 8, 64)) == found
