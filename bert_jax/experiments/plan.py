"""The runs of a table of the paper, and what they cost."""

import functools
import os
import runpy
from collections.abc import Sequence
from typing import Any

from ml_collections import config_dict

from bert_jax import tasks
from bert_jax.config import flatten
from bert_jax.experiments import share
from bert_jax.experiments.grid import Run, change, name_run
from bert_jax.finetuning import starting, training
from bert_jax.finetuning.readers import splits
from bert_jax.runtime import storage
from bert_jax.trainer import task
from bert_jax.workdir import log, paths

_SIZES = 'num_layers', 'hidden_size', 'num_heads', 'mlp_size'


def count_flops(c: config_dict.ConfigDict) -> float:
  """Returns the FLOPs of training, at most, which are the same on any device."""
  objective, steps = tasks.get(c).make_objective(c), sum(c.phases.steps)
  return task.count_work(objective, task.list_phases(c), steps)['flops']


def list_runs(
  table: Any, c: config_dict.ConfigDict, file: str, directory: str, data: str
) -> dict[tuple[str, str], list[Run]]:
  """Returns {(row, column): its run of each seed}, for columns with data.

  Pre-training, which rows may share, is column '', of a second model '+'. Of
  fine-tuning, configs have the sizes and steps that a run fills in later.

  The table is of configs/tables.py; `c` and `file` are of pre-training, beside
  which the files of fine-tuning are; `data` has the folders of columns.
  """
  cells: dict[tuple[str, str], list[Run]] = {}
  models: dict[str, Run] = {}
  beside = os.path.dirname(file.partition(':')[0])

  def pretrain(changes, seed):
    # Values that the budget has, too, are left out of the name.
    fields = {k: x for k, x in changes.items() if flatten(c)[k] != x}
    # In init_from, a comma separates two models.
    name = name_run(fields | {'seed': seed}).replace(',', '+')
    own = {'data.dir': c.data.dir or os.path.join(directory, 'data')}
    fields |= {'seed': seed, **own}
    return models.setdefault(name, Run(name, file, fields, change(c, fields)))

  def tune(row, column, starts, seed):
    fields = {**column.fields, **row.tune}
    needs = tuple(x.name for x in starts)
    parts = *needs, column.folder, name_run(fields)
    fields['init_from'] = ','.join(os.path.join(directory, x) for x in needs)
    fields |= {'seed': seed, 'data.input': column.input.format(data)}
    path = os.path.join(beside, column.config)
    name = '+'.join(filter(None, parts)).replace(',', '+')
    plan = _plan(path, fields, starts[0].config)
    return Run(name, path, fields, plan, needs)

  for seed in range(table.seeds):
    for row in table.rows:
      starts = [pretrain(x, seed) for x in (row.model, *row.beside)]
      runs = {'+' * i: model for i, model in enumerate(starts)}
      for title, column in table.columns.items():
        there = storage.exists(os.path.join(data, column.folder))
        if there and title not in row.without:
          of = tune(row, column, starts, seed) if column.folder else starts[0]
          runs[title] = of
      for title, run in runs.items():
        cells.setdefault((row.name, title), []).append(run)
  return cells


def _plan(path, fields, model) -> config_dict.ConfigDict:
  """Returns the config of fine-tuning a model that is not there yet."""
  file, _, arguments = path.partition(':')
  c = change(runpy.run_path(file)['get_config'](arguments), fields)
  c.model.update({name: model.model[name] for name in _SIZES})
  c.data.vocab_size = model.data.vocab_size
  rows = _count_rows(c.task, splits.get_source(c))
  epochs = c.finetuning.epochs or starting.choose(c, rows)[1]
  c.phases.steps = (max(1, int(epochs * rows / c.phases.batch_size[0])),)
  return c


@functools.cache
def _count_rows(name: str, source: splits.Source) -> int:
  """Returns the number of training rows of a task's files."""
  contents = training.read_contents(tasks.SUPERVISED[name], source)
  return len(contents['train'].units)


def describe(todo: Sequence[Run], directory: str, gflops: float) -> str:
  """Returns a line on the work done and left, at `gflops` GFLOP/s if not 0."""
  costs = {run: count_flops(run.config) for run in todo}
  folders = {run: os.path.join(directory, run.name) for run in todo}
  done = [run for run in todo if share.read_results(folders[run])]
  made, seconds = sum(costs[run] for run in done), 0.0
  for run in done:
    phases, rows = run.config.phases, log.read(paths.metrics(folders[run]))
    seconds += log.count_seconds(rows, phases.steps, phases.batch_size)
  left = sum(costs.values()) - made
  speed = 1e9 * gflops or (made / seconds if seconds else 0)
  hours = f', {left / speed / 3600:.2g} hours of training' if speed else ''
  said = f'{len(done)} of {len(todo)} runs done, {made:.2e} FLOPs; left '
  return f'{said}{left:.2e} FLOPs{hours}'
