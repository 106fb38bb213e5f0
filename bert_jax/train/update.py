"""What an update of the parameters needs besides state, batch and key."""

import dataclasses
from collections.abc import Callable
from typing import Any

import optax
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax.train import optimizer
from bert_jax.train import task as task_lib


@dataclasses.dataclass(frozen=True)
class Update:
  """How a phase updates the parameters.

  Attributes:
    objective: what to learn, see `task.Objective`.
    mesh: axes (data, model), see `device_mesh.make_mesh`.
    tx: the optimizer, from `optimizer.make`; takes the argument `finite`.
    schedule: step -> learning rate, from `optimizer.schedule`.
    parts: micro-batches; row r belongs to number r % parts, so that each
      device has rows of every one.
    clip: clips a micro-batch's gradient, see `optimizer.make_clip`, or None.
    dtype: type of the activations, to which the weights are rounded.
    reduce_dtype: type in which the devices' gradients are added.
  """

  objective: task_lib.Objective
  mesh: Mesh
  tx: optax.GradientTransformation
  schedule: Callable[[Any], Any]
  parts: int = 1
  clip: Callable[[Any], Any] | None = None
  dtype: str = 'float32'
  reduce_dtype: str = 'float32'


def make_update(
  config: config_dict.ConfigDict,
  objective: task_lib.Objective,
  phase: task_lib.Phase,
  mesh: Mesh,
) -> Update:
  """Returns the update of a phase.

  Args:
    config: the phase's config from `tuning.resolve`.
  """
  return Update(
    objective=objective,
    mesh=mesh,
    tx=optimizer.make(config.optimizer),
    schedule=optimizer.schedule(config.optimizer, sum(config.phases.steps)),
    parts=phase.accumulate,
    clip=optimizer.make_clip(config.optimizer),
    dtype=config.model.dtype,
    reduce_dtype=config.optimizer.reduce_dtype,
  )
