"""The state that training begins with: restored, given by the task, or new."""

import functools
import shutil

import jax

from bert_jax import checkpoint, distributed, errors, partition
from bert_jax import step as step_lib
from bert_jax import task as task_lib


def make(config, task: task_lib.Task, tx, mesh, checkpoints, workdir: str):
  """Restores the newest sound checkpoint, or initialises.

  Args:
    config: the experiment.
    task: what to learn.
    tx: of `optim.make`.
    mesh: of `sharding.make_mesh`.
    checkpoints: of the run, a `checkpoint.Checkpoints`.
    workdir: whose disk has to hold the checkpoints to come.

  Returns:
    (state, started): the second is {} or {'init_from': facts} and goes from
    checkpoint to checkpoint, since what it tells of may be gone.

  Raises:
    errors.UserError: if no checkpoint is sound, the newest was trained on
      other data, or the disk is too small.
  """
  init = functools.partial(step_lib.init_state, task=task, tx=tx)
  key = jax.random.key(config.seed)
  shapes = jax.eval_shape(init, key)
  layout = partition.state(mesh, shapes)
  template = jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    shapes,
    layout,
  )
  _describe(shapes.params)
  restored = checkpoints.restore(template, config.checkpoint.start_over)
  # An old one goes when the new one is whole, hence one more than is kept.
  missing = 1 if restored else config.checkpoint.keep + 1
  _check_disk(workdir, checkpoint.state_bytes(shapes), missing)
  if restored is not None:
    return _resumed(task, *restored)
  state = jax.jit(init, out_shardings=layout)(key)
  if task.start is None:
    return state, {}
  params, facts = task.start(jax.device_get(distributed.on_host(state.params)))
  params = distributed.put(params, layout.params)
  return state.replace(params=params), {'init_from': facts}


def _describe(params):
  size = sum(x.size for x in jax.tree.leaves(params))
  devices = f'{jax.device_count()} x {jax.devices()[0].device_kind}'
  print(f'model: {size:,} parameters on {devices}', flush=True)


def _resumed(task, state, facts):
  changed = task_lib.changes(facts['task'], task.facts)
  if changed:
    raise errors.UserError(
      f'the checkpoint was trained on other data ({"; ".join(changed[:3])}); '
      'use another --workdir.'
    )
  print(
    f'resumed at step {int(state.step):,}, fingerprint={facts["fingerprint"]}',
    flush=True,
  )
  return state, {k: facts[k] for k in facts if k == 'init_from'}


def _check_disk(workdir, size, checkpoints):
  free = shutil.disk_usage(workdir).free
  if free < size * checkpoints:
    raise errors.UserError(
      f'{workdir} has {free / 1e9:.2f} GB free, but {checkpoints} more '
      f'checkpoint(s) need {size * checkpoints / 1e9:.2f} GB; free space or '
      'lower checkpoint.keep.'
    )
