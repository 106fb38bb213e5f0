"""Compiles training steps for absent TPUs, and rates their cycles."""

from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax import tasks
from bert_jax.hardware import chips
from bert_jax.preflight import compile_step
from bert_jax.train import programs, task, tuning


def compile_training(
  config: config_dict.ConfigDict, phase: task.Phase, mesh: Mesh
) -> compile_step.Compiled:
  """Compiles the training step of a phase for a mesh, as `fit.fit` would."""
  device = mesh.devices.flat[0]
  config = tuning.resolve(config, device, phase.seq_length)
  listed = programs.list_phase(
    config, tasks.get(config).make_objective(config), mesh, phase
  )
  step = next(p for p in listed if p.name == programs.TRAIN)
  (outcome,) = programs.compile_all([step], device.platform, lambda line: None)
  if outcome.refused:
    programs.get_executables([outcome])
  return compile_step.examine(outcome)


def compute_cycle_utilisation(
  flops: float, seconds: float, chip: chips.Chip
) -> float:
  """Returns the FLOPs of a device per cycle, relative to a large product's."""
  return flops / (seconds * chip.cycles_per_second) / chip.product_flops
