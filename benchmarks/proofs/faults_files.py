"""Faults of files: every kind of damage to checkpoints, data, and a claim."""

import collections
import contextlib
import functools
import io
import os
import random
import shutil

import damage
import faults_process
import jax
import jax.numpy as jnp
import numpy as np
import small_config
import small_run
from small_run import expect, expect_same

from bert_jax import errors
from bert_jax.data import manifest_file
from bert_jax.parallel import device_mesh
from bert_jax.pretraining import batches, training_data
from bert_jax.train import task
from bert_jax.workdir import checkpoint


def make_state(step: int) -> dict:
  """Returns a small state; matrices are stored in another way than the rest."""
  params = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) + step}}
  moments = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) * step}}
  return {'step': jnp.int32(step), 'params': params, 'moments': moments}


def restore(folder: str):
  """Restores the newest checkpoint of such a state."""
  layout = device_mesh.replicate(device_mesh.make_mesh())
  wanted = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout),
    make_state(0),
  )
  with contextlib.redirect_stdout(io.StringIO()):
    with checkpoint.Checkpoints(folder, 3, 0) as checkpoints:
      return checkpoints.restore(wanted)


def judge_checkpoint(folder: str) -> str:
  """Restores from a folder whose newest checkpoint, step 2, is damaged.

  Returns:
    'harmless' if step 2 was restored bit for bit, 'set aside' if step 1 was,
    'refused' if the run would have stopped with one line and nothing moved.

  Raises:
    Broken: in any other case.
  """
  try:
    found = restore(folder)
  except errors.UserError as error:
    expect('\n' not in str(error), str(error))
    names = sorted(os.listdir(folder))
    expect(names == ['1', '2'], f'{names} after {error}')
    expect(not os.path.exists(f'{folder}_bad'), f'moved after {error}')
    return 'refused'
  expect(found is not None, 'it would have started over')
  state, facts = found
  step = facts['step']
  same = jax.tree.map(np.array_equal, state, make_state(step))
  expect(step in (1, 2) and all(jax.tree.leaves(same)), f'step {step}: {same}')
  if step == 2:
    return 'harmless'
  expect(os.listdir(f'{folder}_bad') == ['2'], 'step 2 was not moved aside')
  return 'set aside'


def damage_copies(sound, copy, cases, judge, rng) -> str:
  """Damages copies of a folder.

  Args:
    sound: the folder.
    copy: path of the copies; what is there, and in COPY_bad, is removed.
    cases: (name of a file, kind of damage) of each copy.
    judge: (copy) -> how it went; raises `Broken` if a promise was not kept.
    rng: for the places of the damage.

  Returns:
    How often each happened.
  """
  found = collections.Counter()
  for name, kind in cases:
    shutil.rmtree(f'{copy}_bad', ignore_errors=True)
    damage.copy_damaged(sound, copy, name, kind, rng)
    try:
      found[judge(copy)] += 1
    except Exception as error:
      error.add_note(f'{kind} {name}')
      raise
  counts = ', '.join(f'{n} {how}' for how, n in sorted(found.items()))
  return f'{found.total()}: {counts}, 0 wrong'


def checkpoint_files(base, folder, count=0, seed=0):
  """Does each kind of damage to each file, or many at random."""
  del base
  sound, copy = (os.path.join(folder, x) for x in ('sound', 'copy'))
  with checkpoint.Checkpoints(sound, 3, 0) as checkpoints:
    for step in (1, 2):
      checkpoints.save(step, make_state(step))
  rng, kinds = random.Random(seed), list(damage.KINDS)
  names = [f'2/{x}' for x in damage.list_files(os.path.join(sound, '2'))]
  cases = [(name, kind) for name in names for kind in kinds]
  if count:
    cases = [(rng.choice(names), rng.choice(kinds)) for _ in range(count)]
  return damage_copies(sound, copy, cases, judge_checkpoint, rng)


def newest_checkpoint(base, folder):
  """Flips bits of all arrays of a run's newest checkpoint, and resumes."""
  workdir, rng = os.path.join(folder, 'run'), random.Random(0)
  shutil.copytree(base.workdir, workdir)
  for name in damage.list_files(f'{workdir}/checkpoints/8'):
    if '/d/' in name:
      damage.flip(f'{workdir}/checkpoints/8/{name}', rng)
  text = small_run.train(workdir, f'input={base.text}')
  expect('resumed at step 6' in text, text)
  expect_same(small_run.describe(workdir), base.result)
  return 'resumed at step 6; bits, losses and export equal'


def read_batches(data: str) -> list[dict]:
  """Returns all batches of a run on prepared data, as a run reads them."""
  c = small_config.get_config(f'dir={data}')
  made = batches.Batches(c, training_data.check_data(c, ''))
  [phase] = task.list_phases(c)
  found = [made.train_batch(phase, t) for t in range(3 * phase.steps)]
  return found + [
    made.eval_batch(phase, i) for i in range(made.eval_batches(phase))
  ]


def data_files(base, folder):
  """Does each kind of damage to each file of prepared data, many times."""
  expected, rng = read_batches(base.data), random.Random(0)

  def judge(copy):
    try:
      found = read_batches(copy)
    except errors.UserError as error:
      expect('\n' not in str(error), str(error))
      return 'refused'
    for a, b in zip(found, expected, strict=True):
      same = all(np.array_equal(a[name], b[name]) for name in b)
      expect(same, 'other batches, without an error')
    return 'harmless'

  cases = [
    (name, kind)
    for name in damage.list_files(base.data)
    for kind in damage.KINDS
    for _ in range(10 if name == manifest_file.NAME else 3)
  ]
  return damage_copies(base.data, f'{folder}/data', cases, judge, rng)


def claim(base, folder):
  """Damages the files by which a run knows its directory, and resumes."""
  use, half = f'input={base.text}', os.path.join(folder, 'half')
  # Half way, so that there is something left to do.
  stop = faults_process.Send('a step', (15,), 4)
  expect(small_run.start(half, use, prepare=stop).wait() == 143, 'half')

  def judge(copy):
    try:
      small_run.train(copy, use)
    except errors.UserError as error:
      expect('\n' not in str(error) and copy in str(error), str(error))
      return 'refused'
    # Of a damaged log, rows may be lost, and the card of the export has them.
    mark = small_run.describe(copy)['fingerprint']
    expect(mark == base.result['fingerprint'], mark)
    return 'equal'

  names = '.lock', 'config.json', 'status.json', 'metrics.jsonl'
  empty = 'flip', 'zero', 'truncate', 'empty'  # which the lock is anyway
  cases = [
    (name, kind)
    for name in names
    for kind in damage.KINDS
    if name != '.lock' or kind not in empty
  ]
  run = os.path.join(folder, 'run')
  return damage_copies(half, run, cases, judge, random.Random(0))


ROWS = {
  'checkpoint_files': checkpoint_files,
  'checkpoints_1000': functools.partial(checkpoint_files, count=1000, seed=1),
  'newest_checkpoint': newest_checkpoint,
  'data_files': data_files,
  'claim': claim,
}
