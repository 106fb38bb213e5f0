"""What an update of the parameters needs beside state, batch and key."""

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
    task: what to learn.
    mesh: of `device_mesh.make_mesh`.
    tx: of `optimizer.make`; its state must not follow what is not `finite`.
    schedule: of `optimizer.schedule`, step -> learning rate.
    parts: micro-batches; row r belongs to number r % parts, so that each
      device finds rows of its own in every one.
    clip: of `optimizer.make_clip`, for each micro-batch; None clips none.
    dtype: of activations, to which the weights are rounded.
    reduce_dtype: in which the devices' gradients are added.
  """

  task: task_lib.Objective
  mesh: Mesh
  tx: optax.GradientTransformation
  schedule: Callable[[Any], Any]
  parts: int = 1
  clip: Callable[[Any], Any] | None = None
  dtype: str = 'float32'
  reduce_dtype: str = 'float32'


def make_update(
  config: config_dict.ConfigDict,
  task: task_lib.Objective,
  phase: task_lib.Phase,
  mesh: Mesh,
) -> Update:
  """Returns the update of a phase.

  Args:
    config: of `tuning.resolve`.
    task: what to learn.
    phase: one of `task.list_phases`.
    mesh: of `device_mesh.make_mesh`.
  """
  return Update(
    task=task,
    mesh=mesh,
    tx=optimizer.make(config.optimizer),
    schedule=optimizer.schedule(config.optimizer, sum(config.phases.steps)),
    parts=phase.accumulate,
    clip=optimizer.make_clip(config.optimizer),
    dtype=config.model.dtype,
    reduce_dtype=config.optimizer.reduce_dtype,
  )
