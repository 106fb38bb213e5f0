"""The tied decoder of masked tokens, and its loss.

The logits [N, V] of a batch are the largest array of BERT-base at length 128.
The loss and its gradient here pass over them once each way: what the backward
pass multiplies by is exp(logit - maximum), kept in the type of the activations;
dividing by its sum is left to the small side of each product.
"""

import jax
import jax.numpy as jnp

# To logits of rows of the embeddings that are no words. Its exp is 0.
_NEVER = -1e9


def logits(x, table, bias, vocab_size: int):
  """Computes the logits of vectors.

  Args:
    x: [..., D].
    table: [R, D] word embeddings, R at least V.
    bias: [R] float32.
    vocab_size: V.

  Returns:
    [..., V] float32.
  """
  # Rounded to bfloat16, every thirtieth row of logits would tie at its top.
  found = jnp.einsum(
    '...d,vd->...v',
    x,
    table.astype(x.dtype),
    preferred_element_type=jnp.float32,
  )
  found = found + bias.reshape((1,) * (x.ndim - 1) + bias.shape)
  return found[..., :vocab_size]


def sums(x, table, bias, vocab_size: int, labels, weights):
  """Sums cross-entropy and hits over weighted predictions.

  The same as `losses.token_sums(logits(...), labels, weights)`.

  Args:
    x, table, bias, vocab_size: as `logits`.
    labels: [...] integers below V.
    weights: [...] 0 or 1; what has weight 0 moves nothing.

  Returns:
    (loss, hits), see `losses.token_sums`.
  """
  words = jnp.arange(len(bias)) < vocab_size
  return _sums(
    x.reshape(-1, x.shape[-1]),
    table.astype(x.dtype),
    jnp.where(words, bias, _NEVER),
    labels.reshape(-1),
    weights.reshape(-1).astype(jnp.float32),
  )


@jax.custom_vjp
def _sums(x, table, bias, labels, weights):
  return _forward(x, table, bias, labels, weights)[0]


def _forward(x, table, bias, labels, weights):
  scores = logits(x, table, bias, len(bias))  # [N, V]
  top = jnp.max(scores, -1)
  is_label = _is_label(labels, len(bias))
  picked = jnp.sum(jnp.where(is_label, scores, 0), -1)
  powers = jnp.where(is_label, 0, jnp.exp(scores - top[:, None]))
  others = jnp.sum(powers, -1)  # without the label: 1 - p without rounding
  total = others + jnp.exp(picked - top)
  loss = jnp.sum((jnp.log(total) + top - picked) * weights)
  # Not argmax: XLA does not vectorise it on CPUs.
  hits = jnp.sum((picked >= top) * weights)
  # Without the barrier, XLA keeps the scores and takes exp three times more.
  powers = jax.lax.optimization_barrier(powers.astype(x.dtype))
  kept = x, table, powers, others, total, labels, weights
  return (loss, hits), kept


def _backward(kept, gradients):
  x, table, powers, others, total, labels, weights = kept
  # Of the logits: (powers - [is label] others) * scale.
  scale = gradients[0] * weights / total  # [N]
  slopes = jnp.where(
    _is_label(labels, len(table)),
    -others[:, None].astype(powers.dtype),
    powers,
  )
  product = dict(preferred_element_type=jnp.float32)
  dx = jnp.einsum('nv,vd->nd', slopes, table, **product) * scale[:, None]
  scaled = (x * scale[:, None]).astype(x.dtype)
  dtable = jnp.einsum('nv,nd->vd', slopes, scaled, **product)
  dbias = jnp.einsum(
    'kn,nv->kv', _eight(scale.astype(x.dtype)), slopes, **product
  )
  return dx.astype(x.dtype), dtable.astype(table.dtype), dbias[0], None, None


_sums.defvjp(_forward, _backward)


def _eight(row):
  """Returns a row eight times, which makes a matrix for a TPU's matrix unit.

  XLA would do the product with one in the vector unit, in nearly three times
  the cycles; the barrier hides from it that the rows are equal.
  """
  return jax.lax.optimization_barrier(
    jnp.broadcast_to(row[None], (8, len(row)))
  )


def _is_label(labels, size):
  return labels[:, None] == jnp.arange(size)[None]
