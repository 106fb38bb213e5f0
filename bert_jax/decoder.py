"""The tied decoder of masked tokens, and its loss.

The logits [N, V] of a batch would be the largest array of BERT-base at length
128. They are not kept: as soon as the product has a logit, it becomes
exp(logit - logit of the label), in the type of the activations, which is what
the backward pass multiplies by. Dividing by the sum of them is left to the
small side of each product, and what the labels add is a row each.
"""

import jax
import jax.numpy as jnp

# To logits of rows of the embeddings that are no words. Its exp is 0.
_NEVER = -1e9
# A logit counts as no more than this above its label's: of labels that are less
# likely than exp(-50), it tells no more. 30,000 such logits and a gradient of
# 1e-6 still leave their quotient a normal number.
_MOST = 50.0


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


def sums(x, table, bias, label_rows, vocab_size: int, labels, weights):
  """Sums cross-entropy and hits over weighted predictions.

  The same as `losses.token_sums(logits(...), labels, weights)`.

  Args:
    x, table, bias, vocab_size: as `logits`.
    label_rows: [..., D] float32, table[labels].
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
    label_rows.reshape(-1, x.shape[-1]),
    labels.reshape(-1),
    weights.reshape(-1).astype(jnp.float32),
  )


@jax.custom_vjp
def _sums(x, table, bias, label_rows, labels, weights):
  return _forward(x, table, bias, label_rows, labels, weights)[0]


def _forward(x, table, bias, label_rows, labels, weights):
  own = label_rows.astype(x.dtype).astype(jnp.float32)
  picked = jnp.sum(x.astype(jnp.float32) * own, -1) + bias[labels]  # [N]
  scores = logits(x, table, bias, len(bias))  # [N, V]
  is_label = labels[:, None] == jnp.arange(len(bias))[None]
  powers = jnp.exp(jnp.minimum(scores - picked[:, None], _MOST))
  powers = jnp.where(is_label, 0, powers)
  others = jnp.sum(powers, -1)  # without the label: 1 - p without rounding
  loss = jnp.sum(jnp.log1p(others) * weights)
  # Not argmax: XLA does not vectorise it on CPUs.
  hits = jnp.sum((jnp.max(powers, -1) <= 1) * weights)
  # Without the barrier, XLA would keep the scores, too.
  powers = jax.lax.optimization_barrier(powers.astype(x.dtype))
  return (loss, hits), (x, table, own, powers, others, labels, weights)


def _backward(kept, gradients):
  x, table, own, powers, others, labels, weights = kept
  # Of the logits: (powers - [is label] others) * scale.
  scale = gradients[0] * weights / (1 + others)  # [N]
  at_label = -others * scale
  product = dict(preferred_element_type=jnp.float32)
  dx = jnp.einsum('nv,vd->nd', powers, table, **product) * scale[:, None]
  dx = dx + at_label[:, None] * own
  scaled = (x * scale[:, None]).astype(x.dtype)
  dtable = jnp.einsum('nv,nd->vd', powers, scaled, **product)
  dbias = jnp.einsum(
    'kn,nv->kv', _eight(scale.astype(x.dtype)), powers, **product
  )
  dbias = dbias[0].at[labels].add(at_label)
  return (
    dx.astype(x.dtype),
    dtable.astype(table.dtype),
    dbias,
    at_label[:, None] * x,
    None,
    None,
  )


_sums.defvjp(_forward, _backward)


def _eight(row):
  """Returns a row eight times, which makes a matrix for a TPU's matrix unit.

  XLA would do the product with one in the vector unit, in nearly three times
  the cycles; the barrier hides from it that the rows are equal.
  """
  return jax.lax.optimization_barrier(
    jnp.broadcast_to(row[None], (8, len(row)))
  )
