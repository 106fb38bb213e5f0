"""The table of a sweep, and how a terminal shows it while it changes."""

import os
import shutil
import sys
from collections.abc import Mapping

from bert_jax import errors
from bert_jax.sweep import grid, states
from bert_jax.sweep import summary as summary_lib


def render(
  runs: list[grid.Run],
  found: Mapping[str, states.State],
  failed: Mapping[str, int],
) -> list[str]:
  """Returns the table as lines: a header, and a line for each setting.

  Args:
    runs: those of the grid.
    found: {name of a run: its state}.
    failed: {name of a run: its exit code}, of those that failed.
  """
  results = {k: x.results for k, x in found.items() if x.results}
  scores = summary_lib.summarise(runs, results)
  metrics = {x['metric'] for x in scores['settings']} - {None}
  [metric] = metrics if len(metrics) == 1 else ['score']
  groups = summary_lib.group(runs)
  rows = [[*groups[0][0], 'done', metric, 'best', '']]
  for (fields, members), x in zip(groups, scores['settings'], strict=True):
    notes = [
      note
      for run in members
      if (note := _note(run, found[run.name], failed, x['metric'] or metric))
    ]
    if x['problems']:
      notes.append(f'{len(x["problems"])} no better than a constant')
    rows.append(
      [
        *fields.values(),
        f'{len(x["values"])}/{x["runs"]}',
        _describe(x),
        '' if x['best'] is None else f'{x["best"]:.4f}',
        errors.listing(notes) if notes else '',
      ]
    )
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    '  '.join(x.ljust(n) for x, n in zip(row, widths, strict=True)).rstrip()
    for row in rows
  ]


def _describe(setting) -> str:
  if setting['mean'] is None:
    return ''
  if setting['std'] is None:
    return f'{setting["mean"]:.4f}'
  return f'{setting["mean"]:.4f} ± {setting["std"]:.4f}'


def _note(run, state, failed, metric) -> str:
  """Describes a run that is not done; '' if there is nothing to say."""
  name = f'seed={run.seed}' if run.seed else 'run'
  if run.name in failed:
    return f'{name} failed'
  if state.results is not None or not state.steps:
    return ''
  return f'{name} {describe_progress(state, metric)}'


def describe_progress(state: states.State, metric: str | None = None) -> str:
  """Describes how far a run is, in a few words.

  Args:
    state: that of the run.
    metric: the one to show if it was evaluated.
  """
  words = f'{state.step / state.steps:.0%}' if state.steps else 'starting'
  if metric in state.held_out:
    return f'{words} {metric} {state.held_out[metric]:.4f}'
  return words if state.loss is None else f'{words} loss {state.loss:.3f}'


class Live:
  """Lines at the bottom of a terminal that are replaced when they change.

  Where there is no terminal, nothing is drawn; `write` prints anywhere.
  """

  def __init__(self):
    self.on = sys.stdout.isatty() and os.environ.get('TERM') != 'dumb'
    self._lines: list[str] = []

  def draw(self, lines: list[str]):
    """Replaces what is drawn, as much as fits."""
    if not self.on:
      return
    width, height = shutil.get_terminal_size()
    lines = [line[: width - 1] for line in lines[: max(height - 2, 1)]]
    if lines == self._lines:
      return
    # One write of whole lines, so that nothing flickers.
    new = ''.join(f'{line}\x1b[K\n' for line in lines)
    self._send(f'{self._up()}{new}\x1b[J')
    self._lines = lines

  def write(self, line: str):
    """Prints a line above what is drawn."""
    lines, self._lines = self._lines, []
    if self.on and lines:
      self._send(f'\x1b[{len(lines)}F\x1b[J')
    self._send(f'{line}\n')
    self.draw(lines)

  def clear(self):
    """Removes what is drawn."""
    if self._lines:
      self._send(f'{self._up()}\x1b[J')
      self._lines = []

  def _up(self) -> str:
    return f'\x1b[{len(self._lines)}F' if self._lines else ''

  def _send(self, text):
    sys.stdout.write(text)
    sys.stdout.flush()
