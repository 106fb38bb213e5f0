"""Rebuilds the batch of a past step, and the weights to compute it with.

The rows of a step, their masks and their dropout are functions of seed and step
alone, so nothing has to be recorded for this. The weights are from the nearest
checkpoint at or before the step.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.data import dataset, manifest_file
from bert_jax.inference import trained_run
from bert_jax.pretraining import batches, pretrain, training_data
from bert_jax.runtime import storage
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.train import tuning
from bert_jax.train.task import Batch, Objective, Phase, list_phases
from bert_jax.workdir import checkpoint_reader, log, paths

# What a run logs about a single step.
_OF_A_STEP = ('spike', 'skipped')


@dataclasses.dataclass(frozen=True)
class Replay:
  """A past step, with all that is needed to compute it again.

  Attributes:
    config: the run's config, with `compute` and `mesh` for one device here.
    objective: what is trained, with the run's words if it compares a sample.
    number: the step as in the log, counted from 1.
    batch: its global batch, leaves [B, ...].
    epochs: int [B], how often all data was read before.
    places: file of each row's record and its number in it, B texts.
    params: float32 arrays, as the model has them in training.
    params_step: updates that `params` have seen, fewer than `number`.
    origin: where `params` are from, to print.
    logged: rows of the log about this step alone, and the row `train` whose
      means include it; by kind.
  """

  config: config_dict.ConfigDict
  objective: Objective
  number: int
  phase: Phase
  batch: Batch
  epochs: np.ndarray
  places: tuple[str, ...]
  params: Any
  params_step: int
  origin: str
  tokenizer: Tokenizer
  logged: dict[str, dict]


def rebuild(workdir: str, number: int) -> Replay:
  """Rebuilds step `number`, from 1, of a run, which is not changed."""
  config = trained_run.read_config(paths.config(workdir))
  if config.task != 'pretraining':
    raise errors.UserError(
      f'{workdir} is a run of task={config.task}; only steps of pre-training '
      'can be replayed.'
    )
  rows = log.read(paths.metrics(workdir))
  phase = _find_phase(config, number, rows)
  config = _for_one_device(config, phase)
  directory = _find_data(config, workdir)
  task = pretrain.make_task(config, directory)
  objective = task.objective(config)
  params, step, origin, facts = _read_params(
    objective, task.start, config.seed, workdir, number - 1
  )
  trained_run.check_params(
    params, pretrain.make_module(config), paths.config(workdir)
  )
  # A run without a checkpoint logged about its data when it started.
  started = [row for row in rows if row['kind'] == 'run'] or [{}]
  _check_data(task, directory, facts.get('task', started[-1]))
  made = batches.Batches(config, directory)
  records, epochs = made.find_records(
    phase, number - 1, np.arange(phase.batch_size)
  )
  return Replay(
    config=config,
    objective=objective,
    number=number,
    phase=phase,
    batch=made.train_batch(phase, number - 1),
    epochs=epochs,
    places=tuple(made.name_record(phase, i) for i in records.tolist()),
    params=jax.device_put(params, jax.devices()[0]),
    params_step=step,
    origin=origin,
    tokenizer=manifest_file.load_tokenizer(directory),
    logged=_find_logged(rows, number),
  )


def _find_phase(config, number, rows) -> Phase:
  """Returns the phase of a step that the run has reached by its log."""
  steps = sum(config.phases.steps)
  if not 1 <= number <= steps:
    raise errors.UserError(
      f'--step={number} is not a step of the run, which has steps 1 to {steps}, '
      'numbered as in its log.'
    )
  last = max((row['step'] for row in rows), default=None)
  if last is not None and number > last + config.log.every:
    raise errors.UserError(
      f'the run has not reached --step={number}; its log ends at step {last}.'
    )
  phases = list_phases(config)
  return [phase for phase in phases if phase.first < number][-1]


def _for_one_device(config, phase):
  """Returns the config for computing on one device of any kind."""
  config = config.copy_and_resolve_references()
  config.mesh.model = 1
  for name in ('attention', 'heads', 'xla_options'):
    config.compute[name] = 'auto'
  return tuning.resolve(config, jax.devices()[0], phase.seq_length)


def _find_data(config, workdir) -> str:
  directory = paths.prepared_data(config, workdir)
  if not storage.exists(directory):
    named = f' (data.dir in {paths.config(workdir)})' if config.data.dir else ''
    raise errors.UserError(
      f'the data of the run are not in {directory}{named} any more; put them '
      'back, or a link to them.'
    )
  training_data.check_manifest(config, directory, manifest_file.read(directory))
  return dataset.fetch(directory, config.phases.seq_length)


def _read_params(objective, start, seed, workdir, latest):
  """Returns parameters of at most `latest` updates, their number, and origin.

  Their checkpoint's facts come last.
  """
  saved = paths.checkpoints(workdir)
  if not storage.exists(saved):
    raise errors.UserError(f'{saved} does not exist; train first.')
  steps = checkpoint_reader.list_steps(saved)
  if any(step <= latest for step in steps):
    params, facts = checkpoint_reader.read(saved, latest=latest)
    origin = f'checkpoint of step {facts["step"]:,}, '
    origin += f'fingerprint={facts["fingerprint"]}'
    return params, facts['step'], origin, facts
  # The state before the first update is a function of the config.
  params = jax.jit(objective.init)(jax.random.key(seed))
  if start:
    params, _ = start(jax.device_get(params))
  oldest = f'; the oldest checkpoint is of step {min(steps):,}' if steps else ''
  return params, 0, f'those before the first update{oldest}', {}


def _check_data(task, directory, was):
  """Raises errors.UserError unless the run was trained on these data."""
  now = task.facts
  before = {name: was[name] for name in now if name in was}
  changed = errors.find_changes(before, {name: now[name] for name in before})
  if changed:
    raise errors.UserError(
      f'{directory} holds other data than the run was trained on '
      f'({"; ".join(changed[:3])}); put the old data back.'
    )


def _find_logged(rows, number) -> dict[str, dict]:
  found = {
    row['kind']: row
    for row in rows
    if row['kind'] in _OF_A_STEP and row['step'] == number
  }
  means = [r for r in rows if r['kind'] == 'train' and r['step'] >= number]
  if means:
    found['train'] = min(means, key=lambda row: row['step'])
  return found
