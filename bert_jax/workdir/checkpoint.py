"""Checkpoints that prove themselves: Orbax writes them, we verify them."""

import contextlib
import os
import shutil
import warnings
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.workdir import fingerprint, integrity, orbax_noise


class Checkpoints:
  """The checkpoints of a run, newest and kept ones, under one directory.

  Args:
    directory: where they lie; each is a folder named after its step.
    keep: how many of the newest stay.
    keep_every: steps; a checkpoint at a multiple of it stays for ever. 0 is
      none.
  """

  def __init__(self, directory: str, keep: int, keep_every: int):
    orbax_noise.drop()
    self._directory = os.path.abspath(directory)
    self._manager = ocp.CheckpointManager(
      self._directory,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        keep_period=keep_every or None,
        cleanup_tmp_directories=True,
      ),
    )
    self.newest: int | None = None

  def save(self, step: int, state: Any, facts: dict) -> str:
    """Saves in the background; waits for the save before it.

    Args:
      step: of training, later than `newest`, the last one saved or restored.
      state: a tree of arrays.
      facts: of the run, JSON, stored beside the arrays.

    Returns:
      The fingerprint of the state.

    Raises:
      errors.UserError: if this or the previous save failed.
    """
    fingerprints = fingerprint.of_arrays(state)
    combined = fingerprint.combine(fingerprints)
    facts = {
      **facts,
      'step': step,
      'fingerprint': combined,
      'fingerprints': fingerprints,
    }
    try:
      self._manager.wait_until_finished()
      self._manager.save(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardSave(state), facts=ocp.args.JsonSave(facts)
        ),
        force=True,
      )
    except Exception as error:
      raise self._save_failed(error) from error
    self.newest = step
    return combined

  def _save_failed(self, error) -> errors.UserError:
    # Else what Orbax began and will not finish says so on stderr at the end.
    warnings.filterwarnings('ignore', 'coroutine .* was never awaited')
    step = self._manager.latest_step()
    # The text nests each layer's report; the innermost cause comes last.
    cause = str(error).strip().rpartition(': ')[2] or type(error).__name__
    for name in os.listdir(self._directory):
      if 'orbax-checkpoint-tmp' in name:  # it would go on filling the disk
        shutil.rmtree(os.path.join(self._directory, name), ignore_errors=True)
    stands = 'none was saved before' if step is None else f'step {step} stands'
    return errors.UserError(
      f'cannot save a checkpoint in {self._directory}: {cause} ({stands}). '
      'Free disk space, then resume with the same command.'
    )

  def restore(self, template: Any, start_over: bool = False):
    """Restores the newest checkpoint that proves sound.

    Args:
      template: tree of jax.ShapeDtypeStruct with shardings.
      start_over: moves the bad ones aside where none is sound, instead of
        raising.

    Returns:
      (state, facts), or None where there are no checkpoints.

    Raises:
      errors.UserError: if there are checkpoints and none is sound.
    """
    found, problems = integrity.restore_newest(
      self._manager.all_steps(), lambda step: self._restore_all(step, template)
    )
    if found is None and problems and not start_over:
      raise errors.UserError(
        f'none of the checkpoints in {self._directory} is sound: '
        f'{integrity.describe(problems)}. Restore them from a copy, or start '
        'from step 0 with --config.checkpoint.start_over=True (they are moved '
        'aside).'
      )
    self._move_aside(problems)
    if found is not None:
      self.newest = found[1]['step']
    return found

  def _restore_all(self, step, template):
    """Restores a step on all processes, or on none."""
    found = failure = None
    try:
      found = self._restore_step(step, template)
    except Exception as error:
      failure = error
    if distributed.find_largest(failure is not None):
      raise failure or ValueError('another host cannot read it')
    return found

  def _restore_step(self, step, template):
    found = self._manager.restore(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardRestore(template), facts=ocp.args.JsonRestore()
      ),
    )
    state, facts = found['state'], found['facts']
    integrity.verify(state, facts['fingerprints'])
    integrity.verify_facts(step, facts)
    return state, facts

  def _move_aside(self, problems):
    distributed.first_then_all(
      'bad checkpoints', lambda: self._rename(problems)
    )
    if problems:
      self._manager.reload()

  def _rename(self, problems):
    for step, _ in problems:
      source = os.path.join(self._directory, str(step))
      target = os.path.join(self._directory + '_bad', str(step))
      number = 1
      while os.path.exists(target):
        number += 1
        target = os.path.join(self._directory + '_bad', f'{step}.{number}')
      os.makedirs(os.path.dirname(target), exist_ok=True)
      os.rename(source, target)
      print(f'checkpoint {step} was moved to {target}', flush=True)

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    """Waits for the last save and lets go of Orbax's threads."""
    del kind, traceback
    try:
      self._manager.wait_until_finished()
    except Exception as failure:
      problem = self._save_failed(failure)
      # Else the first error is the one to show.
      if error is None or isinstance(error, errors.Interrupted):
        raise problem from failure
    finally:
      self._manager.close()


def read(directory: str, step: int | None = None) -> tuple[Any, dict]:
  """Reads the parameters of a checkpoint, on the host, and changes nothing.

  A training may be writing to the same directory.

  Args:
    directory: of a `Checkpoints` whose states have `params`.
    step: which checkpoint; None is the newest that proves sound.

  Returns:
    (params, facts): nested dict of numpy arrays, and what `save` was given
    with `step`, `fingerprint` and `fingerprints`.

  Raises:
    errors.UserError: if there is no such checkpoint or none is sound.
  """
  orbax_noise.drop()
  directory = os.path.abspath(directory)
  if not os.path.isdir(directory):
    raise errors.UserError(f'{directory} does not exist; train first.')
  # Orbax tells by the handler what the metadata of the state look like.
  manager = ocp.CheckpointManager(
    directory,
    options=ocp.CheckpointManagerOptions(read_only=True),
    item_handlers={
      'state': ocp.PyTreeCheckpointHandler(),
      'facts': ocp.JsonCheckpointHandler(),
    },
  )
  with contextlib.closing(manager):
    steps = sorted(manager.all_steps())
    if step is not None and step not in steps:
      raise errors.UserError(
        f'{directory} has no checkpoint of step {step}; choose one of '
        f'{", ".join(map(str, steps)) or "none: train first"}.'
      )
    found, problems = integrity.restore_newest(
      steps if step is None else [step],
      lambda step: _read_params(manager, step),
    )
  if found is None and not problems:
    raise errors.UserError(f'{directory} holds no checkpoint; train first.')
  if found is None:
    raise errors.UserError(
      f'no checkpoint read in {directory} is sound: '
      f'{integrity.describe(problems)}. Restore one from a copy or choose '
      'another step.'
    )
  return found


def _read_params(manager, step):
  metadata = manager.item_metadata(step)['state']
  template = {'params': jax.tree.map(lambda _: 0, metadata.tree['params'])}
  found = manager.restore(
    step,
    args=ocp.args.Composite(
      state=ocp.args.PyTreeRestore(
        template,
        restore_args=jax.tree.map(
          lambda _: ocp.RestoreArgs(restore_type=np.ndarray), template
        ),
        partial_restore=True,
      ),
      facts=ocp.args.JsonRestore(),
    ),
  )
  state, facts = found['state'], found['facts']
  integrity.verify(
    state,
    {k: v for k, v in facts['fingerprints'].items() if k.startswith('params/')},
  )
  integrity.verify_facts(facts['step'], facts)
  return state['params'], facts


def count_bytes(tree) -> int:
  """Returns the bytes of a tree of arrays or of jax.ShapeDtypeStruct."""
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
