"""What the runs of a table got right, beside the paper, and its claims."""

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.experiments import plan
from bert_jax.experiments.grid import Run
from bert_jax.finetuning import span_answers, tags
from bert_jax.finetuning.readers import conll, splits, squad, table_files
from bert_jax.runtime import cards, files
from bert_jax.workdir import paths

_RESAMPLES = 1000
_WORDS = """Scores: the paper's / ours, mean ± standard deviation (seeds); each * is a run
that is hardly better than a constant. The claims, of {} seeds each, and what is
expected of small budgets were written down before the runs. Expected: {}

A claim is *shown* if the 95 % interval of the difference, over seeds and rows of dev,
is above 0, and *reversed* if it is below. If two models do not differ, up to 6 % of
the claims come out as shown (10 % with two seeds). 'visible' is the difference that
four of five such experiments would show, if the models have learnt something."""


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

  Counts are of the same seeds and rows, [seeds, N, 3], which are resampled in the
  same way for both: the paired bootstrap of MultiBERTs (arXiv 2106.16163).
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


def render(
  table: Any,
  cells: Mapping[tuple[str, str], Sequence[Run]],
  finished: Mapping[str, dict],
  counts: Mapping[str, np.ndarray],
  about: str,
) -> str:
  """Returns the page of a table and of its runs, `plan.list_runs`.

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
    line += [f'{plan.count_flops(c):.1e}', f'{left} of {len(of)}']
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
    'Claims': _WORDS.format(table.seeds, table.expected),
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
  found = np.swapaxes(pairs, 0, 1)  # [2, seeds, N, 3]
  # Lower perplexity is better.
  sign = 1 if table.columns[column].folder else -1
  ours, theirs = score(found.sum(2)).mean(1)
  drawn = sign * compare(*found)
  low, high = np.quantile(drawn, (0.025, 0.975))
  word = 'shown' if low > 0 else 'REVERSED' if high < 0 else 'not shown'
  line += [f'{sign * (ours - theirs):+.1f}', f'{low:+.1f} to {high:+.1f}']
  return [*line, f'{2.8 * drawn.std():.1f}', f'{len(pairs)}', word]
