"""Sharding rules for parameters and the optimizer's state, by name.

Tensor parallelism as in Megatron-LM (arXiv 1909.08053): attention is split by
heads and the MLP by its inner size, so each sublayer needs one all-reduce.
ZeRO-1 (arXiv 1910.02054, stage 1) shards the float32 parameters and the
optimizer's moments over `data`; for the computation, parameters are gathered.
"""

import math
import re
from typing import Any

from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax import errors, param_names

RULES = (
  (r'embeddings/word/embedding', P('model', None)),  # [V, D]
  (r'embeddings/(position|type)/embedding', P(None, None)),
  (r'encoder/layer_\d+/attention/qkv/kernel', P(None, None, 'model', None)),
  (r'encoder/layer_\d+/attention/qkv/bias', P(None, 'model', None)),
  (r'encoder/layer_\d+/attention/out/kernel', P('model', None, None)),
  (r'encoder/layer_\d+/attention/out/bias', P(None)),  # [D]
  # [D, F], or [D, 2, F] with a gate
  (r'encoder/layer_\d+/mlp_in/kernel', P(None, 'model')),
  (r'encoder/layer_\d+/mlp_in/bias', P('model')),
  (r'encoder/layer_\d+/mlp_out/kernel', P('model', None)),  # [F, D]
  (r'encoder/layer_\d+/mlp_out/bias', P(None)),
  (r'(.+/)?\w*norm/(scale|bias)', P(None)),
  (r'mlm/bias', P('model')),  # [V]
  (r'(\w+/transform|pooler|nsp|classifier|bilstm/.+)/kernel', P(None, None)),
  (r'(mlm/transform|pooler|nsp|classifier|bilstm/.+)/bias', P(None)),
  (r'mix/(weights|scale)', P(None)),
)
# Smaller parameters are whole on every device: biases and LayerNorms, 192 of the 303
# arrays of LARGE, are 4 MB with their moments, but each would be a gather of its own,
# whose latency nothing hides.
LEAST_SHARDED = 1 << 16  # values
_MOMENT = re.compile(r'opt_state/(\d+/)?(mu|nu)/(?P<parameter>.+)')
_NUMBER = re.compile(r'step|opt_state/(\d+/)?count')


def compute_spec(mesh: Mesh, name: str, shape: tuple[int, ...]) -> P:
  """Returns how a parameter is sharded in the computation: over `model` or not.

  Raises ValueError if no rule matches the name, and errors.UserError if `model`
  does not divide the dimension.
  """
  own = name.removeprefix('beside/')  # of the second of two models
  found = [spec for rule, spec in RULES if re.fullmatch(rule, own)]
  if not found:
    raise ValueError(f'no rule places {name!r}; add one to partition.RULES.')
  spec, n = found[0], mesh.shape['model']
  if n == 1 or 'model' not in spec:
    return P(*[None] * len(shape))
  spec = P(*[None] * (len(shape) - len(spec)), *spec)
  size = shape[spec.index('model')]
  if size % n == 0:
    return spec
  raise errors.UserError(
    f'{name} cannot be split: mesh.model={n} does not divide {size}; use '
    'another mesh.model.'
  )


def stored_spec(mesh: Mesh, name: str, shape: tuple[int, ...]) -> P:
  """Returns how a parameter, its gradient and its moments are stored.

  They are sharded over `model` as in `compute_spec`, and over `data` along the
  largest other dimension that `data` divides (the first of equals). If there is
  none, or they have fewer than LEAST_SHARDED values, they are replicated over
  `data`. Raises as `compute_spec` does.
  """
  spec, n = compute_spec(mesh, name, shape), mesh.shape['data']
  free = [i for i, axis in enumerate(spec) if axis is None and not shape[i] % n]
  if n == 1 or not free or math.prod(shape) < LEAST_SHARDED:
    return spec
  split = max(free, key=lambda i: shape[i])
  return P(*['data' if i == split else axis for i, axis in enumerate(spec)])


def stored_shardings(mesh: Mesh, params: Any):
  """Returns the tree of `stored_spec` shardings of parameters or shapes."""
  return param_names.map_named(
    lambda name, x: stored_spec(mesh, name, x.shape), params
  )


def state_shardings(mesh: Mesh, tree: Any):
  """Returns the shardings of a `step.TrainState`, or of its shapes."""

  def spec(name, x):
    if _NUMBER.fullmatch(name):
      return P()
    if name.startswith('params/'):
      return stored_spec(mesh, name.removeprefix('params/'), x.shape)
    found = _MOMENT.fullmatch(name)
    if not found:
      raise ValueError(f'no rule places {name!r}; add one to its rules.')
    return stored_spec(mesh, found['parameter'], x.shape)

  return param_names.map_named(
    lambda n, x: NamedSharding(mesh, spec(n, x)), tree
  )
