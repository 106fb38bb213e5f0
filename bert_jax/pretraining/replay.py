"""Rebuilds the batch of a past step and measures each of its rows.

Order is arithmetic: the rows of a step, their masks and their dropout depend on
seed and step alone, so nothing has to be recorded for this. The weights are
those of the nearest checkpoint at or before the step.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.data import local_data
from bert_jax.data import manifest as manifest_lib
from bert_jax.inference import trained_run
from bert_jax.pretraining import batches, init_from, pretrain, training_data
from bert_jax.runtime import storage
from bert_jax.tokenization import tokenizer as tokenizer_lib
from bert_jax.train import row_gradients, tuning
from bert_jax.train import task as task_lib
from bert_jax.workdir import checkpoint_reader, log, paths

# What a run logs about a single step.
_OF_A_STEP = ('spike', 'skipped')


@dataclasses.dataclass(frozen=True)
class Weights:
  """The parameters that a step is replayed with.

  Attributes:
    params: float32 arrays, as the model has them in training.
    step: updates that they have seen, at most those before the replayed one.
    origin: description, to print.
  """

  params: Any
  step: int
  origin: str


@dataclasses.dataclass(frozen=True)
class Replay:
  """A past step, with all that is needed to compute it again.

  Attributes:
    config: the run's config, with `compute` and `mesh` for one device here.
    number: the step as in the log, from 1: the number of updates with it.
    phase: its phase.
    batch: its global batch, leaves [B, ...].
    records: int [B], the record of training data that each row reads.
    epochs: int [B], how often the whole data was read before.
    places: file of each record and its number in it, B texts.
    weights: the weights to use.
    tokenizer: the run's tokenizer.
    logged: rows of the log about this step alone, and the row `train` whose
      means include it; by kind.
  """

  config: config_dict.ConfigDict
  number: int
  phase: task_lib.Phase
  batch: task_lib.Batch
  records: np.ndarray
  epochs: np.ndarray
  places: tuple[str, ...]
  weights: Weights
  tokenizer: tokenizer_lib.Tokenizer
  logged: dict[str, dict]

  @property
  def updates_between(self) -> int:
    """Returns the updates between the weights and the replayed one."""
    return self.number - 1 - self.weights.step


def rebuild(workdir: str, number: int) -> Replay:
  """Rebuilds a step of a run, which may be training and is not changed.

  Args:
    workdir: the run's directory.
    number: the step as in the log, from 1.

  Raises:
    errors.UserError: if the directory holds no run, the run has no such step
      or has not reached it, its data are not where they were or not what they
      were, or no checkpoint can be read.
  """
  config = trained_run.read_config(paths.config(workdir))
  if config.task != 'pretraining':
    raise errors.UserError(
      f'{workdir} is a run of task={config.task}; only steps of pre-training '
      'can be replayed.'
    )
  phase = _find_phase(config, number)
  config = _for_one_device(config, phase)
  directory = _find_data(config, workdir)
  rows = log.read(paths.metrics(workdir))
  _check_reached(config, number, rows)
  weights, facts = _read_weights(config, directory, workdir, number - 1)
  trained_run.check_params(
    weights.params, pretrain.make_module(config), paths.config(workdir)
  )
  _check_facts(config, directory, facts or _logged_facts(rows))
  made = batches.Batches(config, directory)
  index = np.arange(phase.batch_size)
  records, epochs = made.find_records(phase, number - 1, index)
  return Replay(
    config=config,
    number=number,
    phase=phase,
    batch=made.train_batch(phase, number - 1),
    records=records,
    epochs=epochs,
    places=tuple(made.name_record(phase, i) for i in records.tolist()),
    weights=weights,
    tokenizer=manifest_lib.load_tokenizer(directory),
    logged=_find_logged(rows, number),
  )


def measure(
  replay: Replay, done: Callable[[int], None]
) -> row_gradients.RowGradients:
  """Computes the loss and the gradient of every row.

  Args:
    replay: the step.
    done: called with 1 after each row.
  """
  return row_gradients.compute(
    replay.config,
    pretrain.make_objective(replay.config),
    replay.phase,
    replay.weights.params,
    replay.batch,
    replay.number - 1,
    done,
  )


def _find_phase(config, number) -> task_lib.Phase:
  phases = task_lib.list_phases(config)
  steps = sum(config.phases.steps)
  if not 1 <= number <= steps:
    raise errors.UserError(
      f'--step={number} is not a step of the run, which has steps 1 to {steps}, '
      'numbered as in its log.'
    )
  return [phase for phase in phases if phase.first < number][-1]


def _check_reached(config, number, rows):
  last = max((row['step'] for row in rows), default=None)
  if last is not None and number > last + config.log.every:
    raise errors.UserError(
      f'the run has not reached --step={number}; its log ends at step {last}.'
    )


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
  training_data.check_manifest(config, directory, manifest_lib.read(directory))
  return local_data.fetch(directory, config.phases.seq_length)


def _read_weights(config, directory, workdir, latest):
  """Returns the newest weights of at most `latest` updates, and their facts."""
  saved = paths.checkpoints(workdir)
  if not storage.exists(saved):
    raise errors.UserError(f'{saved} does not exist; train first.')
  steps = checkpoint_reader.list_steps(saved)
  if any(step <= latest for step in steps):
    params, facts = checkpoint_reader.read(saved, latest=latest)
    origin = f'checkpoint of step {facts["step"]:,}, '
    origin += f'fingerprint={facts["fingerprint"]}'
    return Weights(_put(params), facts['step'], origin), facts
  # The state before the first update is a function of the config.
  objective = pretrain.make_task(config, directory).objective(config)
  params = jax.jit(objective.init)(jax.random.key(config.seed))
  if config.init_from:
    params, _ = init_from.start(config, directory, jax.device_get(params))
  oldest = f'; the oldest checkpoint is of step {min(steps):,}' if steps else ''
  return Weights(_put(params), 0, f'those before the first update{oldest}'), {}


def _put(params):
  return jax.device_put(params, jax.devices()[0])


def _logged_facts(rows) -> dict:
  """Returns what a run without a checkpoint logged about its data."""
  started = [row for row in rows if row['kind'] == 'run']
  return {'task': started[-1]} if started else {}


def _check_facts(config, directory, facts):
  """Raises errors.UserError unless the data are those of the training."""
  now = pretrain.make_task(config, directory).facts
  was = facts.get('task', {})
  changed = errors.find_changes(
    {name: was[name] for name in now if name in was},
    {name: value for name, value in now.items() if name in was},
  )
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
