"""Simulates how often a run is said to have learnt nothing, rightly or wrongly.

  python benchmarks/measure/learnt_nothing.py

Predictions for dev rows of balanced classes, with as many training rows as a
small data set has: random ones, which should be flagged, and ones that are right
in most rows, which should not. The table has the runs of 500 that were flagged.
"""

import argparse

import numpy as np

from bert_jax.finetuning import metrics

TRAIN = 240  # rows


def count_flagged(classes, rows, accuracy=None, runs=500) -> int:
  """Returns how many runs are flagged.

  Args:
    classes: their number.
    rows: of dev.
    accuracy: chance that a prediction is right; None predicts at random.
    runs: simulated runs.
  """
  random, flagged = np.random.default_rng(0), 0
  for _ in range(runs):
    train, truth, predicted = (
      random.integers(0, classes, n) for n in (TRAIN, rows, rows)
    )
    if accuracy is not None:
      wrong = (truth + random.integers(1, classes, rows)) % classes
      predicted = np.where(random.random(rows) < accuracy, truth, wrong)
    scored = metrics.compare(['accuracy'], truth, predicted, train)
    problem = metrics.find_problem(scored, predicted)
    flagged += problem is not None
  return flagged


def main():
  """Prints the table."""
  argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  ).parse_args()
  print('| classes | dev rows | predictions | flagged of 500 |')
  print('|---|---|---|---|')
  for classes, rows in ((3, 60), (2, 60), (2, 277), (20, 100)):
    for accuracy in (None, 0.8):
      shown = 'random' if accuracy is None else f'{accuracy:.0%} right'
      found = count_flagged(classes, rows, accuracy)
      print(f'| {classes} | {rows} | {shown} | {found} |', flush=True)


if __name__ == '__main__':
  main()
