"""Tests of fingerprints."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.parallel import device_mesh
from bert_jax.workdir import fingerprint

TREE = {
  'a': np.arange(48, dtype=np.float32).reshape(8, 6),
  'b': {'step': np.int32(5), 'h': np.arange(8, dtype=jnp.bfloat16)},
}


def test_layout_over_devices_changes_nothing():
  mesh = device_mesh.make_mesh()
  assert mesh.size == 4
  whole = fingerprint.of_arrays(TREE)
  split = {
    'a': jax.device_put(TREE['a'], device_mesh.row_sharding(mesh)),
    'b': {
      'step': jax.device_put(TREE['b']['step'], device_mesh.replicate(mesh)),
      'h': jax.device_put(TREE['b']['h'], device_mesh.row_sharding(mesh)),
    },
  }
  assert fingerprint.of_arrays(split) == whole
  assert list(whole) == ['a', 'b/h', 'b/step']


def test_every_single_bit_counts():
  x = np.arange(6, dtype=np.float32)
  seen = {fingerprint.of_arrays({'x': x})['x']}
  for i in range(6):
    for bit in range(32):
      y = x.copy()
      y.view(np.uint32)[i] ^= np.uint32(1 << bit)
      seen.add(fingerprint.of_arrays({'x': y})['x'])
  assert len(seen) == 1 + 6 * 32


def test_exchanged_elements_and_signed_zero_count():
  def mark(values):
    return fingerprint.of_arrays({'x': np.array(values, np.float32)})['x']

  assert mark([1, 2]) != mark([2, 1])
  assert mark([0.0]) != mark([-0.0])
