"""The table of a sweep."""

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
  chosen = {x.get('select') for x in results.values()} == {'best'}
  groups = summary_lib.group(runs)
  shown = f'{metric} of the best epoch' if chosen else metric
  rows = [[*groups[0][0], 'done', shown, 'best', '']]
  for (fields, members), x in zip(groups, scores['settings'], strict=True):
    notes = [
      note
      for run in members
      if (note := _note(run, found[run.name], failed, x['metric'] or metric))
    ]
    if x['problems']:
      notes.append(f'{len(x["problems"])} may have learnt nothing')
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
