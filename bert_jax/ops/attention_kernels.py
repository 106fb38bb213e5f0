"""The bodies of `fused_attention`'s kernels. Sizes as in `model/encoder.py`.

If a row has several blocks of 128 queries, the forward pass keeps each query's
largest score and sum of exponentials for the backward pass, which takes the mean of
the gradients of a query's weights from output and gradient (Dao et al., 2022, arXiv
2205.14135, appendix B.2). A single block computes them again, which is faster.

Arrays [S, S] have keys along the sublanes and queries along the lanes: maxima
and sums over keys combine whole registers, and per-query values are one row.
Heads are processed in groups that fill the 128 lanes; to select one head, the
other heads' lanes of the smaller operand are set to zero.

The compiler keeps the order of the program when it schedules. So each block of
128 queries is a generator that yields between stages, and several blocks take
turns: the matrix unit works on one while the vector unit works on another.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from bert_jax.ops import dropout
from bert_jax.ops.attention_tiling import F32, LANES, Call, Step

# Pallas's reference to an array in the chip's memory, which [...] reads.
Ref = Any

_LOG2E = math.log2(math.e)
_QUERIES, _KEYS, _VALUES = 0, 1, 2  # their order in a row's 3 H K lanes


def forward(
  seeds: Ref,
  tokens: Ref,
  q: Ref,
  k: Ref,
  v: Ref,
  out: Ref,
  *refs: Ref,
  call: Call,
  step: Step,
  chip: bool,
):
  """Computes attention: the forward kernel, for one step of the grid.

  Args:
    seeds: int32 [4 B], see `dropout.make_seeds`.
    tokens: int32 [rows, 2, S], ids of keys, of queries; equal ids see each
      other.
    q, k, v, out: of the step's rows and heads, [rows, S, lanes].
    *refs: if there are several blocks, `statistics`, float32 [rows, groups, 2 n,
      S] for groups of n heads: each query's largest score of each head, and sum
      of exponentials. Then `bias`, float32 scratch, [S, S] or, if all queries see
      the same keys, [S, 128].
    chip: whether it runs on a TPU, whose generator can draw random bits.
  """
  *statistics, bias = refs

  def start(row, g, _, draw):
    keys, values = _take(k, row, g, call), _take(v, row, g, call).T

    def block(i):
      queries = _own(_scaled(_take(q, row, g, call, i), call), call)
      scores = [_scores(keys, x, bias, i, call) for x in queries]
      yield
      most = _maxima(scores)
      weights = _exponentiate(scores, most, call)
      totals = _sums(weights)
      for ref in statistics:
        ref[row, g, :, _part(i, LANES)] = jnp.concatenate([*most, *totals])
      weights = _cast(_drop(weights, draw(i)), call)
      yield
      # [K, 128] each; dividing these is cheaper than dividing the weights.
      mixed = [
        dot(values[own], x, 1, 0) * (256 / call.keep / total)
        for own, x, total in zip(call.heads, weights, totals, strict=True)
      ]
      yield
      _put(out, jnp.concatenate(mixed).T, row, g, call, i)

    return block, lambda: None

  _each_group(start, seeds, tokens, bias, call, step, chip)


def backward(
  seeds: Ref,
  tokens: Ref,
  q: Ref,
  k: Ref,
  v: Ref,
  grad: Ref,
  *refs: Ref,
  call: Call,
  step: Step,
  chip: bool,
):
  """Computes gradients: the backward kernel, for one step of the grid.

  Args, where they differ from `forward`'s:
    grad: gradient of `forward`'s output, like q.
    *refs: if there are several blocks, that output and `statistics`. Then `out`
      and the others below.
    out: gradients of queries, keys and values: of whole rows, [rows, S, 3 H K];
      if separate, of the step's heads, [3, rows, S, lanes].
    bias_grad: sums of `out` over rows and tokens, float32 [1, 1, 3 H K].
    bias, dk_sum, dv_sum: scratch, the last two float32 [groups, S, a group's
      lanes] for sums over queries.
  """
  *known, out, bias_grad, bias, dk_sum, dv_sum = refs
  writer = _make_writer(out, bias_grad, call, step)

  @pl.when(pl.program_id(1) == 0)
  def _():
    bias_grad[...] = jnp.zeros(bias_grad.shape, F32)

  def start(row, g, n, draw):
    keys, values = _take(k, row, g, call), _take(v, row, g, call)
    keys_t = keys.T  # [lanes, S]
    put = functools.partial(writer, row, g)

    def block(i):
      queries = _own(_scaled(_take(q, row, g, call, i), call), call)
      grads = _take(grad, row, g, call, i)
      dq, dk, dv = yield from _gradients(
        *(queries, _own(grads, call), keys, keys_t, values, bias, i, draw),
        *(_read(*known, grads, row, g, i, call) if known else None, call),
      )
      yield
      put(_QUERIES, jnp.concatenate(dq).T * call.scale, i)
      if call.blocks == 1:
        put(_KEYS, dk)
        put(_VALUES, dv)
      else:
        dv_sum[n] += dv
        dk_sum[n] += dk

    def finish():
      if call.blocks > 1:
        put(_KEYS, dk_sum[n])
        put(_VALUES, dv_sum[n])

    if call.blocks > 1:
      dk_sum[n] = dv_sum[n] = jnp.zeros(dk_sum.shape[1:], F32)
    return block, finish

  _each_group(start, seeds, tokens, bias, call, step, chip)


def _make_writer(out, bias_grad, call, step):
  width = bias_grad.shape[2] // 3
  first_lane = pl.program_id(1) * step.lanes
  rescale = 256 / call.keep

  def put(row, g, which, x, i=None):
    lane = pl.multiple_of(which * width + first_lane, LANES)
    x = x * rescale
    if step.separate:
      _put(out.at[which], x, row, g, call, i)
    else:
      _put(out, x, row, g, call, i, lane)
    own = _part(g, call.lanes, lane)
    bias_grad[0, :, own] += jnp.sum(x, 0, keepdims=True)

  return put


def _read(mixed, statistics, grads, row, g, i, call):
  """Returns what is known of block i's queries, three times [1, 128] by head.

  These are the largest scores, the sums of exponentials, and the means of the
  gradients of weights, with weights after dropout but before its scaling.
  """
  n = len(call.heads)
  found = jnp.split(statistics[row, g, :, _part(i, LANES)], 2 * n)
  products = grads.astype(F32) * _take(mixed, row, g, call, i).astype(F32)
  products = products.T * (call.keep / 256)
  return found[:n], found[n:], _sums([products[own] for own in call.heads])


def _gradients(
  queries, grads, keys, keys_t, values, bias, i, draw, known, call
):
  """Yields between the stages of block i, and returns its gradients.

  Args:
    queries: [128, lanes] for each head, as are grads.
    keys: [S, lanes], as are values; keys_t is its transpose.
    known: what `_read` returns; None for a single block.

  Returns:
    (dq, dk, dv) in float32: a list of [K, 128] by head, and [S, lanes] twice.
  """
  scores = [_scores(keys, x, bias, i, call) for x in queries]
  yield
  d_weights = [dot(values, x, 1, 1) for x in grads]
  kept = draw(i)
  most = known[0] if known else _maxima(scores)
  weights = _exponentiate(scores, most, call)
  totals = known[1] if known else _sums(weights)
  weights = [x * (1 / total) for x, total in zip(weights, totals, strict=True)]
  dropped = _cast(_drop(weights, kept), call)
  if not known:  # else the stage is short enough
    yield
  d_weights = _drop(d_weights, kept)
  means = known[2] if known else _sums(map(jnp.multiply, weights, d_weights))
  d_scores = zip(weights, d_weights, means, strict=True)
  d_scores = _cast([x * (d - mean) for x, d, mean in d_scores], call)
  yield
  dv = _sum_of_dots(dropped, grads)
  dq = [
    dot(keys_t[own], x, 1, 0)
    for own, x in zip(call.heads, d_scores, strict=True)
  ]
  dk = _sum_of_dots(d_scores, queries) * (1 / _get_unit(call))
  return dq, dk, dv


def _each_group(start, seeds, tokens, bias, call, step, chip):
  """Runs all blocks and then `finish`, both from start(row, g, n, draw).

  `start` begins group g of a row, the n-th of the groups that take turns.
  """
  first_row = pl.program_id(0) * step.rows
  first_group = pl.program_id(1) * (step.lanes // call.lanes)

  def draws(row, g):
    """Returns draw(i), the dropout masks of block i by head; None keeps all."""
    first = dropout.SEEDS * (first_row + row)
    seed = [seeds[first + n] for n in range(dropout.SEEDS)]

    def draw(i):
      if call.keep == 256:
        return None
      n = len(call.heads)
      return dropout.draw_kept(
        seed,
        [(first_group + g) * n + head for head in range(n)],
        i,
        length=call.shape[1],
        keep=call.keep,
        on_chip=chip and not call.threefry,
      )

    return draw

  def of_row(row):
    bias[...] = _bias(tokens[row], call)

    def of_groups(groups):
      started = [start(row, g, n, draws(row, g)) for n, g in enumerate(groups)]

      def of_blocks(blocks):
        _take_turns([block(i) for i in blocks for block, _ in started])

      _loop(call.blocks, of_blocks, step.blocks)
      for _, finish in started:
        finish()

    _loop(step.lanes // call.lanes, of_groups, step.groups)

  _loop(step.rows, lambda few: of_row(*few), 1)


def _loop(n, function, each):
  """Calls function(0), ..., function(n - 1), unrolled by `each`."""

  def several(i, _):
    function([i * each + j for j in range(each)])

  if n == each:
    several(0, None)
  else:
    jax.lax.fori_loop(0, n // each, several, None)


def _take_turns(waiting):
  """Runs generators in turn, each a stage behind its predecessor."""
  running = []
  while waiting or running:
    running, waiting = running + waiting[:1], waiting[1:]
    running = [x for x in running if next(x, True) is None]


def _bias(tokens, call):
  """Returns the mask to add to the scores, [S, S] or [S, 128]."""
  s = call.shape[1]
  unseen = max(call.mask_value * _get_unit(call), float(jnp.finfo(F32).min))
  ids = jnp.broadcast_to(tokens[:1], (LANES, s)).T  # [S, 128], of the keys
  if call.one_mask:
    return jnp.where(ids == 0, 0.0, unseen)
  seen = jnp.concatenate([ids] * call.blocks, 1) == tokens[1:]  # [S, S]
  if call.causal:
    place = functools.partial(jax.lax.broadcasted_iota, jnp.int32, (s, s))
    seen = seen & (place(0) <= place(1))
  return jnp.where(seen, 0.0, unseen)


def _scores(keys, queries, bias, i, call):
  """Returns the masked scores of block i, [S, 128]."""
  mask = bias[...] if call.one_mask else bias[:, _part(i, LANES)]
  return dot(keys, queries, 1, 1) + mask


def _maxima(arrays):
  return [jnp.max(x, 0, keepdims=True) for x in arrays]


def _sums(arrays):
  return [jnp.sum(x, 0, keepdims=True) for x in arrays]


def _exponentiate(scores, most, call):
  """Returns the exponentials of scores - most, [S, 128] for each head."""
  power = jnp.exp2 if call.blocks > 1 else jnp.exp
  return [power(x - y) for x, y in zip(scores, most, strict=True)]


def _drop(values, kept):
  if kept is None:
    return values
  return [jnp.where(b, x, 0.0) for b, x in zip(kept, values, strict=True)]


def _cast(values, call):
  return [x.astype(call.dtype) for x in values]


def _get_unit(call):
  """Returns what scores are multiplied by.

  With several blocks they are in units of ln 2, since the chip computes powers of
  two; but then bfloat16 queries are rounded once more, which a single block, which
  gains nothing, avoids.
  """
  return _LOG2E if call.blocks > 1 else 1.0


def _scaled(queries, call):
  scale = call.scale * _get_unit(call)
  return (queries.astype(F32) * scale).astype(call.dtype)


def _own(x, call):
  """Returns x [128, lanes] for each head, with the other heads' lanes zero."""
  lane = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
  return [
    jnp.where((lane >= own.start) & (lane < own.stop), x, jnp.zeros_like(x))
    for own in call.heads
  ]


def _sum_of_dots(a, b):
  dots = (dot(x, y, 1, 0) for x, y in zip(a, b, strict=True))
  return functools.reduce(jnp.add, dots)  # sum() would add a zero


def number_tokens(input_mask: jax.Array, sequence_ids: jax.Array | None):
  """Returns ids of keys and of queries, int32 [B, 2, S].

  Tokens of equal ids see each other: their sequence's, or 0 if sequence_ids, [B,
  S], is None. Keys that are padding have an id that no query has.
  """
  ids = jnp.zeros_like(input_mask) if sequence_ids is None else sequence_ids
  ids = ids.astype(jnp.int32)
  seen = jnp.where(input_mask.astype(bool), ids, jnp.iinfo(jnp.int32).min)
  return jnp.stack([seen, ids], 1)


def dot(a, b, a_axis, b_axis):
  """Contracts one axis of each in float32; does not round float32 inputs."""
  precision = jax.lax.Precision
  return jax.lax.dot_general(
    *(a, b, (((a_axis,), (b_axis,)), ((), ()))),
    precision=precision.HIGHEST if a.dtype == F32 else precision.DEFAULT,
    preferred_element_type=F32,
  )


def _part(i, size, first=0):
  """Returns the i-th slice of a size, declared as aligned for the TPU."""
  start = i * size if isinstance(i, int) else pl.multiple_of(i * size, size)
  return pl.ds(first + start, size)


def _take(ref, row, g, call, i=None):
  """Returns a group's lanes of a row, or of its i-th block."""
  queries = slice(None) if i is None else _part(i, LANES)
  return ref[row, queries, _part(g, call.lanes)]


def _put(ref, x, row, g, call, i=None, lane=0):
  queries = slice(None) if i is None else _part(i, LANES)
  ref[row, queries, _part(g, call.lanes, lane)] = x.astype(call.dtype)
