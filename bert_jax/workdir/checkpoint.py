"""Checkpoints, written by Orbax, with fingerprints to verify them."""

import contextlib
import os
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import traverse_util

from bert_jax import errors, param_names
from bert_jax.parallel import distributed
from bert_jax.runtime import storage
from bert_jax.workdir import fingerprint, integrity, orbax_noise

# Orbax's, written last into every checkpoint.
_COMMITTED = 'commit_success.txt'


class Checkpoints:
  """The checkpoints of a run in one directory.

  Args:
    directory: local or in a bucket; contains one folder per checkpoint, named after its step.
    keep: number of newest checkpoints to keep.
    keep_every: steps; checkpoints at multiples are kept forever. 0 is none.
  """

  def __init__(self, directory: str, keep: int, keep_every: int):
    orbax_noise.drop()
    self._directory = storage.resolve(directory)
    try:
      with storage.reporting(self._directory, 'list'):
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
    self._before: int | None = None

  def save(
    self,
    step: int,
    state: Any,
    facts: dict,
    announce: Callable[[str], None] = lambda mark: None,
  ) -> str:
    """Saves in the background; waits for the save before it.

    Args:
      step: training step, after `newest`, the last one saved or restored.
      state: a tree of arrays.
      facts: facts about the run, a JSON object, saved with the arrays.
      announce: is called with the fingerprint before anything is written, for
        what a run that resumes from this checkpoint must find.

    Returns:
      The fingerprint of the state.

    Raises:
      errors.UserError: if this or the previous save failed.
    """
    fingerprints = fingerprint.of_arrays(state)
    combined = fingerprint.combine(fingerprints)
    announce(combined)
    facts = {
      **facts,
      'step': step,
      'fingerprint': combined,
      'fingerprints': fingerprints,
    }
    try:
      self._manager.wait_until_finished()
      self._before = self.newest
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

  @property
  def complete(self) -> int | None:
    """The step of the newest checkpoint that is complete."""
    saving = self._manager.is_saving_in_progress()
    return self._before if saving else self.newest

  def _save_failed(self, error) -> errors.UserError:
    # Otherwise Orbax's unfinished coroutines print warnings at exit.
    warnings.filterwarnings('ignore', 'coroutine .* was never awaited')
    step = self.newest = self._manager.latest_step()
    cause = _explain_failure(self._directory, error)
    with contextlib.suppress(OSError):
      for name in storage.list_names(self._directory):
        if 'orbax-checkpoint-tmp' in name:  # remove it from the full disk
          storage.delete(os.path.join(self._directory, name))
    stands = 'none was saved before' if step is None else f'step {step} is kept'
    problem = errors.UserError(
      f'cannot save a checkpoint in {self._directory}: {cause} ({stands}). '
      'Put that right, for example free disk space, then resume with the same '
      'command.'
    )
    problem.exit_code = storage.get_exit_code(self._directory, error)
    return problem

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
      while storage.exists(target):
        number += 1
        target = os.path.join(self._directory + '_bad', f'{step}.{number}')
      storage.move_folder(source, target, _COMMITTED)
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
  directory = storage.resolve(directory)
  if not storage.exists(directory):
    raise errors.UserError(f'{directory} does not exist; train first.')
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

  There are none if it does not exist. Orbax would leave out those that the disk
  gives no answer about, and a run would start over.

  Raises:
    errors.UserError: if the directory cannot be listed.
  """
  try:
    names = storage.list_names(directory)
    # A bucket cannot rename: what is being saved has its final name there.
    return sorted(
      int(name)
      for name in names
      if name.isdecimal()
      and (
        not storage.is_remote(directory)
        or storage.exists(os.path.join(directory, name, _COMMITTED))
      )
    )
  except FileNotFoundError:  # nothing was saved in a bucket
    return []
  except OSError as error:
    raise _cannot_list(directory, error) from error


def _explain_failure(directory: str, error: BaseException) -> str:
  innermost = error
  while innermost.__cause__ is not None:
    innermost = innermost.__cause__
  if reason := storage.explain(directory, innermost):
    return reason
  # Each layer adds its message to the text; the innermost cause is last.
  return str(error).strip().rpartition(': ')[2] or type(error).__name__


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
      tree = handler.metadata(epath.Path(path) / 'state').tree
  except (integrity.Damaged, errors.UserError):
    return None  # the caller reports the failure to restore
  return {name: _describe(x) for name, x in param_names.flatten(tree).items()}


def _describe(array) -> str:
  return f'{np.dtype(array.dtype).name}{list(array.shape)}'


def count_bytes(tree: Any) -> int:
  """Returns the bytes of a tree of arrays or of jax.ShapeDtypeStruct."""
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
