"""What the runs of a table got right, beside the paper, and its claims."""

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from bert_jax.experiments import grid
from bert_jax.experiments.grid import Run
from bert_jax.finetuning import spans, tags
from bert_jax.finetuning.readers import conll, splits, squad, table_files
from bert_jax.runtime import cards, files
from bert_jax.workdir import paths

_RESAMPLES = 1000
_LEVEL, _POWER = 0.05, 0.8
_WORDS = """Scores: the paper's / ours, mean ± standard deviation (seeds); each * is a run
that is hardly better than a constant. The claims, of {} seeds each, and what is
expected of small budgets were written down before the runs. Expected: {}

A claim is *shown* if the 95 % interval of the difference (Student's t over seeds,
a bootstrap over rows of dev) is above 0, and *reversed* if it is below. These are {} claims:
if no two models differed, {:.1f} of them would be expected to come out as one or the
other. 'visible' is the difference that four of five such experiments would show.
What is hardly better than a constant (*) is evidence of nothing."""


def read_counts(run: Run, workdir: str) -> np.ndarray:
  """Returns counts of what a finished run got right on dev, [N, 3] or [N, 6].

  For each row, question or sentence: hits, predicted, true. `score` of their
  sums is the accuracy, the F1 of entities, the mean F1 of answers or, for
  pre-training, with N = 1, the perplexity. Of numbers x and their predictions
  y, it is Pearson's correlation of the sums of 1, x, y, x², y² and xy.
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
    hits = spans.score([*answers.values()], given)[:, 1]
  else:
    rows = table_files.read(os.path.join(folder, 'dev.tsv')).rows
    both = [(x['label'], x['prediction']) for _, x in rows]
    if splits.get_source(run.config).regression:
      x, y = np.array(both, float).T
      return np.stack([x**0, x, y, x * x, y * y, x * y], 1)
    hits = np.array([label == given for label, given in both], float)
  return np.stack([hits, *np.ones((2, len(hits)))], 1)


def score(sums: np.ndarray) -> np.ndarray:
  """Returns the score in percent [...] of sums of counts [..., 3 or 6]."""
  if sums.shape[-1] == 6:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    return 100 * (n * xy - x * y) / np.sqrt((n * xx - x * x) * (n * yy - y * y))
  hits, given, there = np.moveaxis(sums, -1, 0)
  return 200 * hits / np.maximum(given + there, 1)


def compare(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
  """Returns how much better the first is, in percent, with its errors.

  A bootstrap over few seeds would give intervals that are too narrow.

  Args:
    ours, theirs: counts of the same seeds and rows, [seeds, N, 3].

  Returns:
    The difference, and its standard error of seeds (paired, with n - 1) and of
    rows (by a bootstrap that draws the same for all).
  """
  both, random = np.stack([ours, theirs]), np.random.default_rng(0)
  _, size, rows, _ = both.shape
  differences = np.subtract(*score(both.sum(2)))
  drawn = [0.0]
  for _ in range(_RESAMPLES if rows > 1 else 0):
    times = np.bincount(random.integers(0, rows, rows), minlength=rows)
    scores = score(np.einsum('n,asnk->ask', times, both))
    drawn.append(np.subtract(*scores).mean())
  of_seeds = differences.std(ddof=1) / size**0.5
  return differences.mean(), of_seeds, np.std(drawn[-_RESAMPLES:])


def find_margin(seeds: int, of_seeds: float, of_rows: float, p: float) -> float:
  """Returns the quantile of an error: Student's t of seeds, normal of rows."""
  t = special.stdtrit(seeds - 1, p) * of_seeds
  return float(np.hypot(t, special.ndtri(p) * of_rows))


def render(
  table: Any,
  cells: Mapping[tuple[str, str], Sequence[Run]],
  finished: Mapping[str, dict],
  counts: Mapping[str, np.ndarray],
  about: str,
) -> str:
  """Returns the page of a table and of its runs, `grid.list_runs`.

  `finished` and `counts` have results.json and `read_counts` of runs by name;
  `about` is the command and what it costs.
  """
  there = [x for x in table.columns if (table.rows[0].name, x) in cells]
  lines = []
  for row in table.rows:
    models = cells[row.name, '']
    c = models[0].config
    of = [finished[x.name]['metrics'] for x in models if x.name in finished]
    left = sum('plateau_exit_flops' in x for x in of)
    line = [row.name, f'{c.model.num_layers} x {c.model.hidden_size}']
    line += [f'{grid.count_flops(c):.1e}', f'{left} of {len(of)}']
    line.append(_average([x['mlm_loss'] for x in of], '.3f'))
    for name, figure in zip(table.columns, row.paper, strict=True):
      if name in there:
        runs = [x.name for x in cells.get((row.name, name), ())]
        scores = [float(score(counts[x].sum(0))) for x in runs if x in counts]
        poor = sum(bool(finished.get(x, {}).get('problem')) for x in runs)
        line.append(f'{figure or "-"} / {_average(scores, ".1f")}{"*" * poor}')
    lines.append(line)
  without = ', '.join(x for x in table.columns if x not in there)
  head = '', 'layers x hidden', 'FLOPs', 'left the plateau', 'held-out loss'
  claims = [x for x in table.list_claims() if x[0] in there]
  judged = [_judge(table, x, cells, counts) for x in claims]
  means = 'column', 'better > other', 'difference', 'interval', 'visible'
  sections = {
    'Runs': about + (f'\n\nWithout data: {without}.' if without else ''),
    'Scores': cards.make_table((*head, *there), lines),
    'Claims': _WORDS.format(
      table.seeds, table.expected, len(claims), _LEVEL * len(claims)
    ),
    'Differences': cards.make_table((*means, 'seeds', ''), judged),
  }
  return cards.make_card(table.title, sections)


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
  # [2, seeds, N, 3]
  difference, *errors = compare(*np.swapaxes(pairs, 0, 1))
  if not table.columns[column].folder:
    difference = -difference  # lower perplexity is better
  half = find_margin(len(pairs), *errors, 1 - _LEVEL / 2)
  low, high = difference - half, difference + half
  word = 'shown' if low > 0 else 'REVERSED' if high < 0 else 'not shown'
  visible = half + find_margin(len(pairs), *errors, _POWER)
  line += [f'{difference:+.1f}', f'{low:+.1f} to {high:+.1f}']
  return [*line, f'{visible:.1f}', f'{len(pairs)}', word]
