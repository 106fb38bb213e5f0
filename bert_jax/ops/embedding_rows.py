"""Rows of the word embeddings, which the decoder multiplies by, too."""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def look_up(table: jax.Array, *ids):
  """Returns the table, and table[i] for each of ids.

  The gradients of the rows are added to what comes back for the table. Autodiff
  would make an array as large as the table for each of ids and add those up.

  Args:
    table: [R, D]; use the one that is returned.
    *ids: integers below R, of any shape [...]; rows of others are not a number.

  Returns:
    [R, D], and [..., D] of each of ids.
  """
  return table, *(jnp.take(table, i, axis=0) for i in ids)


def _forward(table, *ids):
  return look_up(table, *ids), ids


def _backward(ids, gradients):
  total, *gradients = gradients
  for i, gradient in zip(ids, gradients, strict=True):
    total = total.at[i].add(gradient)
  return total, *(None for _ in ids)


look_up.defvjp(_forward, _backward)
