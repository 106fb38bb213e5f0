"""The scores of a sweep: mean and deviation of each setting, and the best."""

import statistics
from collections.abc import Mapping
from typing import Any

from bert_jax.sweep import glue_tasks, grid


def summarise(
  runs: list[grid.Run], results: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
  """Returns the content of a sweep's results.json.

  It depends on nothing else, such as the order of the runs in time.

  Args:
    runs: those of the grid.
    results: {name of a run: its results.json}, of those that are done.

  Returns:
    `runs` and `done`, counts; `about`, the `task`, `init_from` and `rows` of dev
    of all runs, each null if they differ; `settings`, in the order of the grid, each with
    its `fields`, the `metric` to compare by (null if no run is done), the
    `values` on dev {run: value}, their `mean`, `std` (of the sample; null for
    one run) and `best`, that of a constant (`baseline`), and which runs are
    no better (`problems`, {run: why}); `best`, the `run`, `metric` and `value` of
    the best run, `best_setting`, the `fields`, `metric` and `mean` of the best
    mean: null if no run is done or metrics differ; `glue`, see
    `glue_tasks.summarise`.
  """
  settings: list[dict[str, Any]] = []
  for fields, members in group(runs):
    found = {x.name: results[x.name] for x in members if x.name in results}
    settings.append({'fields': fields, 'runs': len(members), **_score(found)})
  scored = [x for x in settings if x['values']]
  best = best_setting = None
  if len({x['metric'] for x in scored}) == 1:
    top = max(scored, key=lambda x: x['mean'])
    best_setting = {key: top[key] for key in ('fields', 'metric', 'mean')}
    values = {k: v for x in scored for k, v in x['values'].items()}
    name = max(values, key=values.__getitem__)
    best = {'run': name, 'metric': top['metric'], 'value': values[name]}
  return {
    'runs': len(runs),
    'done': sum(len(x['values']) for x in settings),
    'about': _find_common(
      {k: x[k] for k in ('task', 'init_from')} | {'rows': x['counts']['dev']}
      for x in results.values()
    ),
    'best': best,
    'best_setting': best_setting,
    'glue': glue_tasks.summarise(settings),
    'settings': settings,
  }


def group(runs: list[grid.Run]) -> list[tuple[dict[str, str], list[grid.Run]]]:
  """Returns (setting, its runs), in the order of the runs."""
  found: dict[tuple, list[grid.Run]] = {}
  for run in runs:
    found.setdefault(tuple(run.setting.items()), []).append(run)
  return [(dict(setting), members) for setting, members in found.items()]


def _find_common(facts) -> dict[str, Any]:
  """Returns each fact that all have, None for the others."""
  seen: dict[str, list] = {'task': [], 'init_from': [], 'rows': []}
  for each in facts:
    for name, value in each.items():
      seen[name].append(value)
  return {k: x[0] if len(set(x)) == 1 else None for k, x in seen.items()}


def _score(found: dict[str, dict]) -> dict[str, Any]:
  """Returns the scores of a setting's runs, {name: results}."""
  # The first metric of a run is the one to compare by.
  names = {next(iter(x['metrics'])) for x in found.values()}
  metric = names.pop() if names else None
  values = {name: x['metrics'][metric] for name, x in found.items()}
  several = len(values) > 1
  return {
    'metric': metric,
    'values': values,
    'mean': statistics.fmean(values.values()) if values else None,
    'std': statistics.stdev(values.values()) if several else None,
    'best': max(values.values(), default=None),
    'baseline': max(
      (x['baseline'][metric] for x in found.values()), default=None
    ),
    'problems': {
      name: x['problem'] for name, x in found.items() if x['problem']
    },
  }
