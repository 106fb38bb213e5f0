"""Models the memory of a training step whose compiler is not available.

What the forward pass keeps is counted exactly, from jax's trace of the training
step's loss; short-lived arrays are modelled. Compilers may keep less (they
compute cheap values again) or more (copies in another layout).
"""

import dataclasses
import math

import jax
import jax.extend.core
import jax.numpy as jnp
from jax.interpreters import partial_eval
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax import tasks
from bert_jax.model import precision
from bert_jax.ops import recomputed_attention
from bert_jax.preflight import compile_step
from bert_jax.train import programs, shortage, task
from bert_jax.train.step import run_key

# cuBLAS asks for tens of MiB, the collectives for some more.
_LIBRARIES = 2**28
# Arrays [rows, S, F] that live at once in the backward pass of an MLP.
_MLP_ARRAYS = 3
# Primitives whose result is their argument, differently shaped.
_VIEWS = ('reshape', 'squeeze', 'expand_dims')


@dataclasses.dataclass(frozen=True)
class Memory:
  """Memory of one device in bytes, by kind."""

  parameters: float
  optimizer: float
  batch: float
  weights: float  # parameters gathered and rounded to the activations' type
  gradients: float  # and their sum over micro-batches
  activations: float  # what the forward pass keeps for the backward pass
  logits: float  # of the tokens that are predicted
  # Short-lived arrays: scores of attention, products of the MLP, a layer that
  # is computed again; and the libraries' own.
  workspace: float

  @property
  def total(self) -> float:
    return sum(dataclasses.astuple(self))

  @property
  def fixed(self) -> float:
    """Returns the bytes that do not depend on batch and micro-batches."""
    # Weights, and as much for the gradients of a micro-batch.
    return self.parameters + self.optimizer + 2 * self.weights + _LIBRARIES


def model_step(
  config: config_dict.ConfigDict, phase: task.Phase, mesh: Mesh
) -> Memory:
  """Models the training step of a phase.

  Args:
    config: the phase's config from `tuning.resolve`.
    mesh: axes (data, model), over any devices. Activations are counted as if
      `model` did not split them.
  """
  objective = tasks.get(config).make_objective(config)
  step, *_ = programs.list_phase(config, objective, mesh, phase)
  state, *rest = step.arguments
  rows = phase.batch_size // (phase.accumulate * mesh.shape['data'])
  kept, logits = _count_kept(config, objective, phase, rows)
  sums = compile_step.count_gradient_bytes(config, mesh)
  # The gradients of a micro-batch have the weights' type.
  weights = sums * jnp.dtype(config.model.dtype).itemsize // 4
  return Memory(
    parameters=shortage.count_bytes(state.params),
    optimizer=shortage.count_bytes(state.opt_state),
    batch=shortage.count_bytes(rest),
    weights=weights,
    gradients=weights + (sums if phase.accumulate > 1 else 0),
    activations=kept,
    logits=logits,
    workspace=_LIBRARIES
    + _count_passing(config, phase, rows, logits)
    + _count_repeated(config, phase, rows),
  )


def _count_kept(config, objective, phase, rows) -> tuple[int, int]:
  """Returns the bytes that the backward pass of some rows needs.

  Returns:
    (activations, logits), each array once; weights are not counted.
  """
  params = jax.eval_shape(
    lambda key: precision.cast(objective.init(key), config.model.dtype),
    jax.random.key(0),
  )
  key = jax.eval_shape(lambda: run_key(config))
  batch = objective.batch_shapes(phase, rows)

  def pull(params, batch, key):
    def loss(params):
      sums, _ = objective.compute(params, batch, key)
      return sum(sums[name] for name in objective.losses)

    return jax.vjp(loss, params)[1]

  forward, shapes = jax.make_jaxpr(pull, return_shape=True)(params, batch, key)
  table = params['embeddings']['word']['embedding'].shape
  found = {True: 0, False: 0}
  for x in _list_kept(
    forward.jaxpr, _needed(shapes), len(jax.tree.leaves(params))
  ):
    if x.shape == table:  # which is passed through
      continue
    size = config.objective.sampled_words or config.data.vocab_size
    large = len(x.shape) == 2 and x.shape[1] >= size
    found[large] += math.prod(x.shape) * x.dtype.itemsize
  return found[False], found[True]


def _needed(pull) -> list[bool]:
  """Returns which leaves of a `jax.vjp` function it uses."""
  backward = jax.make_jaxpr(lambda f: f(jnp.float32(1)))(pull).jaxpr
  outputs = [True] * len(backward.outvars)
  return partial_eval.dce_jaxpr(backward, outputs)[1]


def _list_kept(jaxpr, needed, parameters: int) -> list:
  """Returns types of the needed outputs that depend on more than parameters.

  Args:
    jaxpr: of a function whose first arguments are the parameters.
    needed: for each output, whether it counts.
    parameters: their number.
  """
  depends, made_by = set(jaxpr.invars[parameters:]), {}
  for eqn in jaxpr.eqns:
    inputs = [x for x in eqn.invars if isinstance(x, jax.extend.core.Var)]
    if any(x in depends for x in inputs):
      depends.update(eqn.outvars)
    if eqn.primitive.name in _VIEWS:
      made_by[eqn.outvars[0]] = inputs[0]

  def source(x):
    while x in made_by:
      x = made_by[x]
    return x

  found = {
    source(x): x.aval
    for x, counts in zip(jaxpr.outvars, needed, strict=True)
    if counts and isinstance(x, jax.extend.core.Var) and x in depends
  }
  extended = jax.dtypes.extended  # such as keys
  return [x for x in found.values() if not jnp.issubdtype(x.dtype, extended)]


def _count_repeated(config, phase, rows) -> int:
  """Returns the bytes of a layer's activations, if they are computed again."""
  if config.compute.remat == 'none':
    return 0
  plain = config.copy_and_resolve_references()
  plain.compute.remat = 'none'
  objective = tasks.get(plain).make_objective(plain)
  kept, _ = _count_kept(plain, objective, phase, rows)
  return kept // plain.model.num_layers


def _count_passing(config, phase, rows, logits) -> int:
  """Returns the bytes of short-lived arrays while all activations are alive.

  Args:
    logits: bytes of them, as the backward pass needs them.
  """
  m, length = config.model, phase.seq_length
  itemsize = jnp.dtype(m.dtype).itemsize
  # Scores in float32 and their gradient, weights and their gradient in the
  # type of the activations, and the bytes of dropout.
  each = 2 * 4 + 2 * itemsize + (m.attention_dropout > 0)
  pairs = rows * m.num_heads * length**2
  if config.compute.attention == 'recompute':
    blocks = recomputed_attention.choose_blocks(
      rows,
      m.num_heads,
      length,
      recomputed_attention.BLOCK,
      config.compute.heads != 'separate',
    )
    pairs //= blocks.count
  elif config.compute.attention != 'xla':
    pairs = 0
  mlp = _MLP_ARRAYS * rows * length * m.mlp_size * itemsize
  # Logits are float32 before they are rounded.
  return max(pairs * each, mlp, logits * 4 // itemsize)
