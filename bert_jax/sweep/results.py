"""The scores of a sweep, as JSON, a table, a picture and GLUE's submission."""

import os
import statistics
import zipfile
from collections.abc import Mapping
from typing import Any

from ml_collections import config_dict

from bert_jax.finetuning.readers import examples, glue, splits
from bert_jax.runtime import drawing, files, storage
from bert_jax.sweep import grid
from bert_jax.workdir import paths

_WIDTH, _HEIGHT, _SETTING = 2.5, 4.5, 0.7  # inches: margins, height, a setting


def summarise(
  runs: list[grid.Run], results: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
  """Returns the content of a sweep's results.json.

  Args:
    results: {name of a run: its results.json}, of those that are done, in any
      order.

  Returns:
    `runs` and `done`, counts; `best`, the `run`, `metric` and `value` of the
    best run, and `best_setting`, the `fields`, `metric` and `mean` of the best
    mean, null if no run is done or metrics differ; `glue`, see
    `_summarise_glue`; `select`, 'best' if the scores are from each run's best
    epoch; `settings`, in the order of the grid, each with its
    `fields`, the `metric` to compare by (null if no run is done), the `values`
    on dev {run: value}, their `mean`, `std` (of the sample; null for one run)
    and `best`, the value of a constant (`baseline`), and which runs are not
    better (`problems`, {run: why}).
  """
  members: dict[tuple, list[grid.Run]] = {}  # of each setting
  for run in runs:
    members.setdefault(tuple(run.setting.items()), []).append(run)
  settings = [
    {'fields': dict(fields), 'runs': len(found)}
    | _score({x.name: results[x.name] for x in found if x.name in results})
    for fields, found in members.items()
  ]
  scored = [x for x in settings if x['values']]
  metric = _get_common(x['metric'] for x in scored)
  best = best_setting = None
  if metric:
    top = max(scored, key=lambda x: x['mean'])
    best_setting = {key: top[key] for key in ('fields', 'metric', 'mean')}
    values = {k: v for x in scored for k, v in x['values'].items()}
    name = max(values, key=values.__getitem__)
    best = {'run': name, 'metric': metric, 'value': values[name]}
  return {
    'runs': len(runs),
    'done': sum(len(x['values']) for x in settings),
    'best': best,
    'best_setting': best_setting,
    'glue': _summarise_glue(settings),
    'select': _get_common(x['select'] for x in results.values()),
    'settings': settings,
  }


def _get_common(values):
  """Returns the value that all have; None if they differ or there are none."""
  found = set(values)
  return found.pop() if len(found) == 1 else None


def _score(found: dict[str, dict]) -> dict[str, Any]:
  """Returns the scores of a setting's runs, {name: results}."""
  # Runs are compared by their first metric.
  metric = _get_common(next(iter(x['metrics'])) for x in found.values())
  values = {name: x['metrics'][metric] for name, x in found.items()}
  scores = [*values.values()]
  return {
    'metric': metric,
    'values': values,
    'mean': statistics.fmean(scores) if scores else None,
    'std': statistics.stdev(scores) if len(scores) > 1 else None,
    'best': max(scores, default=None),
    'baseline': max(
      (x['baseline'][metric] for x in found.values()), default=None
    ),
    'problems': {
      name: x['problem'] for name, x in found.items() if x['problem']
    },
  }


def _summarise_glue(settings) -> dict[str, Any] | None:
  """Returns what a sweep over tasks of GLUE found; None for another sweep.

  Returns:
    `tasks`, {task: its best setting, with the best run in `run`}, and `mean`,
    of their means, without WNLI; null if there are none.
  """
  tasks: dict[str, dict] = {}
  for x in settings:
    if grid.GLUE not in x['fields']:
      return None
    task = x['fields'][grid.GLUE]
    if x['values'] and x['mean'] >= tasks.get(task, x)['mean']:
      best = max(x['values'], key=x['values'].__getitem__)
      kept = {key: x[key] for key in ('fields', 'metric', 'mean')}
      tasks[task] = kept | {'run': best}
  means = [x['mean'] for task, x in tasks.items() if task != grid.LEFT_OUT]
  return {'tasks': tasks, 'mean': statistics.fmean(means) if means else None}


def tabulate(summary: dict[str, Any]) -> list[list[str]]:
  """Returns the table: a header, and a row for each setting."""
  settings = summary['settings']
  score = _get_common(x['metric'] for x in settings if x['metric']) or 'score'
  if summary['select'] == 'best':
    score = f'{score} of the best epoch'
  rows = [[*settings[0]['fields'], 'done', score, 'best', 'constant', '']]
  for x in settings:
    poor = len(x['problems'])
    rows.append(
      [
        *x['fields'].values(),
        f'{len(x["values"])}/{x["runs"]}',
        _format_score(x['mean'], x['std']),
        _format_score(x['best']),
        _format_score(x['baseline']),
        f'{poor} may have learnt nothing' if poor else '',
      ]
    )
  return rows


def render(summary: dict[str, Any]) -> list[str]:
  """Returns the lines of `tabulate`."""
  rows = tabulate(summary)
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    '  '.join(x.ljust(n) for x, n in zip(row, widths, strict=True)).rstrip()
    for row in rows
  ]


def _format_score(mean, std=None) -> str:
  if mean is None:
    return ''
  return f'{mean:.4f}' if std is None else f'{mean:.4f} ± {std:.4f}'


def draw(path: str, summary: dict[str, Any]):
  """Draws the runs of each setting, their mean, and a constant's score."""
  figure = make_figure([x for x in summary['settings'] if x['values']])
  files.write_file(path, lambda new: figure.savefig(new, format='png', dpi=110))


def make_figure(settings: list[dict[str, Any]]):
  """Returns the figure of `draw`, of the settings with a score."""
  width = _WIDTH + _SETTING * max(len(settings), 5)
  figure = drawing.import_matplotlib().figure.Figure(
    figsize=(width, _HEIGHT), layout='constrained'
  )
  axis = figure.add_subplot()
  label, numbers = find_axis([x['fields'] for x in settings])
  places = numbers or range(len(settings))
  for place, x in zip(places, settings, strict=True):
    values = [*x['values'].values()]
    runs = axis.plot([place] * len(values), values, 'o', color='C0', alpha=0.6)
    mean = axis.plot(place, x['mean'], 'k_', markersize=22)
    constant = axis.plot(place, x['baseline'], '_', color='C3', markersize=22)
  if numbers:
    axis.set_xscale('log')
    axis.minorticks_off()
    # Numbers such as 4e-05 and 5e-05 are close.
    axis.set_xticks(numbers, [f'{x:g}' for x in numbers], rotation=45)
  else:
    names = ('\n'.join(map('='.join, x['fields'].items())) for x in settings)
    axis.set_xticks(places, [*names], fontsize=8)
  axis.set_xlabel(label)
  metric = _get_common(x['metric'] for x in settings) or 'score'
  axis.set_ylabel(f'{metric} on dev')
  axis.grid(axis='y', color='0.9')
  # Below the axis, where it hides no point.
  shown = [*runs, *mean, *constant]
  meanings = ['run', 'mean of runs', 'constant prediction']
  figure.legend(shown, meanings, loc='outside lower center', ncols=3)
  return figure


def find_axis(settings: list[dict[str, str]]) -> tuple[str, list[float]]:
  """Returns (field, its number in each setting) if it alone differs.

  It may be the step of RUN@STEP. ('', []) if there are several fields, or a
  value that is not a positive number, which a logarithmic axis needs.
  """
  if len(settings) < 2 or any(len(fields) != 1 for fields in settings):
    return '', []
  [name] = settings[0]
  texts = [fields[name] for fields in settings]
  split = [paths.split_step(text) for text in texts]
  run = _get_common(run for run, step in split if step is not None)
  if run and all(step is not None for _, step in split):
    name, texts = f'steps of {run}', [step for _, step in split]
  try:
    numbers = [float(x) for x in texts]
  except ValueError:
    return '', []
  return (name, numbers) if min(numbers) > 0 else ('', [])


def write_submission(
  path: str,
  directory: str,
  tasks: dict[str, dict[str, Any]],
  config: config_dict.ConfigDict,
) -> list[str] | None:
  """Writes the files for GLUE's leaderboard, of each task's best run, as a zip.

  Args:
    tasks: `glue` of `summarise`.
    config: the experiment, whose `data.input` may have WNLI.

  Returns:
    The files that the leaderboard asks for and that are missing; None if no run
    has one, so that nothing is written.
  """
  found = {}
  for task in tasks.keys() - {grid.LEFT_OUT}:
    for name in glue.TASKS[task].submissions.values():
      file = os.path.join(directory, tasks[task]['run'], 'submission', name)
      if storage.exists(file):
        found[name] = storage.read(file)
  if not found:
    return None
  wanted = [
    x for task in glue.TASKS.values() for x in task.submissions.values()
  ]
  if grid.LEFT_OUT in splits.list_glue(config.data.input):
    found |= _predict_commonest(config)

  def fill(new):
    with zipfile.ZipFile(new, 'w', zipfile.ZIP_DEFLATED) as written:
      for name in wanted:
        if name in found:
          # Without the time, so that the same predictions are the same bytes.
          entry = zipfile.ZipInfo(name)
          written.writestr(entry, found[name], zipfile.ZIP_DEFLATED)

  files.write_file(path, fill)
  return [name for name in wanted if name not in found]


def _predict_commonest(config) -> dict[str, str]:
  """Returns WNLI's file, with the commonest training class, if it has a test."""
  c = config.copy_and_resolve_references()
  c.finetuning.glue = grid.LEFT_OUT
  found = splits.find_files(splits.get_source(c))
  if 'test' not in found:
    return {}
  train, test = (
    examples.read_glue(grid.LEFT_OUT, split, found[split])
    for split in ('train', 'test')
  )
  label = statistics.mode(x.label for x in train.units)
  lines = ['index\tprediction', *(f'{x.id}\t{label}' for x in test.units)]
  return {'WNLI.tsv': '\n'.join(lines) + '\n'}
