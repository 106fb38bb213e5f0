"""Checkpoints that prove themselves: Orbax writes them, we verify them."""

import logging
import os
import shutil
import sys
from typing import Any

import jax
import orbax.checkpoint as ocp

from bert_jax import errors, fingerprint


class Checkpoints:
  """The checkpoints of a run, newest and kept ones, under one directory.

  Args:
    directory: where they lie; each is a folder named after its step.
    keep: how many of the newest stay.
    keep_every: steps; a checkpoint at a multiple of it stays for ever. 0 is
      none.
  """

  def __init__(self, directory: str, keep: int, keep_every: int):
    _keep_orbax_quiet()
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
    step = self._manager.latest_step()
    lines = str(error).strip().splitlines() or [type(error).__name__]
    for name in os.listdir(self._directory):
      if 'orbax-checkpoint-tmp' in name:  # it would go on filling the disk
        shutil.rmtree(os.path.join(self._directory, name), ignore_errors=True)
    stands = 'none was saved before' if step is None else f'step {step} stands'
    return errors.UserError(
      f'cannot save a checkpoint in {self._directory}: {lines[-1]} ({stands}). '
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
    steps = sorted(self._manager.all_steps(), reverse=True)
    problems = []
    for step in steps:
      try:
        state, facts = self._restore_step(step, template)
      except Exception as error:
        problems.append((step, _first_line(error)))
        print(f'checkpoint {step} is bad: {_first_line(error)}', flush=True)
        continue
      self._move_aside([step for step, _ in problems])
      self.newest = step
      return state, facts
    if not problems:
      return None
    if not start_over:
      raise errors.UserError(
        f'none of the checkpoints in {self._directory} is sound: '
        + '; '.join(f'step {step}: {text}' for step, text in problems)
        + '. Restore them from a copy, or start from step 0 with '
        '--config.checkpoint.start_over=True (they are moved aside).'
      )
    self._move_aside([step for step, _ in problems])
    return None

  def _restore_step(self, step, template):
    found = self._manager.restore(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardRestore(template), facts=ocp.args.JsonRestore()
      ),
    )
    state, facts = found['state'], found['facts']
    actual = fingerprint.of_arrays(state)
    wrong = sorted(
      name
      for name in {*actual, *facts['fingerprints']}
      if actual.get(name) != facts['fingerprints'].get(name)
    )
    if wrong:
      raise ValueError(
        f'{len(wrong)} array(s) differ from their fingerprint, first {wrong[0]}'
      )
    return state, facts

  def _move_aside(self, steps):
    for step in steps:
      source = os.path.join(self._directory, str(step))
      target = os.path.join(self._directory + '_bad', str(step))
      number = 1
      while os.path.exists(target):
        number += 1
        target = os.path.join(self._directory + '_bad', f'{step}.{number}')
      os.makedirs(os.path.dirname(target), exist_ok=True)
      os.rename(source, target)
      print(f'checkpoint {step} was moved to {target}', flush=True)
    if steps:
      self._manager.reload()

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    """Waits for the last save and lets go of Orbax's threads."""
    del kind, traceback
    try:
      self._manager.wait_until_finished()
    except Exception as failure:
      problem = self._save_failed(failure)
      if error is None:  # else the first error is the one to show
        raise problem from failure
    finally:
      self._manager.close()


def _first_line(error: Exception, most: int = 160) -> str:
  lines = str(error).strip().splitlines() or [type(error).__name__]
  return lines[0] if len(lines[0]) <= most else lines[0][:most] + '...'


def _keep_orbax_quiet():
  """Drops what Orbax says of failures, pages long; ours is one line."""
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).addFilter(_is_not_orbax)
  sys.unraisablehook = _show_unraisable


def _is_not_orbax(record: logging.LogRecord) -> bool:
  # asyncio reports the siblings of the write that failed.
  text = record.pathname + record.getMessage()
  return 'orbax' not in text and 'never retrieved' not in text


def _show_unraisable(unraisable):
  # Reads and writes that end after the failure of the whole they belonged to.
  if 'Event loop is closed' not in str(unraisable.exc_value):
    sys.__unraisablehook__(unraisable)


def state_bytes(tree) -> int:
  """Returns the bytes of a tree of arrays or of jax.ShapeDtypeStruct."""
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
