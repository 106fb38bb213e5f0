"""Measures reading, masking and prefetching of prepared data, on one core.

  python benchmarks/measure/loader.py --data=DIR [--seconds=3]

DIR is an output of bert_jax.data.prepare. Records are read in random order; a
row counts once it is masked and part of a batch of 256. A first pass over DIR
warms the disk cache.
"""

import functools
import os
import sys
import time

import numpy as np
from absl import app, flags

from bert_jax.config import FIELDS
from bert_jax.data import dataset, hashing, manifest, masking, order
from bert_jax.runtime import prefetch
from bert_jax.tokenization import tokenizer

_DATA = flags.DEFINE_string('data', None, 'Prepared data.', required=True)
_SECONDS = flags.DEFINE_float('seconds', 3, 'Duration of each measurement.')

B = 256
PREDICTIONS = {128: 20, 512: 76}
# Goals: rows/s at each length, seconds of a seek and of the start.
GOALS, SEEK, START = {128: 10_000, 512: 4_000}, 0.1, 1.0


def rate(make, rows=B) -> float:
  """Returns rows/s of make(0), make(1), ..."""
  make(0)
  start, n = time.perf_counter(), 0
  while time.perf_counter() - start < _SECONDS.value:
    n += 1
    make(n)
  return n * rows / (time.perf_counter() - start)


def mask_options(directory):
  words = tokenizer.read_vocab(os.path.join(directory, 'vocab.txt'))
  return {
    'rate': 0.15,
    'mix': (0.8, 0.1, 0.1),
    'vocab_size': len(words),
    'mask_id': words.index('[MASK]'),
    'special': np.array([words.index('[CLS]'), words.index('[SEP]')]),
    'continues': np.array([w.startswith('##') for w in words]),
  }


def make_batch(split, options, pack, unit, step):
  """Returns batch `step`, masked unless unit is None."""
  rows = np.arange(step * B, (step + 1) * B)
  record, epoch = order.find_records(1, rows, len(split.reader))
  batch = split.reader.rows(record, split.length, *options['special'], pack)
  if unit is None:
    return batch
  keys = hashing.mix(2, epoch, record)
  if pack > 1:
    keys = hashing.mix(keys[:, None], np.arange(pack))
  most = PREDICTIONS.get(split.length, round(split.length * 0.15))
  return masking.mask_tokens(
    batch, keys, unit=unit, max_predictions=most, **options
  )


def measure_reading(split, options, pack):
  """Prints rows/s of each unit; returns whether the goals are met."""
  length, ok = split.length, True
  make = functools.partial(make_batch, split, options, pack)
  for unit in (None, *FIELDS['objective.mask_unit'].allowed):
    found = rate(functools.partial(make, unit))
    goal = GOALS.get(length, 0)
    ok &= found >= goal
    print(
      f'  {unit or "not"} masked: {found:,.0f} rows/s, '
      f'{found * length / 1e6:.1f} M cells/s (goal {goal:,})'
    )
  return ok


def measure_start(directory, length, options, pack) -> bool:
  """Prints the time to open, and to the first batch of a far step."""
  start = time.perf_counter()
  split = dataset.open_split(directory, 'train', length)
  opened = time.perf_counter() - start
  slowest = 0.0
  for step in (10**3, 10**6, 10**9, 12_345_678):
    start = time.perf_counter()
    make_batch(split, options, pack, 'token', step)
    slowest = max(slowest, time.perf_counter() - start)
  print(
    f'length {length}: {len(split.reader):,} records in '
    f'{len(split.reader._paths)} files; open_split {opened:.3f} s (goal '
    f'{START}), slowest seek with its batch {slowest * 1e3:.0f} ms (goal '
    f'{SEEK * 1e3:.0f})'
  )
  return opened < START and slowest < SEEK


def measure_ahead(split, options, pack):
  """Prints rows/s through prefetch, from a thread and from processes."""
  make = functools.partial(make_batch, split, options, pack, 'token')
  for workers in (0, 1, 2):
    batches = prefetch.make_ahead(make, 0, 10**9, workers)
    for _ in range(8):
      next(batches)
    found = rate(lambda t, batches=batches: next(batches))
    batches.close()
    print(f'  prefetch, {workers} processes: {found:,.0f} rows/s')


def main(argv):
  del argv
  cores = sorted(os.sched_getaffinity(0))
  found = manifest.read(_DATA.value)
  pack = found['recipe']['pack']
  options = mask_options(_DATA.value)
  ok = True
  for length in found['recipe']['lengths']:
    os.sched_setaffinity(0, cores[:1])
    ok &= measure_start(_DATA.value, length, options, pack)
    split = dataset.open_split(_DATA.value, 'train', length)
    ok &= measure_reading(split, options, pack)
    os.sched_setaffinity(0, cores)
    print(f'  with {len(cores)} cores:')
    measure_ahead(split, options, pack)
  print('goals: ' + ('met' if ok else 'MISSED'))
  sys.exit(not ok)


if __name__ == '__main__':
  app.run(main)
