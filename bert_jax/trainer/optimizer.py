"""AdamW with warm-up and linear decay (appendix A.2), LAMB and StableAdamW."""

import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import optax
from ml_collections import config_dict

from bert_jax import errors, param_names
from bert_jax.config import readings

# As in Google's code: everything else decays, word embeddings included.
NO_DECAY = re.compile(r'(^|/)\w*norm/|(^|/)bias$')
# One array of three matrices, [D, 3, H, K], which LAMB scales separately.
_QKV, _OF_ONE = 'attention/qkv/kernel', (0, 2, 3)


def make_schedule(
  fields: config_dict.ConfigDict, phases: config_dict.ConfigDict
) -> optax.Schedule:
  """Returns the learning rate of each update, by `optimizer.*` and `phases.*`.

  One schedule lasts for all phases, unless `phases.learning_rates` gives a
  phase a peak, a warm-up and a decay of its own. Phases after it whose peak is
  0 continue its decay. With `wsd`, each of these rates is held, and only the
  last decays.
  """
  parts = [(fields.learning_rate, fields.warmup_steps, sum(phases.steps))]
  if phases.learning_rates:
    parts = readings.list_decays(phases)
  if fields.schedule == 'wsd':
    falls = *[0] * (len(parts) - 1), fields.decay_steps
    made = zip(parts, falls, strict=True)
    schedules = [_rise_hold_fall(*part, fall) for part, fall in made]
  else:
    zero = fields.decay_from == 'zero'
    schedules = [_rise_and_fall(*part, from_zero=zero) for part in parts]
  ends = itertools.accumulate(steps for _, _, steps in parts)
  return optax.join_schedules(schedules, [*ends][:-1])


def _rise_and_fall(peak, warmup, steps, from_zero=False):
  """Returns the learning rate of each update of one warm-up and decay.

  It is 0 at update 0, rises linearly to the peak at `warmup`, falls to exactly
  0 at `steps`, and stays 0. From zero, the decay begins with the peak at update
  0, so the rate drops at the end of the warm-up, as in Google's
  `optimization.py`.

  >>> rate = _rise_and_fall(peak=0.5, warmup=2, steps=6)
  >>> [float(rate(step)) for step in range(8)]
  [0.0, 0.25, 0.5, 0.375, 0.25, 0.125, 0.0, 0.0]
  """
  gone = warmup / steps if from_zero else 0.0
  line = optax.linear_schedule(peak * (1 - gone), 0.0, steps - warmup)

  def decay(step):
    # Compiled, the line may end at 1e-12 or below 0.
    return jnp.where(step < steps - warmup, line(step), 0.0)

  return _rise_then(peak, warmup, decay)


def _rise_hold_fall(peak, warmup, steps, decay):
  """Returns the rate of a warm-up, a constant part and a decay by 1 - sqrt.

  It is 0 at `steps`, if there is a decay (arXiv 2405.18392).

  >>> rate = _rise_hold_fall(peak=0.5, warmup=2, steps=8, decay=4)
  >>> [round(float(rate(step)), 3) for step in range(9)]
  [0.0, 0.25, 0.5, 0.5, 0.5, 0.25, 0.146, 0.067, 0.0]
  """

  def fall(step):
    gone = (step - (steps - decay - warmup)) / max(decay, 1)
    return peak * (1 - jnp.sqrt(jnp.clip(gone, 0.0, 1.0)))

  return _rise_then(peak, warmup, fall)


def _rise_then(peak, warmup, then):
  if not warmup:
    return then
  rise = optax.linear_schedule(0.0, peak, warmup)
  return optax.join_schedules([rise, then], [warmup])


def decay_mask(params: Any):
  """Returns a tree of booleans: True where weight decay applies."""
  return param_names.map_named(
    lambda name, _: not NO_DECAY.search(name), params
  )


def make(fields: config_dict.ConfigDict) -> optax.GradientTransformation:
  """Returns the optimizer of `optimizer.*`, without the learning rate.

  The training step multiplies by `-schedule(step)` itself: a skipped update
  (non-finite gradient) must not advance Adam's count, yet the schedule has to
  reach 0 at the planned step. With `finite=False`, an update does not change
  the state, and the updates that it returns are meaningless.
  """
  adam = _adam(fields.b1, fields.b2, fields.epsilon)
  if not fields.bias_correction:
    adam = _without_bias_correction(adam)
  decay = optax.add_decayed_weights(fields.weight_decay, decay_mask)
  steps = [adam, decay]
  if fields.algorithm == 'stable_adamw':
    steps = [_stabilise(adam, decay, fields)]
  if fields.clip_unit == 'batch':
    steps.insert(0, optax.stateless(_clip(fields.clip_norm)))
  if fields.algorithm == 'lamb':
    steps.append(optax.stateless(_scale_by_trust_ratio))
  if fields.freeze:
    # First, so that the clipped norm is the norm of what is trained; last,
    # because weights decay.
    freeze = _freeze_named(fields.freeze)
    steps = [freeze, *steps, freeze]
  return optax.chain(*steps)


def _scale_by_trust_ratio(updates, params):
  """Scales the update of each matrix to the norm of its weights, for LAMB.

  As in the published runs of BERT (arXiv 1904.00962, algorithm 2): biases and
  LayerNorm keep their update; queries, keys and values have a ratio each.
  """

  def scale(name, update, weights):
    if NO_DECAY.search(name):
      return update
    axes = _OF_ONE if name.endswith(_QKV) else None
    own, new = (
      jnp.sqrt(jnp.sum(jnp.square(x), axes, keepdims=True))
      for x in (weights, update)
    )
    return update * jnp.where((own > 0) & (new > 0), own / new, 1.0)

  return param_names.map_named(scale, updates, params)


def _stabilise(adam, decay, fields):
  """Divides the update of each array by max(1, RMS), for StableAdamW.

  RMS is the root mean square of the gradient over the root of its second moment,
  of the whole array: queries, keys and values are one, as in ModernBERT, and rows
  that pad the vocabulary count as zeros. Weight decay is divided, too, and is
  multiplied by the learning rate, as in arXiv 2304.13013, algorithm 2. ModernBERT's
  (optimi's StableAdamW, `decouple_lr`) is multiplied by the rate over its peak:
  there 1e-5 at a peak of 8e-4 is 0.0125 here.
  """

  def divide(update, grad, nu):
    squares = jnp.square(grad) / jnp.maximum(nu, fields.epsilon**2)
    return update / jnp.maximum(jnp.sqrt(jnp.mean(squares)), 1.0)

  def update(grads, state, params, *, finite=True):
    updates, new = adam.update(grads, state, finite=finite)
    updates, _ = decay.update(updates, decay.init(params), params)
    nu = optax.tree.bias_correction(new.nu, fields.b2, new.count)
    return jax.tree.map(divide, updates, grads, nu), new

  return optax.GradientTransformationExtraArgs(adam.init, update)


def _freeze(pattern: str, grads: Any) -> Any:
  """Sets the gradients of the parameters that `optimizer.freeze` names to 0."""
  names = list(param_names.flatten(grads))
  frozen = {name for name in names if pattern and re.search(pattern, name)}
  if pattern and len(frozen) in (0, len(names)):
    raise errors.UserError(
      f'optimizer.freeze={pattern!r} is found in '
      f'{"every" if frozen else "no"} name of a parameter; names are '
      f'{errors.listing(names)}.'
    )
  return param_names.map_named(
    lambda name, g: jnp.zeros_like(g) if name in frozen else g, grads
  )


def _freeze_named(pattern):
  def init(params):
    _freeze(pattern, params)  # refuses the pattern before any update
    return optax.EmptyState()

  def update(updates, state, params=None):
    del params
    return _freeze(pattern, updates), state

  return optax.GradientTransformation(init, update)


def make_clip(fields: config_dict.ConfigDict):
  """Returns a function that clips a micro-batch's gradient, or None.

  If it is None, `make` clips the gradient of the batch.
  """
  if fields.clip_unit == 'batch':
    return None
  clip = _clip(fields.clip_norm)
  return lambda grads: clip(_freeze(fields.freeze, grads))


def _clip(most: float):
  """Returns `optax.clip_by_global_norm`, computed as one factor for all values.

  optax divides each value and then selects, which XLA compiles to a pass over
  the whole gradient; a product is fused into the passes that read it.
  """

  def clip(grads, params=None):
    del params
    norm = optax.tree.norm(grads)
    factor = jnp.where(norm < most, 1.0, most / norm)
    return jax.tree.map(lambda g: g * factor, grads)

  return clip


def _adam(b1: float, b2: float, epsilon: float):
  """Returns `optax.scale_by_adam` with the argument `finite`, see `make`."""
  adam = optax.scale_by_adam(b1=b1, b2=b2, eps=epsilon)

  def update(grads, state, params=None, *, finite=True):
    del params
    _, new = adam.update(grads, state)
    new = jax.tree.map(lambda x, y: jnp.where(finite, x, y), new, state)
    # Makes XLA's CPU compiler write the state before it is used: it makes one
    # pass per output array, and would keep a copy of the old state for the pass
    # over the parameters.
    new = jax.lax.platform_dependent(
      new, cpu=jax.lax.optimization_barrier, default=lambda x: x
    )
    mu = optax.tree.bias_correction(new.mu, b1, new.count)
    nu = optax.tree.bias_correction(new.nu, b2, new.count)
    return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu), new

  return optax.GradientTransformationExtraArgs(adam.init, update)


def _without_bias_correction(adam):
  """Turns bias correction off, which optax has no option for.

  The correction divides by 1 - decay ** count. With the count at its largest,
  where optax leaves it, that is exactly 1 from the first update on.
  """

  def init(params):
    state = adam.init(params)
    most = jnp.iinfo(state.count.dtype).max
    return state._replace(count=jnp.full_like(state.count, most))

  return optax.GradientTransformationExtraArgs(init, adam.update)
