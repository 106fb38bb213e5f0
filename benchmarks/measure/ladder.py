"""Fits the held-out loss of runs of several sizes against their FLOPs.

  python benchmarks/measure/ladder.py --runs=DIR,DIR,DIR,DIR,DIR --draw=ladder.png

The fit is loss = E + A · FLOPs^-alpha, by the least Huber loss of logarithms
(Hoffmann et al., 2022, arXiv 2203.15556, D.2). At least five runs are needed. The
one with the most FLOPs is left out, and its loss compared with what the others
predict. Then all are fitted, and the loss is extrapolated to --flops, with the range
of what the fits without one run each say. A run counts as it is at the end of its
last phase of --seq_length; it is refused if its learning rate has not fallen to 0
there, if it is still on the plateau, or if its data or the number of rows that are
evaluated are others. Needs the extra `plot` with --draw.
"""

import argparse
import itertools
import sys
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from bert_jax.report import runs
from bert_jax.runtime import drawing
from bert_jax.train import task

_HUBER = 1e-3  # of a logarithm, as in the paper
_UNIT = 1e14  # FLOPs, so that A is near 1


class Point(NamedTuple):
  """The end of a run."""

  name: str
  flops: float
  loss: float


def read_point(run: runs.Run, seq_length: int) -> Point:
  """Returns the end of a run's last phase of a length."""
  phases = task.list_phases(run.config)
  ends = [
    (phase, after)
    for phase, after in itertools.zip_longest(phases, phases[1:])
    if phase.seq_length == seq_length
  ]
  if not ends:
    sys.exit(f'{run.workdir} has no phase of length {seq_length}')
  phase, after = ends[-1]
  rates = run.config.phases.learning_rates
  if after and not (rates and rates[after.number]):
    sys.exit(f'{run.workdir}: the rate falls on after length {seq_length}')
  last = phase.first + phase.steps
  rows = [row for row in run.list_rows('eval') if row['step'] == last]
  if not rows:
    sys.exit(f'{run.workdir} has no evaluation of update {last:,}')
  row = rows[-1]
  if 'plateau_exit_flops' not in row:
    sys.exit(f'{run.workdir} is on the plateau')
  model = run.config.model
  name = f'{model.num_layers}x{model.hidden_size}'
  return Point(name, row['flops'], row['mlm_loss'])


def check_alike(found: list[runs.Run]):
  """Ends the program if losses of the runs cannot be compared."""
  for read in (
    lambda run: run.list_rows('run')[-1]['data_sha256'],
    lambda run: run.config.eval.sequences,
  ):
    first, *others = map(read, found)
    for run, other in zip(found[1:], others, strict=True):
      if other != first:
        sys.exit(f'{run.workdir} has {other}, {found[0].workdir} {first}')


def fit(points: list[Point]) -> tuple[float, float, float]:
  """Returns E, A (per `_UNIT` FLOPs) and alpha."""
  flops = np.array([p.flops for p in points])
  losses = np.log([p.loss for p in points])

  def compute_error(x):
    found = np.log(predict(np.exp(x), flops))
    return special.huber(_HUBER, found - losses).sum()

  starts = itertools.product((0.1, 1, 2), (0.5, 1, 2), (0.05, 0.15, 0.4))
  found = min(
    (
      optimize.minimize(
        compute_error,
        np.log(start),
        method='Nelder-Mead',
        options={'maxiter': 20_000, 'xatol': 1e-8, 'fatol': 1e-14},
      )
      for start in starts
    ),
    key=lambda x: x.fun,
  )
  return tuple(np.exp(found.x))


def predict(fitted: tuple[float, float, float], flops):
  """Returns the loss at FLOPs, in nats."""
  least, scale, power = fitted
  return least + scale * (np.asarray(flops) / _UNIT) ** -power


def draw(path: str, points: list[Point], fitted, tested, measured: Point):
  """Draws the runs, the fit of all and the one that had to predict a run."""
  figure = drawing.import_matplotlib().figure.Figure(
    (5, 3.4), layout='constrained'
  )
  axis = figure.add_subplot(xscale='log')
  flops = np.geomspace(points[0].flops / 1.5, points[-1].flops * 8, 100)
  axis.plot(flops, predict(fitted, flops), label='fit of all runs')
  axis.plot(
    flops,
    predict(tested, flops),
    linestyle='--',
    label=f'fit without {measured.name}',
  )
  for p in points:
    axis.plot(p.flops, p.loss, 'o', color='black', markersize=4)
    axis.annotate(
      p.name, (p.flops, p.loss), xytext=(4, 4), textcoords='offset points'
    )
  axis.set(xlabel='FLOPs', ylabel='held-out MLM loss')
  axis.legend(frameon=False)
  axis.spines[['top', 'right']].set_visible(False)
  figure.savefig(path, dpi=120)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--runs', required=True, help='their directories, at least five')
  add('--seq_length', type=int, default=64)
  add('--flops', type=float, nargs='*', default=[], help='extrapolate to these')
  add('--draw', default='', help='a PNG file')
  args = parser.parse_args()
  found, _ = runs.find(args.runs.split(','))
  if len(found) < 5:
    sys.exit(f'--runs has {len(found)} runs; at least five are needed')
  check_alike(found)
  points = sorted(
    (read_point(run, args.seq_length) for run in found), key=lambda p: p.flops
  )
  *smaller, largest = points
  tested, fitted = fit(smaller), fit(points)
  print(f'{"size":>8} {"FLOPs":>9} {"loss":>6} {"fit":>6}')
  for p in points:
    fit_here = predict(fitted, p.flops)
    print(f'{p.name:>8} {p.flops:9.2e} {p.loss:6.3f} {fit_here:6.3f}')
  expected = predict(tested, largest.flops)
  print(
    f'{largest.name} predicted by the others: {expected:.3f}, measured '
    f'{largest.loss:.3f}, {expected / largest.loss - 1:+.1%}'
  )
  without = [fit(points[:k] + points[k + 1 :]) for k in range(len(points))]
  for name, k in (('E', 0), ('alpha', 2)):
    some = [x[k] for x in without]
    print(
      f'{name} {fitted[k]:.3f}, without one run {min(some):.3f} to {max(some):.3f}'
    )
  for flops in args.flops:
    some = [float(predict(x, flops)) for x in without]
    print(
      f'extrapolated to {flops:.1e} FLOPs: {predict(fitted, flops):.2f}, without '
      f'one run {min(some):.2f} to {max(some):.2f}'
    )
  if args.draw:
    draw(args.draw, points, fitted, tested, largest)


if __name__ == '__main__':
  main()
