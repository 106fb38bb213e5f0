"""Measures how many rows of training data a run makes in a second.

  python benchmarks/measure/loader.py --config=configs/base.py --data=DATA

makes batches of the config's first phase as a training run does, in one thread,
from DATA, which a run of that config or bert_jax.data.prepare has made. First come
the first 200 batches after the files have left the page cache; then rows that are
only read and laid out; then batches, that is, rows in shuffled order and masked.
Rows are also counted per second of CPU time, since on a CPU the updates want the
same cores.
"""

import argparse
import os
import runpy
import statistics
import time
from collections.abc import Callable

import numpy as np
import step_rows

from bert_jax.data import dataset
from bert_jax.pretraining import batches
from bert_jax.trainer import task

ROUNDS, SECONDS, COLD = 5, 1.0, 200


def drop_cache(directory: str):
  """Removes the files of a folder from the page cache."""
  os.sync()  # what is not written yet would stay
  for entry in os.scandir(directory):
    with open(entry.path, 'rb') as file:
      os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(make: Callable[[int], dict], size: int) -> str:
  """Returns the median rates of some rounds, per second and per CPU second."""
  rates, step = [], COLD
  for _ in range(ROUNDS + 1):
    clock, cpu, first = time.perf_counter(), time.process_time(), step
    while time.perf_counter() - clock < SECONDS:
      make(step)
      step += 1
    rows = (step - first) * size
    rates.append(
      (
        rows / (time.perf_counter() - clock),
        rows / (time.process_time() - cpu),
      )
    )
  by_clock, by_cpu = map(statistics.median, zip(*rates[1:], strict=True))
  return f'{by_clock:,.0f} rows a second, {by_cpu:,.0f} a second of CPU time'


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--config', required=True, help='FILE or FILE:ARGUMENTS')
  parser.add_argument('--data', required=True, help='prepared data')
  args = parser.parse_args()
  name, _, arguments = args.config.partition(':')
  c = runpy.run_path(name)['get_config'](arguments)
  c.phases.update({x: values[:1] for x, values in c.phases.items()})
  step_rows.use_data(c, args.data)
  [phase] = task.list_phases(c)
  size = phase.batch_size
  drop_cache(args.data)
  clock = time.perf_counter()
  made = batches.Batches(c, args.data)
  for step in range(COLD):
    made.train_batch(phase, step)
  rate = COLD * size / (time.perf_counter() - clock)
  print(f'rows of {phase.seq_length} tokens; cold: {rate:,.0f} rows a second')

  reader = dataset.open_split(args.data, 'train', phase.seq_length).reader
  chosen = np.random.default_rng(0).integers(0, len(reader), (COLD, size))
  read = measure(lambda step: reader.rows(chosen[step % COLD], 0, 0), size)
  print(f'read: {read}')
  print(f'made: {measure(lambda step: made.train_batch(phase, step), size)}')


if __name__ == '__main__':
  main()
