"""Tests of rows of embeddings."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.ops import embedding_rows

TABLE = jnp.arange(8.0).reshape(4, 2)
IDS = jnp.array([[0, 3], [3, 3]])
MORE = jnp.array([1, 3])


def test_rows_are_those_of_the_table():
  table, found, more = embedding_rows.look_up(TABLE, IDS, MORE)
  np.testing.assert_array_equal(table, TABLE)
  np.testing.assert_array_equal(found, [[[0, 1], [6, 7]], [[6, 7], [6, 7]]])
  np.testing.assert_array_equal(more, [[2, 3], [6, 7]])


def test_an_id_of_no_row_is_not_a_number():
  """So that the update is skipped and the log says so."""
  _, found = embedding_rows.look_up(TABLE, jnp.array([3, 4]))
  np.testing.assert_array_equal(np.isnan(found).any(-1), [False, True])


def loss(table):
  table, found, more = embedding_rows.look_up(table, IDS, MORE)
  return 100 * table.sum() + found.sum() + 10 * more.sum()


def test_the_gradient_of_a_row_is_that_of_all_its_uses():
  found = jax.jit(jax.grad(loss))(TABLE)
  np.testing.assert_array_equal(found[:, 0], [101, 110, 100, 113])


def test_gradients_are_added_in_one_array():
  """Autodiff would make one for each of ids and add them up."""
  jaxpr = str(jax.make_jaxpr(jax.grad(loss))(TABLE))
  assert jaxpr.count('scatter-add') == 2
  assert 'add_any' not in jaxpr
