"""Reads checkpoints: which there are, their facts, shapes and parameters."""

import functools
import logging
import os
import re
import sys
import traceback
import warnings
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import traverse_util

from bert_jax import errors, param_names
from bert_jax.runtime import storage
from bert_jax.workdir import integrity

# Orbax's, written last into every checkpoint.
COMMITTED = 'commit_success.txt'
# Part of the name of a folder on disk while it is being saved.
_TEMPORARY = 'orbax-checkpoint-tmp'


def read(
  directory: str, step: int | None = None, latest: int | None = None
) -> tuple[Any, dict]:
  """Reads the parameters of a checkpoint to the host, and changes nothing.

  A run may be writing to the same directory. Without `step`, newer checkpoints
  than `latest`, if given, are not considered. Returns (params, facts): a nested
  dict of numpy arrays; and the facts given to `save`, with `step`, `fingerprint`
  and `fingerprints`.
  """
  drop_noise()
  directory = storage.resolve(directory)
  steps = list_steps(directory)
  if step is not None and step not in steps:
    raise errors.UserError(
      f'{directory} has no checkpoint of step {step}; choose one of '
      f'{", ".join(map(str, steps)) or "none: train first"}.'
    )
  most = max(steps, default=0) if latest is None else latest
  found, problems = integrity.restore_newest(
    [s for s in steps if s == step or (step is None and s <= most)],
    lambda step: _read_params(os.path.join(directory, str(step)), step),
  )
  if found is None:
    before = f' of step {latest} or before' if latest is not None else ''
    bad = f' ({integrity.describe(problems)})' if problems else ''
    raise errors.UserError(
      f'{directory} holds no sound checkpoint{before}{bad}; train first, restore '
      'one from a copy, or choose another step.'
    )
  return found


def list_steps(directory: str) -> list[int]:
  """Returns the steps of the checkpoints in a directory, sorted.

  There are none if it does not exist. Orbax would leave out steps that the disk
  cannot read, and a run would start over.
  """
  return sorted(map(int, _list_names(directory)[0]))


def list_unfinished(directory: str) -> list[str]:
  """Returns the names of what was left of saves that were cut off."""
  return _list_names(directory)[1]


def _list_names(directory):
  """Returns the names of complete and of unfinished checkpoints."""
  try:
    names = storage.list_names(directory)
  except FileNotFoundError:  # nothing was saved
    names = []
  steps = [x for x in names if x.isdecimal() and x == str(int(x))]
  # On a disk, what is listed under its final name is complete.
  complete = [x for x in steps if is_complete(os.path.join(directory, x))]
  cut_off = [x for x in names if _TEMPORARY in x]
  return complete, cut_off + [x for x in steps if x not in complete]


def is_complete(path: str) -> bool:
  """Returns whether a checkpoint was saved to the end."""
  # A bucket cannot rename: what is being saved has its final name there.
  return storage.exists(
    os.path.join(path, COMMITTED) if storage.is_remote(path) else path
  )


def check_files(path: str):
  """Raises integrity.Damaged if a part of a checkpoint is missing.

  Orbax cannot tell, since it treats disk errors as missing files.
  """
  with integrity.judging(path):
    for name in ('state', 'facts/metadata'):
      if not storage.exists(os.path.join(path, name)):
        raise integrity.Damaged(f'{name} is missing')


def read_facts(path: str, step: int) -> dict:
  """Returns a checkpoint's facts, with the names and hashes of its arrays."""
  with integrity.judging(path):
    # By handlers, here and below: Orbax's managers wait for all processes.
    facts = ocp.JsonCheckpointHandler().restore(epath.Path(path) / 'facts')
    integrity.verify_facts(step, facts)
  return facts


def _read_params(path, step):
  check_files(path)
  facts = read_facts(path, step)
  marks = {
    name: mark
    for name, mark in facts['fingerprints'].items()
    if name.startswith('params/')
  }
  template = traverse_util.unflatten_dict(dict.fromkeys(marks, 0), sep='/')
  with integrity.judging(path):
    state = ocp.PyTreeCheckpointHandler().restore(
      epath.Path(path) / 'state',
      args=ocp.args.PyTreeRestore(
        template,
        restore_args=jax.tree.map(
          lambda _: ocp.RestoreArgs(restore_type=np.ndarray), template
        ),
        partial_restore=True,
      ),
    )
    integrity.verify(state, marks)
  return state['params'], facts


def read_shapes(path: str) -> dict[str, str] | None:
  """Returns {name: shape and type} of a checkpoint, or None if damaged."""
  handler = ocp.PyTreeCheckpointHandler()
  try:
    with integrity.judging(path):
      tree = handler.metadata(epath.Path(path) / 'state').tree
  except integrity.FAILURES:
    return None  # the caller reports the failure to restore
  return {
    name: describe_array(x) for name, x in param_names.flatten(tree).items()
  }


def describe_array(array: Any) -> str:
  """Returns 'float32[20, 30]'."""
  return f'{np.dtype(array.dtype).name}{list(array.shape)}'


def drop_noise():
  """Drops Orbax's messages about failures, which are pages long.

  Other errors still go to the hook that was there: `signals.raising` has one,
  without which a signal that arrives in a finalizer would be lost.
  """
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).addFilter(_is_not_orbax)
  warnings.filterwarnings('ignore', 'coroutine .* was never awaited')
  show = sys.unraisablehook
  if getattr(show, 'func', None) is not _show_unraisable:
    sys.unraisablehook = functools.partial(_show_unraisable, show)


def _is_not_orbax(record: logging.LogRecord) -> bool:
  # asyncio reports the other writes that run when one fails.
  text = record.pathname + record.getMessage()
  return 'orbax' not in text and 'never retrieved' not in text


def _show_unraisable(show, unraisable):
  # A failing operation abandons its other reads and writes: coroutines that
  # never began or are ended while waiting, and answers to a loop that is gone.
  error, places = (
    unraisable.exc_value,
    traceback.walk_tb(unraisable.exc_traceback),
  )
  of_orbax = any('/orbax/' in x.f_code.co_filename for x, _ in places)
  abandoned = re.search('Event loop is closed|was never awaited', str(error))
  if _is_interrupted(error) or not (of_orbax or abandoned):
    show(unraisable)


def _is_interrupted(error: BaseException | None) -> bool:
  while error is not None and not isinstance(error, errors.Interrupted):
    error = error.__cause__ or error.__context__
  return error is not None
