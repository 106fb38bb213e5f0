"""The tied decoder of masked tokens, its loss, and rows of its table.

The logits [N, V] of a batch would be the largest array of BERT-base at length
128, so they are not stored. Each is replaced at once by its power, exp(logit -
label's logit), in the type of the activations; the backward pass multiplies by
these. Their normalisation is applied to the small operand of each product, and
the labels contribute one row each.

Softmax usually subtracts the largest logit of a row, which is known only after
all of them were computed. The label's logit works as well, unless another is so
much larger that exp overflows. Then, as when training diverges, a second pass
subtracts the largest, so loss and gradient are softmax's for all finite logits.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

# A logit that exceeds its label's by more than this is rare, and needs a second
# pass. With 30,000 logits this large, a gradient of 1e-6 divided by the sum of
# their powers is still a normal float32.
_FAR = 50.0
# Used as the label's logit in rows of weight 0: larger than any logit.
_UNUSED = 1e9


class Sample(NamedTuple):
  """The words that labels are compared with, if not all."""

  words: jax.Array  # int32 [C]
  log_counts: jax.Array  # float32 [C], ln of how many words each stands for


def compute_logits(
  x: jax.Array, table: jax.Array, bias: jax.Array, vocab_size: int
):
  """Computes logits, float32 [..., V].

  Args:
    x: [..., D] vectors at the predictions.
    table: [R, D] word embeddings, R at least V.
    bias: [R] float32.
    vocab_size: V.
  """
  # In bfloat16, a thirtieth of the rows would have a tie for the largest logit.
  table, wide = table.astype(x.dtype), jnp.float32
  found = jnp.einsum('...d,vd->...v', x, table, preferred_element_type=wide)
  found = found + bias.reshape((1,) * (x.ndim - 1) + bias.shape)
  return found[..., :vocab_size]


def sum_tokens(logits: jax.Array, labels: jax.Array, weights: jax.Array):
  """Returns sums over predictions: -ln p(label) in nats, and hits.

  A hit is a label with the largest logit.

  Args:
    logits: [..., V] float32.
    labels: [...] integers below V.
    weights: [...] 0 or 1; predictions of weight 0 contribute nothing.
  """
  weights = weights.astype(jnp.float32)
  log_z = jax.nn.logsumexp(logits, axis=-1)
  picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
  loss = jnp.sum((log_z - picked) * weights)
  # Not argmax: XLA does not vectorise it on CPUs.
  hits = jnp.sum((picked >= jnp.max(logits, axis=-1)) * weights)
  return loss, hits


def sum_losses(
  x: jax.Array,
  table: jax.Array,
  bias: jax.Array,
  label_rows: jax.Array,
  vocab_size: int,
  labels: jax.Array,
  weights: jax.Array,
  sample: Sample | None = None,
):
  """Returns `sum_tokens(compute_logits(...), labels, weights)`.

  With a sample, the loss is an estimate, and a hit is a label that no word of the
  sample beats.

  Args:
    x, table, bias, vocab_size: as `compute_logits`; with a sample, `table` has
      its rows only, [C, D].
    label_rows: [..., D] float32, table[labels].
    labels, weights: as `sum_tokens`.
  """
  labels = labels.reshape(-1)
  if sample is None:
    words = jnp.arange(len(bias)) < vocab_size
    bias, label_bias = jnp.where(words, bias, -jnp.inf), None
  else:
    bias, label_bias = bias[sample.words] + sample.log_counts, bias[labels]
  size = x.shape[-1]
  rows = x.reshape(-1, size), label_rows.reshape(-1, size)
  weights = weights.reshape(-1).astype(jnp.float32)
  return _sums(rows, (table, bias, label_bias), (labels, weights, sample))


@jax.custom_vjp
def _sums(rows, decoder, asked):
  return _forward(rows, decoder, asked)[0]


def _forward(rows, decoder, asked):
  x, label_rows = rows
  table, bias, label_bias = decoder
  labels, weights, sample = asked
  own = label_rows.astype(x.dtype).astype(jnp.float32)
  own_bias = bias[labels] if label_bias is None else label_bias
  picked = jnp.sum(x.astype(jnp.float32) * own, -1) + own_bias  # [N]
  # Unused rows have the label [PAD], which training never makes likely: they
  # must neither cause a second pass nor overflow.
  picked = jnp.where(weights == 0, _UNUSED, picked)
  powers, others, margin, raised = jax.lax.platform_dependent(
    _Logits(x, table, bias, labels, sample, picked),
    # There, a loop that may not run has the host wait for the device: 4 of the
    # 79 ms of a step of LARGE on an H200. Another pass takes 0.1 ms, as XLA
    # keeps the logits.
    cuda=functools.partial(_sum_powers, _repeated),
    default=functools.partial(_sum_powers, _corrected),
  )
  # Not argmax: XLA does not vectorise it on CPUs.
  hits = jnp.sum((margin <= 0) * weights)
  # The label's power is exp(-raised), which is 1 unless a second pass ran.
  rest = others + jnp.expm1(-raised)
  loss = raised + jnp.log1p(rest)
  # Otherwise an infinite logit of the label would give a loss of 0.
  loss = jnp.where(jnp.isfinite(picked), loss, jnp.nan)
  kept = x, table, own, powers, others, rest, asked
  return (jnp.sum(loss * weights), hits), kept


class _Logits(NamedTuple):
  """What the logits are computed from, and compared with."""

  x: jax.Array  # [N, D]
  table: jax.Array
  bias: jax.Array  # [V]; with a sample, V is its size, and it has `log_counts`
  labels: jax.Array
  sample: Sample | None
  picked: jax.Array  # [N] float32, the labels' logits


def _sum_powers(second, logits):
  """Returns powers [N, V] in x's type, their sums, margin and raised [N].

  Args:
    second: the second pass, `_corrected` or `_repeated`.
  """
  zero = jnp.zeros_like(logits.picked)
  powers, others, margin = _powers(logits, zero)
  raised = jnp.where(margin > _FAR, margin, 0)
  powers = powers.astype(logits.x.dtype)
  return *second(logits, raised, powers, others), margin, raised


def _powers(logits, raised):
  """Returns exp(logit - picked - raised), 0 at the labels.

  Args:
    raised: [N] float32, subtracted in addition.

  Returns:
    (powers [N, V], others [N], margin [N]): others are the powers' sums without
    the label, so that 1 - p is accurate; margin is the largest logit minus what
    was subtracted, of the words as they are, whatever they stand for.
  """
  x, table, bias, labels, sample, picked = logits
  words = jnp.arange(len(bias)) if sample is None else sample.words
  is_label = labels[:, None] == words[None]
  above = compute_logits(x, table, bias, len(bias)) - picked[:, None]  # [N, V]
  above = jnp.where(is_label, -jnp.inf, above - raised[:, None])
  powers = jnp.exp(above)
  alone = above if sample is None else above - sample.log_counts[None]
  return powers, jnp.sum(powers, -1), jnp.max(alone, -1)


def _corrected(logits, raised, powers, others):
  """Computes powers and sums again if `raised` is not zero everywhere.

  This is a loop that runs once or never: unlike `cond`, its inputs and outputs
  share memory.
  """
  # Without the barrier, XLA would keep the logits as well.
  powers = jax.lax.optimization_barrier(powers)
  dtype = logits.x.dtype
  # As narrow as the first pass has them.
  factors = logits.x, logits.table.astype(dtype)

  def again(carry):
    # The barrier keeps loop invariants inside the loop.
    (x, table), _ = jax.lax.optimization_barrier((factors, carry[0]))
    inside = logits._replace(x=x, table=table)
    powers, others, _ = _powers(inside, raised)
    return jnp.int32(0), powers.astype(dtype), others

  rows = jnp.sum(raised > 0, dtype=jnp.int32)
  return jax.lax.while_loop(
    lambda carry: carry[0] > 0, again, (rows, powers, others)
  )[1:]


def _repeated(logits, raised, powers, others):
  powers, others, _ = _powers(logits, raised)
  return powers.astype(logits.x.dtype), others


def _backward(kept, gradients):
  x, table, own, powers, others, rest, (labels, weights, sample) = kept
  # The logits' gradient is (powers - [is label] others) * scale.
  scale = gradients[0] * weights / (1 + rest)  # [N]
  at_label = -others * scale
  product = dict(preferred_element_type=jnp.float32)
  rounded = table.astype(x.dtype)
  dx = jnp.einsum('nv,vd->nd', powers, rounded, **product) * scale[:, None]
  dx = dx + at_label[:, None] * own
  scaled = (x * scale[:, None]).astype(x.dtype)
  dtable = jnp.einsum('nv,nd->vd', powers, scaled, **product)
  rows = _eight(scale.astype(x.dtype))
  dbias = jnp.einsum('kn,nv->kv', rows, powers, **product)[0]
  if sample is None:
    dbias = dbias.at[labels].add(at_label)
  of_rows = dx.astype(x.dtype), at_label[:, None] * x
  label_bias = None if sample is None else at_label
  return of_rows, (dtable.astype(table.dtype), dbias, label_bias), None


_sums.defvjp(_forward, _backward)


def _eight(row):
  """Repeats a row eight times, to make a matrix for a TPU's matrix unit.

  XLA would compute a product with a single row in the vector unit, in nearly
  three times the cycles; the barrier hides from it that the rows are equal.
  """
  return jax.lax.optimization_barrier(
    jnp.broadcast_to(row[None], (8, len(row)))
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def look_up(dtype: str, table: jax.Array, *ids):
  """Returns the table [R, D], and its rounded rows i, [..., D], for each of `ids`.

  The rows' gradients are added in place to the returned table's gradient.
  Autodiff would make an array as large as the table for each of `ids`, and add
  these.

  Args:
    dtype: the type to which rows are rounded.
    table: [R, D]; afterwards, use the returned table instead.
    *ids: integers below R, of any shape [...]; other ids give NaN.

  Returns:
    The table as it is, and rows, float32 so that sums of them are not rounded.
  """
  rounded = table.astype(dtype)
  rows = (jnp.take(rounded, i, axis=0) for i in ids)
  return table, *(row.astype(jnp.float32) for row in rows)


def _look_up_forward(dtype, table, *ids):
  return look_up(dtype, table, *ids), ids


def _look_up_backward(dtype, ids, gradients):
  del dtype
  total, *gradients = gradients
  for i, gradient in zip(ids, gradients, strict=True):
    total = total.at[i].add(gradient)
  return total, *(None for _ in ids)


look_up.defvjp(_look_up_forward, _look_up_backward)
