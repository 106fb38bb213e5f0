"""The runs of a grid, and of a table of the paper: every config, by its folder."""

import dataclasses
import functools
import itertools
import os
import re
import runpy
import shlex
from collections.abc import Mapping
from typing import Any

from ml_collections import config_dict

from bert_jax import config_check, errors, tasks
from bert_jax.config import FIELDS, flatten, set_field
from bert_jax.finetuning import starting, training
from bert_jax.finetuning.readers import splits
from bert_jax.finetuning.readers.glue import LEFT_OUT
from bert_jax.runtime import storage
from bert_jax.trainer import task

SEED = 'seed'
GLUE = 'glue'  # the field
_LONGEST = 80  # characters of a value in the name of a folder
_UNUSUAL = re.compile(r'[^\w.@+-]+')  # characters that the name leaves out
_SIZES = 'num_layers', 'hidden_size', 'num_heads', 'mlp_size'


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run of a sweep or of a table: --config=`file` with `fields`.

  Its name is its folder's, such as 'learning_rate=2e-05,seed=0'; it starts from
  the runs that it needs, by their names.
  """

  name: str
  file: str
  fields: dict[str, Any]
  config: config_dict.ConfigDict
  needs: tuple[str, ...] = ()


def change(
  c: config_dict.ConfigDict, fields: Mapping[str, Any]
) -> config_dict.ConfigDict:
  """Returns a config with other values of fields, {path: value}."""
  new = c.copy_and_resolve_references()
  with new.ignore_type():
    new.update_from_flattened_dict(dict(fields))
  config_check.check(new)
  return new


def parse(text: str, config: config_dict.ConfigDict, file: str) -> list[Run]:
  """Returns the runs of a grid of a config, grouped by setting.

  Names of fields are as in `config.apply_arguments`; glue=all are all tasks.
  """
  axes: dict[str, list] = {}  # {path of a field: values}
  for item in shlex.split(text) or ['']:
    name, equals, values = item.partition('=')
    if not (name and equals):
      raise errors.UserError(
        f'--grid={text}: {item!r} is not FIELD=VALUE[,VALUE], such as '
        'learning_rate=2e-5,3e-5.'
      )
    for value in _list_values(name, values, config.data.input):
      new = config.copy_and_resolve_references()
      path = set_field(new, name, value)
      axes.setdefault(path, []).append(flatten(new)[path])
  paths = sorted(axes, key=lambda path: path == SEED)  # the seed is the last
  runs: dict[str, Run] = {}
  for values in itertools.product(*(axes[path] for path in paths)):
    fields = dict(zip(paths, values, strict=True))
    name = name_run(fields)
    if name in runs:
      raise errors.UserError(
        f'--grid={text} has two runs with the folder {name}; give each value '
        'once, and different names to what differs.'
      )
    runs[name] = Run(name, file, fields, change(config, fields))
  return list(runs.values())


def _list_values(name, values, folder) -> list[str]:
  """Returns the values of a field; glue=all are all tasks with files."""
  if (name.rpartition('.')[2], values) != (GLUE, 'all'):
    return values.split(',')
  names = splits.list_glue(folder)
  if not names:
    raise errors.UserError(
      f'data.input={folder} has no task of GLUE; name the folder that its '
      'download script writes, with CoLA, MRPC and so on.'
    )
  return [name for name in names if name != LEFT_OUT]


def name_run(fields: Mapping[str, Any]) -> str:
  """Returns the name of the run with these values of fields, {path: value}."""
  return ','.join(
    f'{name}={_UNUSUAL.sub("_", x.strip("/"))[-_LONGEST:]}'
    for name, x in describe(fields).items()
  )


def describe(fields: Mapping[str, Any]) -> dict[str, str]:
  """Returns {short name of a field: value as text}."""
  texts = {}
  for path, x in fields.items():
    if isinstance(x, tuple):  # mostly the same value for all phases
      x = x[0] if len({*x}) == 1 else '_'.join(map(str, x))
    texts[_shorten(path)] = str(x)
  return texts


def _shorten(path: str) -> str:
  """Returns the last part of a field's path, if no other field has it."""
  last = path.rpartition('.')[2]
  same = [x for x in FIELDS if x.rpartition('.')[2] == last]
  return last if len(same) == 1 else path


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
