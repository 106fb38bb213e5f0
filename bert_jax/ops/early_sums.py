"""Sums gradients of a layer's kernels beside the backward pass of those below.

XLA may order independent instructions as it likes, and for TPUs it puts all sums
over the devices after the backward pass, where little computation is left to hide
them. Here the backward pass of a layer ends only when the kernels' gradients of
the layer above are summed.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax import param_names

_KEY = 'sums'  # beside the layers, in the encoder's parameters


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=['shards'],
  meta_fields=['add_up'],
)
@dataclasses.dataclass(frozen=True)
class Sums:
  """Arrays of a layer whose gradients are summed early."""

  # {name: zeros like the device's shard}, whose gradients are the sums' shards.
  shards: dict[str, jax.Array]
  # (name, gradient) -> the device's shard of the sum.
  add_up: Callable[[str, jax.Array], jax.Array]


def insert(params: Any, add_up: Callable, names: Collection[str]) -> Any:
  """Returns a model's parameters with `Sums` of its layers.

  Args:
    params: {'encoder': {layer: its parameters}, ...}.
    add_up: as in `Sums`.
    names: of the arrays whose gradients are summed early. Each must be read by
      its layer alone, after `enter`: the gradient of any other use is lost.
  """
  layers: dict[str, Any] = {}
  for name, x in param_names.flatten(params).items():
    if name in names:
      shard = jax.eval_shape(functools.partial(add_up, name), x)
      shards = layers.setdefault(name.split('/')[1], {})
      shards[name] = jnp.zeros(shard.shape, shard.dtype)
  sums = {layer: Sums(shards, add_up) for layer, shards in layers.items()}
  return {**params, 'encoder': {**params['encoder'], _KEY: sums}}


def extract(grads: Any) -> Any:
  """Returns gradients without `Sums`, whose shards replace whole gradients."""
  encoder = dict(grads['encoder'])
  sums = encoder.pop(_KEY).values()
  found = {name: x for one in sums for name, x in one.shards.items()}
  return param_names.map_named(
    lambda name, x: found.get(name, x), {**grads, 'encoder': encoder}
  )


def enter(x: jax.Array, turn: jax.Array, params: Any, layer: str):
  """Passes a layer's input and parameters on, and sums gradients on the way back.

  The gradient of the input waits for the sums of the layer above.

  Args:
    x: the layer's input.
    turn: 0, from the layer below. Only its gradient matters: it hands the layer
      below numbers that exist only once the sums of this layer are complete.
    params: of the encoder.
    layer: its name, such as layer_0.

  Returns:
    (x, the turn for the layer above, params of the layer); None for the latter if
    it has no `Sums`.
  """
  sums = params.get(_KEY, {}).get(layer)
  if sums is None:
    return x, turn, None
  params = params[layer]
  flat = param_names.flatten({'encoder': {layer: params}})
  arrays = {name: flat[name] for name in sums.shards}
  x, turn, arrays = _enter(sums.add_up, x, turn, arrays, sums.shards)
  new = param_names.map_named(
    lambda name, own: arrays.get(f'encoder/{layer}/{name}', own), params
  )
  return x, turn, new


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _enter(add_up, x, turn, arrays, shards):
  """Returns its inputs; its backward pass sums the gradients of the arrays."""
  del add_up, shards
  return x, turn, arrays


def _enter_forward(add_up, *inputs):
  return _enter(add_up, *inputs), None


def _enter_backward(add_up, _, gradients):
  dx, above, found = gradients
  # XLA drops an optimization_barrier before it schedules the instructions. A sum
  # that is not finite makes dx NaN, but then the update is skipped anyway.
  dx += (0 * above).astype(dx.dtype)
  shards = {name: add_up(name, x) for name, x in found.items()}
  # The halves of an array go around the rings separately: wait for both.
  ends = [x[(i,) * x.ndim] for x in shards.values() for i in (0, -1)]
  return dx, sum(ends), None, shards


_enter.defvjp(_enter_forward, _enter_backward)
