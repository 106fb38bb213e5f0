"""Faults of checkpoints: damaged files, half-written ones, other states."""

import collections
import contextlib
import io
import os
import random
import shutil

import damage
import jax
import jax.numpy as jnp
import numpy as np
import small_run
from fault import Fault, expect, expect_error, expect_same, quote

from bert_jax import errors
from bert_jax.parallel import device_mesh
from bert_jax.workdir import checkpoint, checkpoint_reader


def make_state(step: int) -> dict:
  """Returns a small state; matrices are stored in another way than the rest."""
  params = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) + step}}
  moments = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) * step}}
  return {'step': jnp.int32(step), 'params': params, 'moments': moments}


def write(folder: str, steps=(1, 2)):
  """Saves the states of steps in a folder."""
  with checkpoint.Checkpoints(folder, 3, 0) as checkpoints:
    for step in steps:
      checkpoints.save(step, make_state(step), {})


def restore(folder: str, state: dict, **options):
  """Restores the newest checkpoint for a run with such a state."""
  layout = device_mesh.replicate(device_mesh.make_mesh())
  wanted = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout), state
  )
  with contextlib.redirect_stdout(io.StringIO()):
    with checkpoint.Checkpoints(folder, 3, 0) as checkpoints:
      return checkpoints.restore(wanted, **options)


def judge(folder: str) -> str:
  """Restores from a folder whose newest checkpoint, step 2, is damaged.

  Returns:
    'harmless' if step 2 was restored bit for bit, 'set aside' if step 1 was,
    'refused' if the run would have stopped with one line and nothing moved.

  Raises:
    Broken: in any other case.
  """
  try:
    found = restore(folder, make_state(0))
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


def judge_damage(sound: str, folder: str, name: str, kind: str, rng) -> str:
  """Damages a file of step 2 in a copy of two checkpoints; see `judge`."""
  shutil.rmtree(f'{folder}_bad', ignore_errors=True)
  damage.copy_damaged(sound, folder, os.path.join('2', name), kind, rng)
  return judge(folder)


def _word(found: collections.Counter) -> str:
  kinds = 'harmless', 'set aside', 'refused'
  return ', '.join(f'{found[kind]} {kind}' for kind in kinds if found[kind])


def damage_each_file(base, folder):
  """Does every kind of damage to every file of a checkpoint."""
  sound, copy = (os.path.join(folder, x) for x in ('sound', 'copy'))
  write(sound)
  rng, found = random.Random(0), collections.Counter()
  names = damage.list_files(os.path.join(sound, '2'))
  for name in names:
    for kind in damage.KINDS:
      try:
        found[judge_damage(sound, copy, name, kind, rng)] += 1
      except Exception as error:
        error.add_note(f'{kind} {name}')
        raise
  workdir = os.path.join(folder, 'run')
  shutil.copytree(base.workdir, workdir)
  for name in damage.list_files(f'{workdir}/checkpoints/8'):
    if '/d/' in name:
      damage.flip(f'{workdir}/checkpoints/8/{name}', rng)
  text = small_run.train(workdir, f'input={base.text}')
  expect('resumed at step 6' in text, text)
  expect_same(small_run.describe(workdir), base.result)
  return (
    f'{len(names)} files x {len(damage.KINDS)} kinds: {_word(found)}, 0 wrong; '
    'a run with a damaged newest checkpoint ended with the same bits'
  )


def damage_often(base, folder, count=1000, seed=1):
  """Damages copies of a checkpoint at random places."""
  del base
  sound, copy = (os.path.join(folder, x) for x in ('sound', 'copy'))
  write(sound)
  rng, found = random.Random(seed), collections.Counter()
  names = damage.list_files(os.path.join(sound, '2'))
  for n in range(count):
    name, kind = rng.choice(names), rng.choice(list(damage.KINDS))
    try:
      found[judge_damage(sound, copy, name, kind, rng)] += 1
    except Exception as error:
      error.add_note(f'number {n}: {kind} {name}')
      raise
  return f'{count}: {_word(found)}, 0 wrong'


def half_written(base, folder):
  """Leaves behind what a save that was cut off leaves behind."""
  workdir = os.path.join(folder, 'run')
  shutil.copytree(base.workdir, workdir)
  saved = f'{workdir}/checkpoints'
  shutil.move(f'{saved}/8', f'{saved}/8.orbax-checkpoint-tmp')
  for name in damage.list_files(f'{saved}/8.orbax-checkpoint-tmp')[::2]:
    os.remove(f'{saved}/8.orbax-checkpoint-tmp/{name}')
  _, facts = checkpoint_reader.read(saved)
  expect(facts['step'] == 6, f'read step {facts["step"]}')
  text = small_run.train(workdir, f'input={base.text}')
  expect('resumed at step 6' in text and 'is bad' not in text, text)
  left = sorted(os.listdir(saved))
  expect(left == ['4', '6', '8'], f'{left}')
  expect_same(small_run.describe(workdir), base.result)
  return 'resumed at the step before; bits equal, no half one left'


def all_bad(base, folder):
  """Damages all checkpoints of a run."""
  workdir = os.path.join(folder, 'run')
  shutil.copytree(base.workdir, workdir)
  saved, rng = f'{workdir}/checkpoints', random.Random(0)
  for name in damage.list_files(saved):
    if '/d/' in name:
      damage.truncate(f'{saved}/{name}', rng)
  line = expect_error(
    lambda: small_run.train(workdir, f'input={base.text}'),
    'none of the checkpoints',
    'start_over=True',
  )
  left = sorted(os.listdir(saved))
  expect(left == ['4', '6', '8'], f'{left}')
  small_run.train(workdir, f'input={base.text},start_over=True')
  moved = sorted(os.listdir(f'{saved}_bad'))
  expect(moved == ['4', '6', '8'], f'moved {moved}')
  found = small_run.describe(workdir)
  expect(found['fingerprint'] == base.result['fingerprint'], 'other bits')
  return (
    f'{quote(line, "none of")}; nothing moved; with start_over the same bits'
  )


def other_state(base, folder):
  """Restores into states of another shape, type, optimizer or size."""
  del base

  def changed(change):
    state = make_state(2)
    change(state)
    return state

  changes = {
    'another shape': lambda s: s['params'].update(dense=jnp.zeros((20, 31))),
    'one array more': lambda s: s['params'].update(more=jnp.zeros(2)),
    'another optimizer': lambda s: s.pop('moments'),
    'another type': lambda s: s['params']['dense'].update(
      kernel=jnp.zeros((20, 30), jnp.bfloat16)
    ),
  }
  write(f'{folder}/c')
  for name, change in changes.items():
    for start_over in (False, True):
      line = expect_error(
        lambda change=change, start_over=start_over: restore(
          f'{folder}/c', changed(change), start_over=start_over
        ),
        'Nothing was moved',
        'another version or with another optimizer',
      )
      expect(sorted(os.listdir(f'{folder}/c')) == ['1', '2'], name)
  return f'{len(changes)} states: {quote(line, "Nothing was moved", 80)}'


FAULTS = (
  Fault(
    'checkpoint_files',
    'each file of a checkpoint: a bit flipped, a block zeroed or doubled, cut, '
    'emptied, deleted, lengthened, exchanged for another, replaced by a folder, '
    'a JSON value removed or made odd',
    'the same bits, or it is set aside and the one before is used, or the run '
    'stops with one line; never wrong numbers',
    damage_each_file,
  ),
  Fault(
    'checkpoints_1000',
    '1,000 checkpoints, each damaged in a random way at a random place',
    'the same',
    damage_often,
  ),
  Fault(
    'half_written',
    'the newest checkpoint is half written, under its temporary name',
    'the one before is used, the half one removed',
    half_written,
  ),
  Fault(
    'all_bad',
    'all checkpoints of a run are damaged',
    'one line, nothing is moved; `checkpoint.start_over=True` moves them aside '
    'and starts at step 0',
    all_bad,
  ),
  Fault(
    'other_state',
    'checkpoints of other shapes, types, arrays or optimizers',
    'one line that names the array; nothing is moved, with `start_over` too',
    other_state,
  ),
)
