"""Lists every program that a run executes on its devices.

`compilation` compiles them: for a run, before its first step; for `preflight`
and tests, without the devices. Not listed are programs that jax and Orbax
compile themselves (comparisons and barriers among hosts, single operations),
the fingerprint of the model that `init_from` names, and the three examples at
the end of a run; the last two run on one device.
"""

import dataclasses
import functools
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax.parallel import device_mesh, distributed, partition
from bert_jax.train import optimizer
from bert_jax.train import step as step_lib
from bert_jax.train import task as task_lib
from bert_jax.workdir import fingerprint

INITIALISE, PLACE, PLACE_KEY = 'initial state', 'placement', 'placement of keys'
FINGERPRINT, COUNT, VOTE = 'fingerprint', 'count of tokens', 'vote to stop'
GATHER, EVALUATE, TRAIN = 'gather for export', 'evaluation', 'training step'


@dataclasses.dataclass(frozen=True)
class Program:
  """A jitted function and the arguments that it is called with.

  Attributes:
    name: one of the constants above.
    length: tokens per sequence, for programs of a phase; otherwise None.
    phase: number of the phase; None if it belongs to none.
    jitted: the function, jitted.
    arguments: trees of jax.ShapeDtypeStruct, with shardings if they are on the
      mesh.
  """

  name: str
  jitted: Any
  arguments: tuple
  phase: int | None = None
  length: int | None = None

  @property
  def title(self) -> str:
    """Returns the program's name for use in a sentence."""
    if self.phase is None:
      return self.name
    return f'{self.name} at length {self.length}'

  def lower(self):
    """Traces and lowers it for the devices of its arguments."""
    return self.jitted.lower(*self.arguments)


def list_start(
  config: config_dict.ConfigDict, objective: task_lib.Objective, mesh: Mesh
) -> list[Program]:
  """Returns the programs of a run that belong to no phase.

  Args:
    mesh: axes (data, model), see `device_mesh.make_mesh`; may be of absent
      devices.
  """
  init, shapes, layout = plan_initial_state(config, objective, mesh)
  state = jax.tree.map(_place, shapes, layout)
  key = jax.eval_shape(lambda: jax.random.key(config.seed))
  run_key = jax.eval_shape(lambda: step_lib.run_key(config))
  found = [
    Program(INITIALISE, init, (key,)),
    Program(PLACE, distributed.jit_put(layout.params), (shapes.params,)),
    Program(
      PLACE_KEY, distributed.jit_put(device_mesh.replicate(mesh)), (run_key,)
    ),
    Program(FINGERPRINT, fingerprint.of_leaves, (state,)),
  ]
  if _hosts(mesh) > 1:
    found += [
      Program(VOTE, distributed.largest_of, (distributed.votes(mesh),)),
      Program(
        GATHER,
        distributed.jit_put(device_mesh.replicate(mesh)),
        (state.params,),
      ),
    ]
  return found


def list_phase(
  config: config_dict.ConfigDict,
  objective: task_lib.Objective,
  mesh: Mesh,
  phase: task_lib.Phase,
) -> list[Program]:
  """Returns the programs of a phase: how it trains, evaluates and counts.

  Args:
    config: the phase's config from `tuning.resolve`.
    objective: what to learn for this config.
    mesh: as in `list_start`.
  """
  _, shapes, layout = plan_initial_state(config, objective, mesh)
  state = jax.tree.map(_place, shapes, layout)
  key = jax.eval_shape(lambda: step_lib.run_key(config))
  rows = device_mesh.row_sharding(mesh)
  batch, held_out = (
    jax.tree.map(lambda x: _place(x, rows), objective.batch_shapes(phase, size))
    for size in (phase.batch_size, phase.eval_batch_size)
  )
  make = functools.partial(Program, phase=phase.number, length=phase.seq_length)
  found = [
    make(
      TRAIN,
      step_lib.jit_train(config, objective, phase, mesh),
      (state, batch, _place(key, device_mesh.replicate(mesh))),
    ),
    make(
      EVALUATE,
      step_lib.jit_eval(config, objective, mesh),
      (state.params, held_out),
    ),
  ]
  if _hosts(mesh) > 1:
    found.append(make(COUNT, distributed.sum_of, (batch['input_mask'],)))
  return found


def plan_initial_state(
  config: config_dict.ConfigDict, objective: task_lib.Objective, mesh: Mesh
):
  """Returns how to initialise a run's state, and its shardings.

  Returns:
    (init, shapes, layout): jitted, key -> `step.TrainState`; its shapes; and
    their shardings.

  Raises:
    errors.UserError: if `mesh.model` does not divide a parameter.
  """
  init = functools.partial(
    step_lib.init_state,
    objective=objective,
    tx=optimizer.make(config.optimizer),
  )
  shapes = jax.eval_shape(init, jax.random.key(0))
  layout = partition.state_shardings(mesh, shapes)
  return jax.jit(init, out_shardings=layout), shapes, layout


def gather_on_host(params: Any, start: dict[str, Program]):
  """Returns parameters as numpy arrays, on every process.

  Args:
    params: the model's parameters, on the mesh.
    start: {name: program} of `list_start`.
  """
  if GATHER in start:
    params = start[GATHER].jitted(params)
  return jax.device_get(params)


def _place(x, placed):
  return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed)


def _hosts(mesh) -> int:
  return len({device.process_index for device in mesh.devices.flat})
