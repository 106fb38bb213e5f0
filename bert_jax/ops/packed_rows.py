"""Brings hidden states of packed rows back to the rows that were packed."""

import jax
import jax.numpy as jnp
import numpy as np

# The prefix of the names of a batch's arrays that hold packed rows.
PREFIX = 'packed/'


def select(batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
  """Returns a batch's arrays of packed rows by their own names; maybe {}."""
  return {
    name.removeprefix(PREFIX): x
    for name, x in batch.items()
    if name.startswith(PREFIX)
  }


@jax.custom_vjp
def unpack(x: jax.Array, places: jax.Array, origins: jax.Array) -> jax.Array:
  """Returns the hidden states of B rows, given R packed rows.

  The gradient is a gather, too: autodiff would make a scatter, which devices
  compute sequentially.

  Args:
    x: [R, S, D].
    places: where each token of the B rows is in `x`, as r * S + s, int [B, S];
      -1 for padding.
    origins: where each token of `x` is in the B rows, likewise, int [R, S].

  Returns:
    [B, S, D]; zeros for padding.
  """
  return _gather(x, places)


def _gather(x, places):
  found = x.reshape(-1, x.shape[-1])[jnp.maximum(places, 0)]
  return jnp.where((places >= 0)[..., None], found, jnp.zeros_like(found))


def _forward(x, places, origins):
  return _gather(x, places), (places, origins)


def _backward(saved, gradient):
  places, origins = (np.zeros(x.shape, jax.dtypes.float0) for x in saved)
  return _gather(gradient, saved[1]), places, origins


unpack.defvjp(_forward, _backward)
