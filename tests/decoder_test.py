"""Tests of the decoder of masked tokens and its loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import decoder, losses

# B=2 P=3 D=4 V=5, in 8 rows of the embeddings.
WORDS = 5
LABELS = jnp.array([[0, 4, 2], [3, 3, 1]])
WEIGHTS = jnp.array([[1, 1, 0], [1, 0, 1]])


def values(dtype='float32'):
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(0, 2, (2, 3, 4)), dtype)
  table = jnp.asarray(rng.normal(0, 1, (8, 4)), 'float32')
  return x, table, jnp.asarray(rng.normal(0, 1, 8), 'float32')


def sums(x, table, bias, size, labels, weights):
  rows = table[labels].astype('float32')
  return decoder.sums(x, table, bias, rows, size, labels, weights)


def plain(x, table, bias):
  logits = decoder.logits(x, table, bias, WORDS)
  return losses.token_sums(logits, LABELS, WEIGHTS)


def fused(x, table, bias):
  return sums(x, table, bias, WORDS, LABELS, WEIGHTS)


def gradients(function, dtype='float32'):
  grad = jax.grad(lambda *args: 3 * function(*args)[0], argnums=(0, 1, 2))
  return jax.jit(grad)(*values(dtype))


def test_logits_are_products_with_the_words_alone():
  x = jnp.array([[1.0, 2.0]])
  table = jnp.array([[1.0, 0], [0, 1], [1, 1], [9, 9]])
  bias = jnp.array([0.5, 0, 0, 9])
  found = decoder.logits(x, table, bias, 3)
  np.testing.assert_array_equal(found, [[1.5, 2, 3]])
  assert decoder.logits(x.astype('bfloat16'), table, bias, 3).dtype == 'float32'


def test_sums_are_those_of_the_logits():
  (loss, hits), (expected, count) = fused(*values()), plain(*values())
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  assert hits == count


def test_a_hit_is_a_label_that_no_word_beats():
  x, bias = jnp.array([[1.0, 0]]), jnp.zeros(3)
  table = jnp.array([[2.0, 0], [2, 0], [1, 0]])
  hits = [
    float(sums(x, table, bias, 3, jnp.array([n]), jnp.ones(1))[1])
    for n in range(3)
  ]
  assert hits == [1, 1, 0]


def test_gradients_are_those_of_the_logits():
  for found, expected in zip(gradients(fused), gradients(plain), strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_gradients_in_bfloat16_are_close_to_those_of_the_logits():
  found = gradients(fused, 'bfloat16')
  x, table, bias = values('bfloat16')
  exact = jax.grad(lambda *args: 3 * plain(*args)[0], argnums=(0, 1, 2))(
    x.astype('float32'), table.astype('bfloat16').astype('float32'), bias
  )
  for one, other in zip(found, exact, strict=True):
    np.testing.assert_allclose(
      one.astype('float32'), other, rtol=0.05, atol=0.05
    )


def test_rows_that_are_no_words_get_no_gradient():
  _, table, bias = gradients(fused)
  assert not table[WORDS:].any() and not bias[WORDS:].any()
  assert table[:WORDS].any(-1).all()


@pytest.mark.parametrize('margin', [0.0, 12.0])
def test_bfloat16_keeps_the_gradient_of_a_sure_prediction(margin):
  """Of p close to 1, 1 - p would round to 0 in bfloat16 were p kept."""
  x, table = jnp.ones((1, 1)), jnp.array([[margin], [0.0]])

  def loss(x):
    one = jnp.ones(1, jnp.int32)
    return sums(x, table, jnp.zeros(2), 2, one * 0, one)[0]

  found = jax.grad(loss)(x.astype('bfloat16'))
  expected = -margin / (1 + np.exp(margin))
  np.testing.assert_allclose(
    found.astype('float32'), [[expected]], rtol=2**-7, atol=1e-12
  )


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_a_hopeless_label_has_a_finite_loss_and_gradient(dtype):
  """exp(200) is infinite in float32; the loss counts 50 of them."""
  many = 30_000
  table = jnp.zeros((many, 1)).at[1:].set(200.0)

  def loss(x):
    one = jnp.ones(1, jnp.int32)
    return sums(x, table, jnp.zeros(many), many, one * 0, one)[0]

  found, pull = jax.vjp(loss, jnp.ones((1, 1), dtype))
  np.testing.assert_allclose(found, 50 + np.log(many), rtol=1e-4)
  # All but the label have all of the probability, and a row of 200.
  (slope,) = pull(jnp.float32(1e-6))
  np.testing.assert_allclose(slope.astype('float32'), [[2e-4]], rtol=2**-7)
