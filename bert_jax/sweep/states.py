"""How far the runs of a sweep are, by their files."""

import os
from typing import Any, NamedTuple

from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax import errors, tasks
from bert_jax.runtime import files, storage
from bert_jax.sweep import grid
from bert_jax.workdir import changes, claim, paths, status

_SWEEP = 'sweep.json'  # the config of a sweep


class State(NamedTuple):
  """How far a run is.

  Attributes:
    results: its results.json if it is done, otherwise None.
    step: updates done.
    steps: updates in all; 0 before it was started.
    loss: mean training loss of the last steps; None before.
    held_out: {metric: value} of the last evaluation; {} before.
  """

  results: dict[str, Any] | None
  step: int
  steps: int
  loss: float | None
  held_out: dict[str, float]


def look(workdir: str) -> State:
  """Returns how far a run is. A run is done when everything is written."""
  found = status.read(workdir)
  path, results = paths.results(workdir), None
  if found.get('state') == 'done' and storage.exists(path):
    results = files.read_json(path, 'delete it to have it written again')
  return State(
    results,
    found.get('step', 0),
    found.get('steps', 0),
    found.get('loss'),
    found.get('held_out') or {},
  )


def check_inputs(
  directory: str, config: config_dict.ConfigDict, runs: list[grid.Run]
):
  """Raises errors.UserError if the first run could not begin.

  Its model and files are read as by bert_jax.main, so that a wrong path is told
  once, and before the directory belongs to a config that has it.

  Args:
    directory: that of the sweep; one that a sweep has claimed is not checked.
    config: the experiment, without the grid.
    runs: those of the grid.
  """
  if storage.exists(os.path.join(directory, _SWEEP)):
    return
  new, workdir = (
    _set_fields(config, runs[0]),
    os.path.join(directory, runs[0].name),
  )
  task = tasks.get(new)
  new = task.take_model(new, workdir)
  task.check(new, workdir)
  task.check_input(new)


def check_config(
  directory: str, config: config_dict.ConfigDict, runs: list[grid.Run]
):
  """Raises errors.UserError if a directory is that of another sweep.

  The grid may change: what is in it need not fit, since it is in the names of
  the folders.

  Args:
    directory: that of the sweep, which is made if it does not exist.
    config: the experiment, without the grid.
    runs: those of the grid.
  """
  path = os.path.join(directory, _SWEEP)
  claim.make_folder(directory)
  if not storage.create(path, config_lib.to_json(config).encode()):
    _refuse(directory, changes.find(files.read_json(path), config), runs)
  for run in runs:
    workdir = os.path.join(directory, run.name)
    if not claim.has_begun(workdir):
      continue
    claim.check_config(workdir)
    new = _set_fields(config, run)
    new = tasks.get(new).take_model(new, workdir)
    saved = files.read_json(paths.config(workdir))
    _refuse(workdir, changes.find(saved, new), [])


def _set_fields(config, run):
  new = config.copy_and_resolve_references()
  with new.ignore_type():
    new.update_from_flattened_dict(run.fields)
  return new


def _refuse(path, found, runs):
  free = {name for run in runs for name in run.fields}
  fixed = {k: x for k, x in found[changes.ANOTHER].items() if k not in free}
  if fixed:
    raise errors.UserError(
      f'{path} belongs to another config ({changes.describe(fixed)}); use '
      'another --workdir or the old values.'
    )
