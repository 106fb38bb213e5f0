"""Saves and restores a run's checkpoints, by Orbax, with fingerprints."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from bert_jax import errors, param_names
from bert_jax.parallel import distributed
from bert_jax.runtime import storage
from bert_jax.workdir import checkpoint_reader, fingerprint, integrity


class Checkpoints:
  """The checkpoints of a run in one directory: folders named after their steps.

  The last `keep` are kept, and forever those at multiples of `keep_every`, if it
  is not 0.
  """

  def __init__(self, directory: str, keep: int, keep_every: int):
    checkpoint_reader.drop_noise()
    self._directory = storage.resolve(directory)
    self._keep, self._keep_every = keep, keep_every
    self._saver = ocp.AsyncCheckpointer(ocp.CompositeCheckpointHandler())
    # Step and score of the best evaluation so far; its checkpoint is kept, and
    # every later one stores these.
    self.best: tuple[int, float] | None = None
    self.facts: dict = {}  # about the run, saved with each state as JSON
    self.newest: int | None = None  # step of the last one saved or restored
    self.saved = time.monotonic()  # when the last was, or this object made
    self._before: int | None = None
    self._stored: tuple[int, float] | None = None  # the best, in the newest
    self._lay_out = lambda state: state

    def prepare():
      storage.make_folder(self._directory)
      _remove_unfinished(self._directory)

    distributed.first_then_all('unfinished checkpoints', prepare)
    self._steps = checkpoint_reader.list_steps(self._directory)

  def lay_out(self, function: Callable[[Any], Any]):
    """Sets what puts a state on the devices that write its shards."""
    self._lay_out = function
    # Otherwise devices with the same shard would write a part of it each.
    handler = ocp.type_handlers.ArrayHandler(use_replica_parallel=False)
    ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)

  def save(
    self,
    step: int,
    state: Any,
    announce: Callable[[str], None] = lambda mark: None,
  ) -> str:
    """Saves a state in the background, after the one before; returns its mark.

    `announce` is called with this fingerprint before anything is written, to log
    what a run that resumes from this checkpoint must find.
    """
    fingerprints = fingerprint.of_arrays(state)
    combined = fingerprint.combine(fingerprints)
    announce(combined)
    facts = {
      **self.facts,
      'step': step,
      'fingerprint': combined,
      'fingerprints': fingerprints,
    }
    if self.best is not None:
      facts['best'] = self.best
    self._wait()
    self._before = self.newest
    args = ocp.args.Composite(
      state=ocp.args.StandardSave(self._lay_out(state)),
      facts=ocp.args.JsonSave(facts),
    )
    with self._saving():
      self._saver.save(self._path(step), args=args)
    self.newest, self.saved = step, time.monotonic()
    self._stored = self.best
    return combined

  def _wait(self):
    """Waits for the last save; deletes the checkpoints that it makes needless."""
    with self._saving():
      self._saver.wait_until_finished()
      if self.newest is None or self.newest in self._steps:
        return
      # Orbax takes a save that was cancelled for one that ended well.
      if distributed.is_first() and self.complete != self.newest:
        raise OSError(f'saving step {self.newest} ended without a checkpoint')
    self._steps.append(self.newest)
    # A run that resumes from the newest knows the best that is stored there alone.
    every = self._keep_every
    kept = {best[0] for best in (self.best, self._stored) if best}
    kept |= {x for x in self._steps if every and x % every == 0}
    for step in [x for x in self._steps[: -self._keep] if x not in kept]:
      self._steps.remove(step)
      if distributed.is_first():
        storage.delete(self._path(step))

  @property
  def complete(self) -> int | None:
    """The step of the newest checkpoint that is complete."""
    # Orbax can tell that saving has ended, but not whether it failed.
    newest = self.newest
    if newest is None or checkpoint_reader.is_complete(self._path(newest)):
      return newest
    return self._before

  @contextlib.contextmanager
  def _saving(self):
    try:
      yield
    except Exception as error:
      step = self.newest = self._steps[-1] if self._steps else None
      with contextlib.suppress(OSError):
        _remove_unfinished(self._directory)  # the disk may be full
      cause = error
      while cause.__cause__ and not getattr(cause, 'strerror', None):
        cause = cause.__cause__
      # Each layer adds its message to the text; the innermost cause is last.
      text = str(error).strip().rpartition(': ')[2] or type(error).__name__
      stands = (
        'none was saved before' if step is None else f'step {step} is kept'
      )
      raise OSError(
        f'cannot save a checkpoint in {self._directory}: '
        f'{getattr(cause, "strerror", None) or text} ({stands}). Put that right, '
        'for example free disk space, then resume with the same command.'
      ) from error

  def restore(self, template: Any, start_over: bool = False):
    """Restores the newest undamaged checkpoint, to shapes with shardings.

    Returns (state, facts), or None if there are no checkpoints, or if all are
    damaged and are to be moved aside: `start_over`. Raises errors.UserError or
    OSError, with nothing moved, if all are damaged, or one cannot be read or has
    another state tree, without proof of damage.
    """
    found, problems = integrity.restore_newest(
      self._steps, lambda step: restore_step(self._path(step), template)
    )
    if found is None and problems and not start_over:
      raise errors.UserError(
        f'none of the checkpoints in {self._directory} is sound: '
        f'{integrity.describe(problems)}. Restore them from a copy, or start '
        'from step 0 with --config.checkpoint.start_over=True (they are moved '
        'aside).'
      )
    distributed.first_then_all(
      'bad checkpoints', lambda: self._move_aside(problems)
    )
    moved = {step for step, _ in problems}
    self._steps = [step for step in self._steps if step not in moved]
    if found is not None:
      self.newest, best = found[1]['step'], found[1].get('best')
      self.best = self._stored = best and tuple(best)
    return found

  def restore_best(self, template: Any):
    """Restores the checkpoint of the best evaluation; returns its state."""
    self._wait()
    return restore_step(self._path(self.best[0]), template)[0]

  def _path(self, step) -> str:
    return os.path.join(self._directory, str(step))

  def _move_aside(self, problems):
    for step, _ in problems:
      source, target = self._path(step), f'{self._directory}_bad/{step}'
      number = 1
      while storage.exists(target):
        number += 1
        target = f'{self._directory}_bad/{step}.{number}'
      storage.move_folder(source, target, checkpoint_reader.COMMITTED)
      print(f'checkpoint {step} was moved to {target}', flush=True)

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    """Waits for the last save and stops Orbax's threads."""
    del kind, traceback
    try:
      self._wait()
    except OSError:
      # Otherwise an earlier error is being raised, which must not be replaced.
      if error is None or isinstance(error, errors.Interrupted):
        raise
    finally:
      self._saver.close()


def _read_facts(path, step, wanted):
  facts = checkpoint_reader.read_facts(path, step)
  stored = dict.fromkeys(facts['fingerprints'], 'an array')
  integrity.check_same_tree(path, stored, dict.fromkeys(wanted, 'an array'))
  return facts


def _read_state(path, template):
  with integrity.judging(path):
    return ocp.StandardCheckpointHandler().restore(
      epath.Path(path) / 'state', args=ocp.args.StandardRestore(template)
    )


def _check_shapes(path, wanted):
  if (stored := checkpoint_reader.read_shapes(path)) is not None:
    shapes = {
      name: checkpoint_reader.describe_array(x) for name, x in wanted.items()
    }
    integrity.check_same_tree(path, stored, shapes)


def restore_step(path: str, template: Any) -> tuple[Any, dict]:
  """Restores a checkpoint on all processes, or on none.

  While a file is read, only `agree` may wait for other processes, since a
  process that fails goes there at once.
  """
  wanted = param_names.flatten(template)
  integrity.agree(lambda: checkpoint_reader.check_files(path))
  facts = integrity.agree(
    lambda: _read_facts(path, int(os.path.basename(path)), wanted)
  )
  with integrity.judging(path):
    try:
      state = integrity.agree(lambda: _read_state(path, template))
      # On the devices of all processes, with the same result in each.
      integrity.verify(state, facts['fingerprints'])
    except integrity.FAILURES:
      # Otherwise arrays of another shape or type would look like damage.
      integrity.agree(lambda: _check_shapes(path, wanted))
      raise
  return state, facts


def _remove_unfinished(directory):
  for name in checkpoint_reader.list_unfinished(directory):
    storage.delete(os.path.join(directory, name))
