"""Draws the scores of a sweep: a strip of points for each setting."""

import itertools
import logging
import math
from typing import Any

from bert_jax import errors
from bert_jax.runtime import files
from bert_jax.workdir import paths

_WIDTH, _HEIGHT, _SETTING = 2.5, 4.5, 0.7  # inches: margins, height, a setting
_SPREAD = 0.25  # width of a strip, as a share of the distance between two


def draw(path: str, summary: dict[str, Any]):
  """Writes a picture.

  The runs of a setting stand side by side in the order of the grid, the line
  among them is their mean, the dashed one what a constant gets. If the settings
  differ in one positive number, or in the step of RUN@STEP, that is the axis,
  which is logarithmic.

  Args:
    path: the .png to write.
    summary: from `summary.summarise`; settings without a score are left out.

  Raises:
    errors.UserError: if matplotlib is missing or the file cannot be written.
  """
  figure = _make_figure(summary)
  files.write_file(path, lambda new: figure.savefig(new, format='png', dpi=110))


def _make_figure(summary):
  figures = _import()
  settings = [x for x in summary['settings'] if x['values']]
  found = find_axis([x['fields'] for x in settings])
  label, numbers = found or ('', [])
  places = [math.log10(x) for x in numbers] or list(range(len(settings)))
  width = _WIDTH + _SETTING * max(len(settings), 5)
  figure = figures.Figure(figsize=(width, _HEIGHT), layout='constrained')
  axis = figure.add_subplot()
  gaps = [b - a for a, b in itertools.pairwise(sorted(places))]
  strip = _SPREAD * min(gaps, default=1)
  for place, x in zip(places, settings, strict=True):
    values = list(x['values'].values())
    spots = [
      place + strip * ((i + 0.5) / len(values) - 0.5)
      for i in range(len(values))
    ]
    drawn = axis.plot(spots, values, 'o', color='C0', alpha=0.7, markersize=5)
    ends = place - strip, place + strip
    drawn += axis.plot(ends, [x['mean']] * 2, 'k-', lw=1.2)
    drawn += axis.plot(ends, [x['baseline']] * 2, 'k--', lw=1.2)
  meanings = ['run', 'mean of runs', 'constant prediction']
  if found:
    means = sorted(zip(places, (x['mean'] for x in settings), strict=True))
    drawn += axis.plot(*zip(*means, strict=True), 'k:')
    meanings.append('between means')
    names = [f'{x:g}' for x in numbers]
  else:
    names = [
      '\n'.join(f'{k}={v}' for k, v in x['fields'].items()) for x in settings
    ]
  turned = {'rotation': 45} if found else {}  # 4e-05 and 5e-05 are close
  axis.set_xticks(places, names, fontsize=8, **turned)
  axis.set_xlabel(label)
  axis.set_title(_describe(summary['about']), fontsize=10)
  metrics = {x['metric'] for x in settings}
  axis.set_ylabel(f'{metrics.pop() if len(metrics) == 1 else "score"} on dev')
  axis.grid(axis='y', color='0.9')
  # Below the axis, where it hides no point.
  place, columns = 'outside lower center', len(meanings)
  figure.legend(drawn, meanings, loc=place, ncols=columns, fontsize=8)
  return figure


def _describe(about) -> str:
  parts = [about['task'] or 'several tasks']
  if about['init_from']:
    parts.append(f'from {about["init_from"]}')
  if about['rows']:
    parts.append(f'{about["rows"]:,} rows of dev')
  return ', '.join(parts)


def find_axis(settings: list[dict[str, str]]) -> tuple[str, list[float]] | None:
  """Returns (label, number of each setting), if a positive one tells them apart.

  Args:
    settings: {field: value as text} of each.
  """
  names = {name for fields in settings for name in fields}
  if len(names) != 1 or len(settings) < 2:
    return None
  [name] = names
  texts = [fields[name] for fields in settings]
  split = [paths.split_step(text) for text in texts]
  if len({run for run, _ in split}) == 1 and split[0][1] is not None:
    name, texts = f'steps of {split[0][0]}', [str(step) for _, step in split]
  try:
    numbers = [float(text) for text in texts]
  except ValueError:
    return None
  return (name, numbers) if min(numbers) > 0 else None


def _import():
  """Returns a module of matplotlib, an optional dependency."""
  try:
    from matplotlib import figure
  except ImportError as error:
    raise errors.UserError(
      "no picture without matplotlib: pip install 'bert_jax[plot]'"
    ) from error
  logging.getLogger('matplotlib').setLevel(logging.WARNING)
  return figure
