"""Checkpoints, written by Orbax, with fingerprints to verify them."""

import contextlib
import os
import pathlib
import shutil
import warnings
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import traverse_util

from bert_jax import errors, param_names
from bert_jax.parallel import distributed
from bert_jax.workdir import fingerprint, integrity, orbax_noise


class Checkpoints:
  """The checkpoints of a run in one directory.

  Args:
    directory: contains one folder per checkpoint, named after its step.
    keep: number of newest checkpoints to keep.
    keep_every: steps; checkpoints at multiples are kept forever. 0 is none.
  """

  def __init__(self, directory: str, keep: int, keep_every: int):
    orbax_noise.drop()
    self._directory = os.path.abspath(directory)
    try:
      self._manager = ocp.CheckpointManager(
        self._directory,
        options=ocp.CheckpointManagerOptions(
          max_to_keep=keep,
          keep_period=keep_every or None,
          cleanup_tmp_directories=True,
        ),
      )
    except OSError as error:
      raise _cannot_list(self._directory, error) from error
    self.newest: int | None = None

  def save(self, step: int, state: Any, facts: dict) -> str:
    """Saves in the background; waits for the save before it.

    Args:
      step: training step, after `newest`, the last one saved or restored.
      state: a tree of arrays.
      facts: facts about the run, a JSON object, saved with the arrays.

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
    # Otherwise Orbax's unfinished coroutines print warnings at exit.
    warnings.filterwarnings('ignore', 'coroutine .* was never awaited')
    step = self._manager.latest_step()
    # Each layer adds its message to the text; the innermost cause is last.
    cause = str(error).strip().rpartition(': ')[2] or type(error).__name__
    for name in os.listdir(self._directory):
      if 'orbax-checkpoint-tmp' in name:  # remove it from the full disk
        shutil.rmtree(os.path.join(self._directory, name), ignore_errors=True)
    stands = 'none was saved before' if step is None else f'step {step} is kept'
    return errors.UserError(
      f'cannot save a checkpoint in {self._directory}: {cause} ({stands}). '
      'Free disk space, then resume with the same command.'
    )

  def restore(self, template: Any, start_over: bool = False):
    """Restores the newest undamaged checkpoint.

    Args:
      template: tree of jax.ShapeDtypeStruct with shardings.
      start_over: if all checkpoints are damaged, moves them aside instead of
        raising.

    Returns:
      (state, facts), or None if there are no checkpoints.

    Raises:
      errors.UserError: if all checkpoints are damaged; or if one cannot be read
        or has another state tree, without proof of damage. Then nothing is
        moved.
    """
    found, problems = integrity.restore_newest(
      list_steps(self._directory),
      lambda step: self._restore_all(step, template),
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
    path = self._path(step)
    wanted = param_names.flatten(template)
    # Orbax waits for all processes, so what fails is agreed on before.
    _agree(path, lambda: _check_files(path))
    facts = _agree(path, lambda: self._read_facts(path, step, wanted))
    marks = facts['fingerprints']
    return _agree(
      path, lambda: self._restore_state(path, step, template, marks)
    ), facts

  def _read_facts(self, path, step, wanted):
    facts = _read_facts(self._manager, path, step)
    stored = dict.fromkeys(facts['fingerprints'], 'an array')
    integrity.check_same_tree(path, stored, dict.fromkeys(wanted, 'an array'))
    return facts

  def _restore_state(self, path, step, template, marks):
    try:
      with integrity.judging(path):
        state = self._manager.restore(
          step,
          args=ocp.args.Composite(state=ocp.args.StandardRestore(template)),
        )['state']
        integrity.verify(state, marks)
        return state
    except (integrity.Damaged, errors.UserError):
      # Otherwise arrays of another shape or type would look like damage.
      if (stored := _read_shapes(path)) is not None:
        wanted = param_names.flatten(template)
        shapes = {name: _describe(x) for name, x in wanted.items()}
        integrity.check_same_tree(path, stored, shapes)
      raise

  def _path(self, step) -> str:
    return os.path.join(self._directory, str(step))

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
    """Waits for the last save and stops Orbax's threads."""
    del kind, traceback
    try:
      self._manager.wait_until_finished()
    except Exception as failure:
      problem = self._save_failed(failure)
      # Otherwise an earlier error is being raised, which must not be replaced.
      if error is None or isinstance(error, errors.Interrupted):
        raise problem from failure
    finally:
      self._manager.close()


def read(
  directory: str, step: int | None = None, latest: int | None = None
) -> tuple[Any, dict]:
  """Reads the parameters of a checkpoint to the host, and changes nothing.

  A run may be writing to the same directory.

  Args:
    directory: that of a `Checkpoints` whose states have `params`.
    step: step of the checkpoint; None is the newest undamaged one.
    latest: without `step`, newer checkpoints than this are not considered; None
      considers all.

  Returns:
    (params, facts): nested dict of numpy arrays; and the facts given to `save`,
    with `step`, `fingerprint` and `fingerprints`.

  Raises:
    errors.UserError: if there is no such checkpoint, all are damaged, or one
      cannot be read, without proof of damage.
  """
  orbax_noise.drop()
  directory = os.path.abspath(directory)
  steps = list_steps(directory)
  # Orbax needs the handler to read the metadata of the state.
  manager = ocp.CheckpointManager(
    directory,
    options=ocp.CheckpointManagerOptions(read_only=True),
    item_handlers={
      'state': ocp.PyTreeCheckpointHandler(),
      'facts': ocp.JsonCheckpointHandler(),
    },
  )
  with contextlib.closing(manager):
    if step is not None and step not in steps:
      raise errors.UserError(
        f'{directory} has no checkpoint of step {step}; choose one of '
        f'{", ".join(map(str, steps)) or "none: train first"}.'
      )
    found, problems = integrity.restore_newest(
      [s for s in steps if _is_wanted(s, step, latest)],
      lambda step: _read_params(
        manager, os.path.join(directory, str(step)), step
      ),
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


def _is_wanted(found, step, latest) -> bool:
  if step is not None:
    return found == step
  return latest is None or found <= latest


def list_steps(directory: str) -> list[int]:
  """Returns the steps of the checkpoints in a directory, sorted.

  Orbax would leave out those that the disk gives no answer about, and a run
  would start over.

  Raises:
    errors.UserError: if the directory does not exist or cannot be listed.
  """
  try:
    return sorted(int(x) for x in os.listdir(directory) if x.isdecimal())
  except FileNotFoundError:
    raise errors.UserError(
      f'{directory} does not exist; train first.'
    ) from None
  except OSError as error:
    raise _cannot_list(directory, error) from error


def _cannot_list(directory, error) -> errors.UserError:
  return errors.UserError(
    f'cannot list the checkpoints in {directory}: {error.strerror}. Nothing was '
    'moved; put the cause right and run the same command again.'
  )


def _agree(path, read):
  """Returns the result of `read`; if it fails on any host, all hosts raise.

  So if one host cannot access its disk, no host calls a checkpoint damaged.
  """
  found = failure = None
  own = 0
  try:
    found = read()
  except integrity.Damaged as error:
    own, failure = 1, error
  except errors.UserError as error:
    own, failure = 2, error
  worst = distributed.find_largest(own)
  if worst > own:
    kind = integrity.Damaged if worst == 1 else errors.UserError
    failure = kind(f'another host cannot read {path}; see what it says.')
  if failure is not None:
    raise failure
  return found


def _check_files(path):
  with integrity.judging(path):
    integrity.check_files(path, ('state', 'facts/metadata'))


def _read_facts(manager, path, step):
  """Returns a checkpoint's facts, with the names and hashes of its arrays."""
  with integrity.judging(path):
    facts = manager.restore(
      step, args=ocp.args.Composite(facts=ocp.args.JsonRestore())
    )['facts']
    integrity.verify_facts(step, facts)
  return facts


def _read_params(manager, path, step):
  _check_files(path)
  facts = _read_facts(manager, path, step)
  marks = {
    name: mark
    for name, mark in facts['fingerprints'].items()
    if name.startswith('params/')
  }
  template = traverse_util.unflatten_dict(dict.fromkeys(marks, 0), sep='/')
  with integrity.judging(path):
    state = manager.restore(
      step,
      args=ocp.args.Composite(
        state=ocp.args.PyTreeRestore(
          template,
          restore_args=jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray), template
          ),
          partial_restore=True,
        ),
      ),
    )['state']
    integrity.verify(state, marks)
  return state['params'], facts


def _read_shapes(path) -> dict[str, str] | None:
  """Returns {name: shape and type} of a checkpoint, or None if damaged."""
  handler = ocp.PyTreeCheckpointHandler()
  try:
    with integrity.judging(path):
      tree = handler.metadata(pathlib.Path(path, 'state')).tree
  except (integrity.Damaged, errors.UserError):
    return None  # the caller reports the failure to restore
  return {name: _describe(x) for name, x in param_names.flatten(tree).items()}


def _describe(array) -> str:
  return f'{np.dtype(array.dtype).name}{list(array.shape)}'


def count_bytes(tree: Any) -> int:
  """Returns the bytes of a tree of arrays or of jax.ShapeDtypeStruct."""
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
