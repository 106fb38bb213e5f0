"""Losses and accuracies as sums over examples; the caller normalises once."""

import jax
import jax.numpy as jnp


def sum_tokens(logits: jax.Array, labels: jax.Array, weights: jax.Array):
  """Sums cross-entropy and hits over weighted predictions.

  Args:
    logits: [..., V] float32.
    labels: [...] integers below V.
    weights: [...] 0 or 1; predictions of weight 0 contribute nothing.

  Returns:
    (loss, hits): the sum of -ln p(label) in nats, and the number of
    predictions whose label has the largest logit.

  >>> logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
  >>> loss, hits = sum_tokens(logits, jnp.array([0, 1]), jnp.array([1, 1]))
  >>> print(f'{loss:.3f} = ln 2 + ln 10, {hits:.0f} of 2')
  2.996 = ln 2 + ln 10, 1 of 2
  """
  weights = weights.astype(jnp.float32)
  log_z = jax.nn.logsumexp(logits, axis=-1)
  picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
  loss = jnp.sum((log_z - picked) * weights)
  # Not argmax: XLA does not vectorise it on CPUs.
  hits = jnp.sum((picked >= jnp.max(logits, axis=-1)) * weights)
  return loss, hits
