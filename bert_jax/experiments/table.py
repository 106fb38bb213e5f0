"""The scores of a sweep, as JSON and as a table."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.experiments import grid
from bert_jax.finetuning.readers.glue import LEFT_OUT

_ABOUT = 'fields', 'metric', 'mean'  # of a setting


def summarise(
  runs: Sequence[grid.Run], results: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
  """Returns a sweep's results.json, by {name of a done run: its results.json}.

  `best` and `best_setting`, of the best run and the best mean, are null if no run
  is done or metrics differ; `select` is 'best' if the scores are from each run's
  best epoch; `settings` are in the order of the grid, see `_score`.
  """
  members: dict[tuple, list[str]] = {}  # of each setting
  for run in runs:
    fields = {k: x for k, x in run.fields.items() if k != grid.SEED}
    setting = tuple(grid.describe(fields).items())
    members.setdefault(setting, []).append(run.name)
  settings = [
    {'fields': dict(fields), 'runs': len(names)}
    | _score({x: results[x] for x in names if x in results})
    for fields, names in members.items()
  ]
  scored = [x for x in settings if x['values']]
  metric = _get_common(x['metric'] for x in scored)
  values = {k: v for x in scored for k, v in x['values'].items()}
  best = top = None
  if metric:
    top = max(scored, key=lambda x: x['mean'])
    top = {key: top[key] for key in _ABOUT}
    name = max(values, key=values.__getitem__)
    best = {'run': name, 'metric': metric, 'value': values[name]}
  return {
    'runs': len(runs),
    'done': len(values),
    'best': best,
    'best_setting': top,
    'glue': _summarise_glue(settings),
    'select': _get_common(x['select'] for x in results.values()),
    'settings': settings,
  }


def _get_common(values):
  """Returns the value that all have; None if they differ or there are none."""
  different = set(values)
  return different.pop() if len(different) == 1 else None


def _score(of: dict[str, dict]) -> dict[str, Any]:
  """Returns the scores of a setting's runs on dev, {name: results}.

  They are of the first `metric`: beside them stand a constant's, and what counting
  words gets, with the runs that are no better.
  """
  metric = _get_common(next(iter(x['metrics'])) for x in of.values())
  values = {name: x['metrics'][metric] for name, x in of.items()}
  scores = [*values.values()]
  baselines = (x['baseline'][metric] for x in of.values())
  words = {k: x['counted_words'] for k, x in of.items() if 'counted_words' in x}
  counted = (x['metrics'][metric] for x in words.values())
  return {
    'metric': metric,
    'values': values,
    'mean': statistics.fmean(scores) if scores else None,
    'std': statistics.stdev(scores) if len(scores) > 1 else None,
    'best': max(scores, default=None),
    'baseline': max(baselines, default=None),
    'problems': {k: x['problem'] for k, x in of.items() if x['problem']},
    'counted_words': max(counted, default=None),
    'below_words': [k for k, x in words.items() if x['problem']],
  }


def _summarise_glue(settings) -> dict[str, Any] | None:
  """Returns {task: its best setting and `run`} and their mean, without WNLI."""
  tasks: dict[str, dict] = {}
  for x in settings:
    if grid.GLUE not in x['fields']:
      return None
    task = x['fields'][grid.GLUE]
    if x['values'] and x['mean'] >= tasks.get(task, x)['mean']:
      tasks[task] = {key: x[key] for key in _ABOUT}
      tasks[task]['run'] = max(x['values'], key=x['values'].__getitem__)
  means = [x['mean'] for task, x in tasks.items() if task != LEFT_OUT]
  return {'tasks': tasks, 'mean': statistics.fmean(means) if means else None}


def tabulate(summary: dict[str, Any]) -> list[list[str]]:
  """Returns the table: a header, and a row for each setting."""
  settings = summary['settings']
  score = _get_common(x['metric'] for x in settings if x['metric']) or 'score'
  if summary['select'] == 'best':
    score = f'{score} of the best epoch'
  shown = {'mean': score, 'best': 'best', 'baseline': 'constant'}
  if any(x.get('counted_words') is not None for x in settings):
    shown['counted_words'] = 'counting words'
  rows = [[*settings[0]['fields'], 'done', *shown.values(), '']]
  for x in settings:
    numbers = ['' if x.get(k) is None else f'{x[k]:.4f}' for k in shown]
    numbers[0] += '' if x['std'] is None else f' ± {x["std"]:.4f}'
    poor, below = len(x['problems']), len(x.get('below_words', ()))
    said = f'{poor} may have learnt nothing' if poor else ''
    said += f', {below} no better than counting words' if below else ''
    done = f'{len(x["values"])}/{x["runs"]}'
    rows.append([*x['fields'].values(), done, *numbers, said.lstrip(', ')])
  return rows


def render(summary: dict[str, Any]) -> list[str]:
  """Returns the lines of `tabulate`."""
  rows = tabulate(summary)
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    '  '.join(x.ljust(n) for x, n in zip(row, widths, strict=True)).rstrip()
    for row in rows
  ]


def describe_best(summary: dict[str, Any]) -> list[str]:
  """Returns lines on the best run and the best mean, if there are any."""
  best, top = summary['best'], summary['best_setting']
  if best is None:
    return []
  lines = [f'best run: {best["run"]}, {best["metric"]} {best["value"]:.4f}']
  if fields := ', '.join(f'{k}={x}' for k, x in top['fields'].items()):
    lines.append(f'best mean: {fields}, {top["metric"]} {top["mean"]:.4f}')
  return lines
