"""Renders a table of the paper beside ours, and the tests of its claims."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.reproduce import runs
from bert_jax.runtime import cards

_WORDS = """Cells: the paper's score / ours, mean ± standard deviation (number of seeds).
Each * is a run that is hardly better than a constant.

## Claims

The claims, of {} seeds each, and what is expected of small budgets were
written down before the runs. Expected: {}

A claim is *shown* if the 95 % interval of the difference, over seeds and rows of dev,
is above 0, and *reversed* if it is below. If two models do not differ, up to 6 % of
the claims come out as shown (10 % with two seeds). 'visible' is the difference that
four of five such experiments would show, if the models have learnt something."""


def render(
  table: Any,
  cells: Mapping[tuple[str, str], Sequence[runs.Run]],
  finished: Mapping[str, dict],
  counts: Mapping[str, np.ndarray],
  about: str,
) -> str:
  """Returns the page.

  Args:
    table, cells: of `runs.list_runs`.
    finished: {name of a run: its results.json}.
    counts: {name of a run: its `runs.read_counts`}.
    about: the command and what it costs.
  """
  there = [x for x in table.columns if (table.rows[0].name, x) in cells]
  lines = []
  for row in table.rows:
    models = cells[row.name, '']
    c, done = models[0].config, [x.name for x in models if x.name in finished]
    found = [finished[name]['metrics'] for name in done]
    left = sum('plateau_exit_flops' in x for x in found)
    line = [row.name, f'{c.model.num_layers} x {c.model.hidden_size}']
    line += [f'{runs.count_flops(c):.1e}', f'{left} of {len(found)}']
    line.append(_average([x['mlm_loss'] for x in found], '.3f'))
    for name, figure in zip(table.columns, row.paper, strict=True):
      if name in there:
        own = [
          x.name for x in cells.get((row.name, name), ()) if x.name in counts
        ]
        scores = [float(runs.score(counts[x].sum(0))) for x in own]
        poor = sum(bool(finished[x].get('problem')) for x in own)
        line.append(f'{figure or "-"} / {_average(scores, ".1f")}{"*" * poor}')
    lines.append(line)
  without = ', '.join(x for x in table.columns if x not in there)
  head = 'layers x hidden', 'FLOPs', 'left the plateau', 'held-out loss'
  claims = [x for x in table.list_claims() if x[0] in there]
  judged = 'column', 'better > other', 'difference', 'interval', 'visible'
  parts = [
    f'# {table.title}',
    about,
    *([f'Without data: {without}.'] if without else []),
    cards.make_table(('', *head, *there), lines),
    _WORDS.format(table.seeds, table.expected),
    cards.make_table(
      (*judged, 'seeds', ''), [_judge(table, x, cells, counts) for x in claims]
    ),
  ]
  return '\n\n'.join(parts) + '\n'


def _average(values, form: str) -> str:
  if not values:
    return '-'
  std = f' ± {statistics.stdev(values):{form}}' if len(values) > 1 else ''
  return f'{statistics.fmean(values):{form}}{std} ({len(values)})'


def _judge(table, claim, cells, counts) -> list[str]:
  column, *names = claim
  pairs = [
    [counts[run.name] for run in pair]
    for pair in zip(*(cells[name, column] for name in names), strict=True)
    if all(run.name in counts for run in pair)
  ]
  line = [column, ' > '.join(names)]
  if len(pairs) < 2:
    return [*line, '', '', '', f'{len(pairs)}', 'too few seeds']
  found = np.swapaxes(pairs, 0, 1)  # [2, seeds, N, 3]
  # Lower perplexity is better.
  sign = 1 if table.columns[column].folder else -1
  ours, theirs = runs.score(found.sum(2)).mean(1)
  drawn = sign * runs.compare(*found)
  low, high = np.quantile(drawn, (0.025, 0.975))
  word = 'shown' if low > 0 else 'REVERSED' if high < 0 else 'not shown'
  line += [f'{sign * (ours - theirs):+.1f}', f'{low:+.1f} to {high:+.1f}']
  return [*line, f'{2.8 * drawn.std():.1f}', f'{len(pairs)}', word]
