"""Small checkpoints, damage to them, and runs made without training."""

import functools
import os
import shutil
import tempfile

import jax
import jax.numpy as jnp

from bert_jax.config import to_json
from bert_jax.parallel import device_mesh
from bert_jax.runtime import storage
from bert_jax.trainer.step import TrainState
from bert_jax.workdir import checkpoint


def make_state(step: int) -> dict:
  """Returns a state without parameters."""
  return {'step': jnp.int32(step), 'w': jnp.arange(1024.0) * step}


def make_params_state(step: int) -> dict:
  """Returns a state with parameters."""
  # A matrix: Orbax splits it, unlike the moments.
  params = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) + step}}
  moments = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) * step}}
  return {'step': jnp.int32(step), 'params': params, 'moments': moments}


def make_template(like: dict | None = None, layout=None) -> dict:
  """Returns what to restore: a state's shapes, by default on all devices."""
  layout = layout or device_mesh.replicate(device_mesh.make_mesh())
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout),
    like or make_state(0),
  )


def write(directory, steps=(1, 2, 3), keep=3, keep_every=0, make=make_state):
  """Saves a checkpoint for each step; returns {step: fingerprint}."""
  if storage.is_remote(str(directory)):
    return _write(directory, steps, keep, keep_every, make)
  made, marks = _write_once(tuple(steps), keep, keep_every, make)
  shutil.copytree(made.name, directory, dirs_exist_ok=True)
  return marks


@functools.cache
def _write_once(*how):
  folder = tempfile.TemporaryDirectory()
  return folder, _write(folder.name, *how)


def _write(directory, steps, keep, keep_every, make):
  with checkpoint.Checkpoints(str(directory), keep, keep_every) as c:
    found = {}
    for step in steps:
      c.facts = {'n': step}
      found[step] = c.save(step, make(step))
    return found


def write_params(directory, steps=(1, 2)):
  """Saves states with parameters."""
  write(directory, steps, make=make_params_state)


def write_run(workdir, c, facts: dict, params: dict) -> str:
  """Writes a run as it looks after some steps; returns its directory.

  Args:
    c: its config.
    facts: of its task.
    params: {step: parameters}, in order.
  """
  workdir.mkdir(exist_ok=True)
  (workdir / 'config.json').write_text(to_json(c))
  directory = str(workdir / 'checkpoints')
  with checkpoint.Checkpoints(directory, len(params), 0) as saved:
    saved.facts = {'task': facts}
    for step, x in params.items():
      saved.save(step, TrainState(jnp.int32(step), x, {}))
  return str(workdir)


def restore(directory, like: dict | None = None, **kwargs):
  """Returns what a run with a state like this would resume from."""
  with checkpoint.Checkpoints(str(directory), 3, 0) as checkpoints:
    return checkpoints.restore(make_template(like), **kwargs)


def restore_params(directory, like: dict | None = None, **kwargs):
  """Restores a state with parameters."""
  return restore(directory, like or make_params_state(0), **kwargs)


def save_in_background(checkpoints: checkpoint.Checkpoints, step: int):
  """Saves a state and waits, but not by `save`, until that has ended."""
  checkpoints.save(step, make_state(step))
  checkpoints._saver._async_manager._thread.join()


def array_files(directory, step) -> list[str]:
  """Returns the files with array data of a checkpoint, largest first."""
  found = []
  for root, _, names in os.walk(os.path.join(directory, str(step), 'state')):
    found += [os.path.join(root, n) for n in names if root.endswith('/d')]
  return sorted(found, key=os.path.getsize, reverse=True)


def truncate(path):
  """Cuts a file in half."""
  os.truncate(path, os.path.getsize(path) // 2)


def damage(directory, step: int):
  """Cuts all array data of a checkpoint in half."""
  for path in array_files(directory, step):
    truncate(path)
