"""The tied decoder of masked tokens, and its loss.

The logits [N, V] of a batch would be the largest array of BERT-base at length
128. They are not kept: as soon as the product has a logit, it becomes
exp(logit - logit of the label), in the type of the activations, which is what
the backward pass multiplies by. Dividing by the sum of them is left to the
small side of each product, and what the labels add is a row each.

The largest logit of a row, which softmax usually subtracts, is known only once
all of them were computed. The label's does as well unless another is so far
above it that exp overflows. Then, as when training diverges, a second pass
subtracts the largest: loss and gradient are those of softmax for any finite
logits.
"""

import jax
import jax.numpy as jnp

# A logit further than this above its label's is rare and needs a second pass.
# 30,000 such powers and a gradient of 1e-6 still leave their quotient a normal
# number.
_FAR = 50.0
# The logit of the label of a row without weight: above any.
_UNUSED = 1e9


def compute_logits(
  x: jax.Array, table: jax.Array, bias: jax.Array, vocab_size: int
):
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


def sum_losses(
  x: jax.Array,
  table: jax.Array,
  bias: jax.Array,
  label_rows: jax.Array,
  vocab_size: int,
  labels: jax.Array,
  weights: jax.Array,
):
  """Sums cross-entropy and hits over weighted predictions.

  The same as `losses.token_sums(logits(...), labels, weights)`.

  Args:
    x, table, bias, vocab_size: as `compute_logits`.
    label_rows: [..., D] float32, table[labels].
    labels: [...] integers below V.
    weights: [...] 0 or 1; what has weight 0 moves nothing.

  Returns:
    (loss, hits), see `losses.sum_tokens`.
  """
  words = jnp.arange(len(bias)) < vocab_size
  return _sums(
    x.reshape(-1, x.shape[-1]),
    table,
    jnp.where(words, bias, -jnp.inf),
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
  # Labels of unused rows are [PAD], which no training makes more likely: such a
  # row must neither call for the second pass nor overflow.
  picked = jnp.where(weights == 0, _UNUSED, picked)
  zero = jnp.zeros_like(picked)
  powers, others, margin = _powers(x, table, bias, labels, picked, zero)
  # Not argmax: XLA does not vectorise it on CPUs.
  hits = jnp.sum((margin <= 0) * weights)
  raised = jnp.where(margin > _FAR, margin, 0)
  powers, others = _corrected(
    x, table, bias, labels, picked, raised, powers.astype(x.dtype), others
  )
  # The label's power is exp(-raised): 1 in all but the rarest rows.
  rest = others + jnp.expm1(-raised)
  loss = raised + jnp.log1p(rest)
  # Else an infinite logit of the label would count as certain.
  loss = jnp.where(jnp.isfinite(picked), loss, jnp.nan)
  found = jnp.sum(loss * weights), hits
  return found, (x, table, own, powers, others, rest, labels, weights)


def _powers(x, table, bias, labels, picked, raised):
  """Returns exp(logit - picked - raised), 0 at the labels.

  Args:
    x: [N, D].
    table, bias: of V words.
    labels: [N].
    picked: [N] float32, the labels' logits.
    raised: [N] float32, what is subtracted beside them.

  Returns:
    The powers [N, V]; their sums [N]: without the label, so that 1 - p is not
    rounded; and how far the largest logit is above what was subtracted [N].
  """
  is_label = labels[:, None] == jnp.arange(len(bias))[None]
  above = compute_logits(x, table, bias, len(bias)) - picked[:, None]  # [N, V]
  above = jnp.where(is_label, -jnp.inf, above - raised[:, None])
  powers = jnp.exp(above)
  return powers, jnp.sum(powers, -1), jnp.max(above, -1)


def _corrected(x, table, bias, labels, picked, raised, powers, others):
  """Computes powers and sums again if anything is raised.

  As a loop, which runs once or never: unlike those of `cond`, what goes in and
  what comes out share their memory.
  """
  # Without the barrier, XLA would keep the logits, too.
  powers = jax.lax.optimization_barrier(powers)

  def again(carry):
    # It keeps in the loop what is the same in each turn.
    (inside, wide), _ = jax.lax.optimization_barrier(((x, table), carry[0]))
    # Rounded as before, yet in float32: XLA for TPUs would round the table
    # ahead of the loop, whether that runs or not.
    kind = jnp.finfo(x.dtype)
    wide = jax.lax.reduce_precision(wide, kind.nexp, kind.nmant)
    inside = inside.astype(jnp.float32)
    powers, others, _ = _powers(inside, wide, bias, labels, picked, raised)
    return jnp.int32(0), powers.astype(x.dtype), others

  rows = jnp.sum(raised > 0, dtype=jnp.int32)
  return jax.lax.while_loop(
    lambda carry: carry[0] > 0, again, (rows, powers, others)
  )[1:]


def _backward(kept, gradients):
  x, table, own, powers, others, rest, labels, weights = kept
  # Of the logits: (powers - [is label] others) * scale.
  scale = gradients[0] * weights / (1 + rest)  # [N]
  at_label = -others * scale
  product = dict(preferred_element_type=jnp.float32)
  rounded = table.astype(x.dtype)
  dx = jnp.einsum('nv,vd->nd', powers, rounded, **product) * scale[:, None]
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
