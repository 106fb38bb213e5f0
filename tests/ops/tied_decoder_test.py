"""Tests of the decoder of masked tokens and its loss."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.ops import tied_decoder

# B=2 P=3 D=4 V=5, in 8 rows of the embeddings.
WORDS = 5
LABELS = jnp.array([[0, 4, 2], [3, 3, 1]])
WEIGHTS = jnp.array([[1, 1, 0], [1, 0, 1]])


def values():
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(0, 2, (2, 3, 4)), 'float32')
  table = jnp.asarray(rng.normal(0, 1, (8, 4)), 'float32')
  return x, table, jnp.asarray(rng.normal(0, 1, 8), 'float32')


def sums(x, table, bias, size, labels, weights):
  rows = table[labels].astype('float32')
  return tied_decoder.sum_losses(x, table, bias, rows, size, labels, weights)


def lose_first(x, table, bias):
  """Returns the loss of one prediction, whose label is the first word."""
  label, weight = jnp.zeros(1, jnp.int32), jnp.ones(1)
  return sums(x, table, bias, len(table), label, weight)[0]


def plain(x, table, bias):
  logits = tied_decoder.compute_logits(x, table, bias, WORDS)
  return tied_decoder.sum_tokens(logits, LABELS, WEIGHTS)


def fused(x, table, bias):
  return sums(x, table, bias, WORDS, LABELS, WEIGHTS)


def gradients(function):
  grad = jax.grad(lambda *args: 3 * function(*args)[0], argnums=(0, 1, 2))
  return jax.jit(grad)(*values())


def test_logits_are_products_with_the_words_alone():
  x = jnp.array([[1.0, 2.0]])
  table = jnp.array([[1.0, 0], [0, 1], [1, 1], [9, 9]])
  bias = jnp.array([0.5, 0, 0, 9])
  found = tied_decoder.compute_logits(x, table, bias, 3)
  np.testing.assert_array_equal(found, [[1.5, 2, 3]])
  assert (
    tied_decoder.compute_logits(x.astype('bfloat16'), table, bias, 3).dtype
    == 'float32'
  )


def test_a_sample_of_all_words_has_the_same_loss_and_gradient():
  words = jnp.array([4, 0, 3, 1, 2])
  sample = tied_decoder.Sample(words, jnp.zeros(WORDS))

  def sampled(x, table, bias):
    _, labels, rows = tied_decoder.look_up('float32', table, LABELS, words)
    given = bias, labels, WORDS, LABELS, WEIGHTS
    return tied_decoder.sum_losses(x, rows, *given, sample)

  for one, other in zip(sampled(*values()), plain(*values()), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-6)
  for one, other in zip(gradients(sampled), gradients(plain), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_word_of_a_sample_counts_as_often_as_it_says():
  """For hits it is compared as it is, though it outweighs the label."""
  x, table, bias = jnp.ones((1, 1)), jnp.array([[2.0], [1], [0]]), jnp.zeros(3)
  words, label = jnp.array([1]), jnp.array([0])
  sample = tied_decoder.Sample(words, jnp.log(jnp.array([9.0])))
  loss, hits = tied_decoder.sum_losses(
    x, table[words], bias, table[label], 3, label, jnp.ones(1), sample
  )
  assert float(loss) == pytest.approx(math.log(1 + 9 * math.exp(-1)))
  assert hits == 1


def test_a_hit_is_a_label_that_no_word_beats():
  x, bias = jnp.array([[1.0, 0]]), jnp.zeros(3)
  table = jnp.array([[2.0, 0], [2, 0], [1, 0]])
  hits = [
    float(sums(x, table, bias, 3, jnp.array([n]), jnp.ones(1))[1])
    for n in range(3)
  ]
  assert hits == [1, 1, 0]


@pytest.mark.parametrize('margin', [0.0, 12.0])
def test_bfloat16_keeps_the_gradient_of_a_sure_prediction(margin):
  """Of p close to 1, 1 - p would round to 0 in bfloat16 were p kept."""
  x, table = jnp.ones((1, 1)), jnp.array([[margin], [0.0]])
  found = jax.grad(lose_first)(x.astype('bfloat16'), table, jnp.zeros(2))
  expected = -margin / (1 + np.exp(margin))
  np.testing.assert_allclose(
    found.astype('float32'), [[expected]], rtol=2**-7, atol=1e-12
  )


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_a_hopeless_label_has_its_true_loss_and_gradient(dtype):
  """exp(200) is infinite in float32. Both passes round the table."""
  many, row = 30_000, 200.3
  table = jnp.zeros((many, 1)).at[1:].set(row)
  row = float(jnp.array(row, dtype))  # 200 in bfloat16
  found, pull = jax.vjp(
    lambda x: lose_first(x, table, jnp.zeros(many)), jnp.ones((1, 1), dtype)
  )
  np.testing.assert_allclose(found, row + np.log(many - 1), rtol=1e-6)
  # All but the label have all of the probability, and this row.
  (slope,) = pull(jnp.float32(1e-6))
  np.testing.assert_allclose(
    slope.astype('float32'), [[1e-6 * row]], rtol=2**-7
  )


@pytest.mark.parametrize('scale', [1.0, 10.0, 1e6])
def test_sums_and_gradients_are_those_of_the_logits_however_far(scale):
  x, table, bias = values()
  x = scale * x

  def both(function):
    grad = jax.value_and_grad(function, (0, 1, 2), has_aux=True)
    return jax.jit(grad)(x, table, bias)

  logits = tied_decoder.compute_logits(x, table, bias, WORDS)
  picked = jnp.take_along_axis(logits, LABELS[..., None], -1)
  over = (logits.max(-1) - picked[..., 0]) > 50
  assert over[WEIGHTS == 1].any() == (scale > 1) and not over.all()
  # What has weight 0 must not spoil the sum either.
  assert over[WEIGHTS == 0].any() == (scale > 10)

  def close(found, expected):
    size = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * size)

  jax.tree.map(close, both(fused), both(plain))


@pytest.mark.parametrize('scale', [1.0, 10.0])
def test_on_nvidia_gpus_both_passes_run_without_a_loop(scale):
  """The host would have to wait for the device to know whether it runs."""
  x, table, bias = values()
  rows = scale * x.reshape(-1, 4), table[:WORDS], bias[:WORDS]
  logits = tied_decoder._Logits(
    *rows, LABELS.reshape(-1), None, jnp.zeros(LABELS.size)
  )
  loop, both = (
    functools.partial(tied_decoder._sum_powers, second)
    for second in (tied_decoder._corrected, tied_decoder._repeated)
  )
  found = jax.jit(both)(logits)
  assert (found[3] > 0).any() == (scale > 1)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-30),
    found,
    jax.jit(loop)(logits),
  )


@pytest.mark.parametrize('platform', ['cuda', 'cpu', 'tpu'])
def test_only_nvidia_gpus_have_no_loop(platform):
  grad = jax.jit(jax.grad(lambda *args: fused(*args)[0])).trace(*values())
  text = grad.lower(lowering_platforms=(platform,)).as_text()
  assert ('stablehlo.while' in text) == (platform != 'cuda')


@pytest.mark.parametrize('word, value', [(0, np.inf), (1, np.inf), (2, np.nan)])
def test_a_logit_that_is_not_finite_makes_the_loss_so(word, value):
  bias = jnp.zeros(3).at[word].set(value)
  loss = lose_first(jnp.ones((1, 1)), jnp.zeros((3, 1)), bias)
  assert not np.isfinite(loss)


TABLE = jnp.arange(8.0).reshape(4, 2)
IDS = jnp.array([[0, 3], [3, 3]])
MORE = jnp.array([1, 3])


def test_an_id_of_no_row_is_not_a_number():
  """So that the update is skipped and the log says so."""
  _, found = tied_decoder.look_up('float32', TABLE, jnp.array([3, 4]))
  np.testing.assert_array_equal(np.isnan(found).any(-1), [False, True])


def sum_rows(table):
  table, found, more = tied_decoder.look_up('float32', table, IDS, MORE)
  return 100 * table.sum() + found.sum() + 10 * more.sum()


def test_the_gradient_of_a_row_is_that_of_all_its_uses():
  found = jax.jit(jax.grad(sum_rows))(TABLE)
  np.testing.assert_array_equal(found[:, 0], [101, 110, 100, 113])


def test_gradients_are_added_in_one_array():
  """Autodiff would make one for each of ids and add them up."""
  jaxpr = str(jax.make_jaxpr(jax.grad(sum_rows))(TABLE))
  assert jaxpr.count('scatter-add') == 2
  assert 'add_any' not in jaxpr
