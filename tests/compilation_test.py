"""Tests of counting what is compiled."""

import threading

import jax
import jax.numpy as jnp

from bert_jax import compilation


def compile_one(shape):
  jax.jit(lambda x: x * 2 + 1)(jnp.ones(shape))


def test_each_new_program_counts_once():
  x = jnp.ones(7)
  f = jax.jit(lambda x: x * 3)
  with compilation.counted() as found:
    f(x)
    assert found.count == 1 and found.seconds > 0
    f(x)
    assert found.count == 1
    f(x.reshape(7, 1)[:, 0].reshape(1, 7)[0])  # the same shape
    reshaped = found.count
    f(jnp.ones((1, 7)))
    assert found.count > reshaped
  before = found.count
  compile_one(5)
  assert found.count == before


def test_programs_of_other_threads_do_not_count():
  with compilation.counted() as found:
    thread = threading.Thread(target=compile_one, args=(11,))
    thread.start()
    thread.join()
  assert found.count == 0
