"""Tests of the GPU's LayerNorm kernels, in Pallas' interpreter."""

import re
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax.ops import elementwise, normalisation_kernels
from bert_jax.preflight import gpus

EPSILON = 1e-12
AXES = 'data', 'model'


def make_arrays(shape, dtype):
  """Returns x, scale, bias and a gradient of the result."""
  rng = np.random.default_rng(0)
  x, gradient = (rng.normal(0.5, 2, shape) for _ in range(2))
  scale, bias = (rng.normal(1, 0.5, shape[-1:]) for _ in range(2))
  arrays = jnp.asarray(x, dtype), scale, bias, jnp.asarray(gradient, dtype)
  return [jnp.asarray(x, x.dtype if x.ndim > 1 else 'f4') for x in arrays]


def run(forward, backward, arrays):
  """Returns y, mean, inverse, and the gradients of x, scale and bias."""
  x, scale, bias, gradient = arrays
  y, mean, inverse = forward(
    x, scale, bias, epsilon=EPSILON, dtype=str(gradient.dtype)
  )
  return y, mean, inverse, *backward(x, mean, inverse, scale, gradient)


def check(arrays):
  ours = run(
    normalisation_kernels.forward, normalisation_kernels.backward, arrays
  )
  plain = run(elementwise._plain_forward, elementwise._plain_backward, arrays)
  for one, other in zip(ours, plain, strict=True):
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    one, other = (np.asarray(x, 'f8') for x in (one, other))
    # A few numbers of bfloat16 are rounded to a neighbour, 2 ** -8 away.
    bits = 2.0**-8 if ours[0].dtype == jnp.bfloat16 else 1e-6
    np.testing.assert_allclose(one, other, bits, bits * np.abs(other).max())
    distance = np.linalg.norm(one - other) / np.linalg.norm(other)
    assert distance < (2e-4 if bits == 2.0**-8 else 1e-6)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize(
  'shape',
  [(2, 64, 64), (3, 22, 64), (2, 6, 1024), (3, 5, 1024), (3, 5, 768)],
  ids=str,
)
def test_values_and_gradients_are_those_of_the_plain_code(shape, dtype):
  """In blocks of 64, 2, 4, 1 and 1 rows."""
  check(make_arrays(shape, dtype))


@pytest.mark.parametrize('size', [768, 1024])
def test_a_program_adds_up_the_gradients_of_several_blocks(monkeypatch, size):
  """For 1024, blocks 0 and 3, 1 and 4, and 2; for 768, 20 blocks."""
  jax.clear_caches()  # of what was traced for more programs
  for name in ('BACKWARD_PROGRAMS', 'BACKWARD_PROGRAMS_OF_ROWS'):
    monkeypatch.setattr(normalisation_kernels, name, 3)
  check(make_arrays((2, 10, size), 'float32'))


def test_activations_of_another_type_than_the_result():
  """As after the embeddings, whose sum is float32."""
  x, scale, bias, gradient = make_arrays((2, 6, 128), 'float32')
  check([x, scale, bias, gradient.astype('bfloat16')])


def loss(x, scale, bias):
  y = elementwise.normalise(x, scale, bias, EPSILON, str(x.dtype), True)
  return jnp.sum(y.astype('float32'))


def lower(function, shape, dtype='bfloat16'):
  """Returns the names of the kernels in a function lowered for CUDA."""
  shapes = (shape, dtype), (shape[-1:], 'float32'), (shape[-1:], 'float32')
  program = types.SimpleNamespace(
    jitted=jax.jit(function),
    arguments=[jax.ShapeDtypeStruct(*x) for x in shapes],
  )
  return set(re.findall(r'normalise_\w+', gpus.lower(program).as_text()))


BOTH = {'normalise_forward', 'normalise_backward'}
GRADIENT = jax.grad(loss, argnums=(0, 1, 2))


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('size', [64, 768, 1024, 4096])
def test_rows_of_each_size_lower_for_gpus(size, dtype):
  assert lower(GRADIENT, (2, 128, size), dtype) == BOTH


def test_recomputed_rows_lower_for_gpus():
  again = jax.grad(jax.checkpoint(loss), argnums=(0, 1, 2))
  assert lower(again, (2, 128, 768)) == BOTH


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


def test_elsewhere_values_and_gradients_are_the_plain_code_s_bit_for_bit():
  x, scale, bias, gradient = make_arrays((2, 20, 768), 'float32')

  def ours(x, scale, bias, gradient):
    y, back = jax.vjp(
      lambda *arrays: elementwise.normalise(*arrays, EPSILON, 'float32', True),
      *(x, scale, bias),
    )
    return y, *back(gradient)

  def plain(*arrays):
    found = run(elementwise._plain_forward, elementwise._plain_backward, arrays)
    return found[0], *found[3:]

  programs = [jax.jit(f).lower(x, scale, bias, gradient) for f in (ours, plain)]
  assert not any('triton' in program.as_text() for program in programs)
  found, expected = (p.compile()(x, scale, bias, gradient) for p in programs)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(one, other)
