"""The runs of a table, what they cost, and what they got right."""

import dataclasses
import functools
import os
import runpy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax import config_check, tasks
from bert_jax.config import flatten
from bert_jax.finetuning import completion, span_answers, tags
from bert_jax.finetuning.readers import conll, splits, squad, table_files
from bert_jax.runtime import files, storage
from bert_jax.sweep import grid, share
from bert_jax.train import task
from bert_jax.workdir import log, paths

_RESAMPLES = 1000
_SIZES = 'num_layers', 'hidden_size', 'num_heads', 'mlp_size'


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run, as `sweep.share` takes it.

  Attributes:
    config: --config=FILE with the fields; for fine-tuning, with the sizes and
      steps that its run fills in later.
    needs: the runs that it starts from.
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
  new = grid.make(dict(fields)).apply(c)
  config_check.check(new)
  return new


def count_flops(c: config_dict.ConfigDict) -> float:
  """Returns the FLOPs of training, at most.

  As if no batch were shorter and the last layer were computed everywhere, so
  that a plan does not depend on the device.
  """
  objective, steps = tasks.get(c).make_objective(c), sum(c.phases.steps)
  return task.count_work(objective, task.list_phases(c), steps)['flops']


def list_runs(
  table: Any, c: config_dict.ConfigDict, file: str, directory: str, data: str
) -> dict[tuple[str, str], list[Run]]:
  """Returns {(row, column): its run of each seed}, for columns with data.

  Pre-training, which rows may share, is column '', of a second model '+'.

  Args:
    table: of configs/tables.py.
    c: of pre-training.
    file: for --config; the files of fine-tuning are beside it.
    directory: of the runs.
    data: with the folders of columns.
  """
  found: dict[tuple[str, str], list[Run]] = {}
  models, own = {}, flatten(c)
  beside = os.path.dirname(file.partition(':')[0])
  prepared = c.data.dir or os.path.join(directory, 'data')

  def pretrain(changes, seed):
    # Values that the budget has, too, are left out of the name.
    fields = {k: x for k, x in changes.items() if own[k] != x} | {'seed': seed}
    # In init_from, a comma separates two models.
    name = grid.make(fields).name.replace(',', '+')
    if name not in models:
      fields['data.dir'] = prepared
      models[name] = Run(name, file, fields, change(c, fields))
    return models[name]

  for seed in range(table.seeds):
    for row in table.rows:
      starts = [pretrain(x, seed) for x in (row.model, *row.beside)]
      for i, model in enumerate(starts):
        found.setdefault((row.name, '+' * i), []).append(model)
      needs = tuple(x.name for x in starts)
      folders = ','.join(os.path.join(directory, x) for x in needs)
      for title, column in table.columns.items():
        there = storage.exists(os.path.join(data, column.folder))
        if title in row.without or not there:
          continue
        run = starts[0]
        if column.folder:
          fields = {**column.fields, **row.tune}
          parts = *needs, column.folder, grid.make(fields).name
          fields |= {'init_from': folders, 'seed': seed}
          fields['data.input'] = column.input.format(data)
          path = os.path.join(beside, column.config)
          full = '+'.join(filter(None, parts)).replace(',', '+')
          run = Run(full, path, fields, _plan(path, fields, run.config), needs)
        found.setdefault((row.name, title), []).append(run)
  return found


def _plan(path, fields, model) -> config_dict.ConfigDict:
  """Returns the config of fine-tuning a model that is not there yet."""
  file, _, arguments = path.partition(':')
  c = change(runpy.run_path(file)['get_config'](arguments), fields)
  c.model.update({name: model.model[name] for name in _SIZES})
  c.data.vocab_size = model.data.vocab_size
  rows = _count_rows(c.task, splits.get_source(c))
  epochs = c.finetuning.epochs or completion.choose(c, rows)[1]
  c.phases.steps = (max(1, int(epochs * rows / c.phases.batch_size[0])),)
  return c


@functools.cache
def _count_rows(name: str, source: splits.Source) -> int:
  """Returns the number of training rows of a task's files."""
  read = functools.partial(tasks.SUPERVISED[name].read_file, source)
  return len(splits.read(source, read)['train'].units)


def describe(todo: Sequence[Run], directory: str, gflops: float) -> str:
  """Returns a line on the work done and left, at `gflops` GFLOP/s if not 0."""
  folders = {run: os.path.join(directory, run.name) for run in todo}
  done = {run: x for run, x in folders.items() if share.read_results(x)}
  costs = {run: count_flops(run.config) for run in todo}
  made = sum(costs[run] for run in done)
  left = sum(costs.values()) - made
  seconds = sum(_count_seconds(run, x) for run, x in done.items())
  speed = 1e9 * gflops or (made / seconds if seconds else 0.0)
  hours = f', {left / speed / 3600:.2g} hours of training' if speed else ''
  return (
    f'{len(done)} of {len(todo)} runs done, {made:.2e} FLOPs; left '
    f'{left:.2e} FLOPs{hours}'
  )


def _count_seconds(run, workdir) -> float:
  phases, rows = run.config.phases, log.read(paths.metrics(workdir))
  return log.count_seconds(rows, phases.steps, phases.batch_size)


def read_counts(run: Run, workdir: str) -> np.ndarray:
  """Returns counts of what a finished run got right on dev, [N, 3].

  For each row, question or sentence: hits, predicted, true. `score` of their
  sums is the accuracy, the F1 of entities, the mean F1 of answers or, for
  pre-training, with N = 1, the perplexity.
  """
  folder = os.path.join(workdir, 'predictions')
  if not run.needs:
    results = files.read_json(paths.results(workdir))
    hits = np.array([results['metrics']['mlm_perplexity'] / 100])
  elif run.config.task == 'tagging':
    path = os.path.join(folder, 'dev.conll')
    both = ([x.tags for x in conll.read(path, 0, i).units] for i in (1, 2))
    return sum(tags.count_entities(*both).values()).astype(float)
  elif run.config.task == 'spans':
    answers = files.read_json(os.path.join(folder, 'dev.predictions.json'))
    asked = squad.read(splits.find_files(splits.get_source(run.config))['dev'])
    right = {x.id: [text for text, _ in x.answers] for x in asked.units}
    given = [right[x] for x in answers]
    hits = span_answers.score([*answers.values()], given)[:, 1]
  else:
    rows = table_files.read(os.path.join(folder, 'dev.tsv')).rows
    hits = np.array([x['label'] == x['prediction'] for _, x in rows], float)
  return np.stack([hits, *np.ones((2, len(hits)))], 1)


def score(sums: np.ndarray) -> np.ndarray:
  """Returns the score in percent [...] of sums of counts [..., 3]."""
  hits, given, there = np.moveaxis(sums, -1, 0)
  return 200 * hits / np.maximum(given + there, 1)


def compare(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
  """Returns how much better the first is in each of many resamples, in percent.

  Seeds and rows are resampled, in the same way for both: the paired bootstrap
  of MultiBERTs (arXiv 2106.16163).

  Args:
    ours, theirs: counts of the same seeds and rows, [seeds, N, 3].
  """
  both, random = np.stack([ours, theirs]), np.random.default_rng(0)
  _, size, rows, _ = both.shape
  drawn = []
  for _ in range(_RESAMPLES):
    times = np.bincount(random.integers(0, rows, rows), minlength=rows)
    seeds = random.integers(0, size, size)
    means = score(np.einsum('n,asnk->ask', times, both))[:, seeds].mean(1)
    drawn.append(means[0] - means[1])
  return np.array(drawn)
