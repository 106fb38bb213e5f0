"""Draws the scores of a sweep: a strip of points for each setting."""

import itertools
import logging
from typing import Any

from bert_jax import errors
from bert_jax.runtime import files
from bert_jax.workdir import paths

_WIDTH, _HEIGHT, _SETTING = 2.5, 4.5, 0.7  # inches: margins, height, a setting
_MEANINGS = 'run', 'mean of runs', 'constant prediction'  # of what is drawn
_SPREAD = 0.25  # width of a strip, as a share of the distance between two


def draw(path: str, summary: dict[str, Any]):
  """Writes a picture.

  The runs of a setting stand side by side in the order of the grid, the line
  among them is their mean, the dashed one what a constant gets. If the settings
  differ in one number, or in the step of RUN@STEP, that is the axis.

  Args:
    path: the .png to write.
    summary: from `summary.summarise`; settings without a score are left out.

  Raises:
    errors.UserError: if matplotlib is missing or the file cannot be written.
  """
  figure = _make_figure(summary['settings'])
  files.write_file(path, lambda new: figure.savefig(new, format='png', dpi=110))


def _make_figure(settings):
  figures = _import()
  settings = [x for x in settings if x['values']]
  found = find_axis([x['fields'] for x in settings])
  label, places = found or ('', list(range(len(settings))))
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
    for value, style in ((x['mean'], '-'), (x['baseline'], '--')):
      line = axis.hlines(
        value, place - strip, place + strip, 'k', style, lw=1.2
      )
      drawn.append(line)
  if found:
    order = sorted(range(len(places)), key=places.__getitem__)
    axis.plot(
      [places[i] for i in order], [settings[i]['mean'] for i in order], 'k:'
    )
  names = [
    '\n'.join(f'{k}={v}' for k, v in x['fields'].items()) for x in settings
  ]
  if not found:
    axis.set_xticks(places, names, fontsize=8)
  axis.set_xlabel(label)
  metrics = {x['metric'] for x in settings}
  axis.set_ylabel(f'{metrics.pop() if len(metrics) == 1 else "score"} on dev')
  axis.grid(axis='y', color='0.9')
  # Below the axis, where it hides no point.
  figure.legend(drawn, _MEANINGS, loc='outside lower center', ncols=3)
  return figure


def find_axis(settings: list[dict[str, str]]) -> tuple[str, list[float]] | None:
  """Returns (label, number of each setting), if one number tells them apart.

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
    return f'steps of {split[0][0]}', [float(step) for _, step in split]
  try:
    return name, [float(text) for text in texts]
  except ValueError:
    return None


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
