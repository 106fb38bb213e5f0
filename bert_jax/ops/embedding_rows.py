"""Looks up rows of the word embeddings, which the decoder uses, too."""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def look_up(table: jax.Array, *ids):
  """Returns the table, and table[i] for each of `ids`.

  The rows' gradients are added in place to the returned table's gradient.
  Autodiff would make an array as large as the table for each of `ids`, and add
  these.

  Args:
    table: [R, D]; afterwards, use the returned one instead.
    *ids: integers below R, of any shape [...]; other ids give NaN.

  Returns:
    The table [R, D], and rows [..., D] for each of `ids`.
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
