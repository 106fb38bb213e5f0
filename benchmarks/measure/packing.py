"""Measures what packing several pairs into a row saves, on real data.

  python benchmarks/measure/packing.py --data=FOLDER

FOLDER must be prepared without packing, for lengths 128 and 512:

  python -m bert_jax.data.prepare --input='wiki/**/wiki_*' --vocab=vocab.txt \\
    --output=FOLDER --max_seq_length=128,512 --passes=1

Prints the share of padding with at most 1, 2, 3 and 8 pairs in a row, packed
shard by shard as `prepare` does it; and the time of a training step (forward
and backward, a small model on the CPU) per non-padding token, alternating plain
and packed. Takes about five minutes.
"""

import argparse
import functools
import os
import statistics
import tempfile
import time

import jax
import numpy as np
from array_record.python import array_record_module

from bert_jax.data import manifest as manifest_lib
from bert_jax.data import masking, packing, records
from bert_jax.model import bert_config, heads, parameters
from bert_jax.pretraining import pretrain

LENGTHS = {128: 20, 512: 76}  # predictions of a plain row
MOST = (1, 2, 3, 8)
PACK = 3  # of the timed steps
LAYERS, HIDDEN, HEADS = 4, 256, 4
TOKENS, ROUNDS = 4096, 12  # of a batch, padding included


def read(path) -> list[bytes]:
  return array_record_module.ArrayRecordReader(path).read_all()


def lengths_of(rows: list[bytes]) -> list[int]:
  """Returns the tokens of each row of one pair."""
  head = np.array([np.frombuffer(row, '<u2', 4) for row in rows], int)
  assert (head[:, 0] == 1).all()
  return (head[:, 2] + head[:, 3] + 3).tolist()


def join(rows: list[bytes]) -> bytes:
  """Joins records of one pair each into one record."""
  head = np.array([len(rows)], '<u2').tobytes()
  return b''.join(
    [head, *(row[2:8] for row in rows), *(row[8:] for row in rows)]
  )


def print_padding(length, shards):
  total = sum(map(len, shards))
  tokens = sum(map(sum, shards))
  for most in MOST:
    rows = sum(len(packing.pack(shard, length, most)) for shard in shards)
    print(
      f'| {length} | {most} | {total:,} | {rows:,} | '
      f'{1 - tokens / (rows * length):.2%} | {total / rows:.3f} |'
    )


def make_batch(path, words, length, pack, rng):
  """Returns a masked batch of TOKENS tokens from a file of records."""
  reader = records.Reader([path], words.size)
  indices = rng.choice(len(reader), TOKENS // length, replace=False)
  batch = reader.rows(indices, length, words.cls_id, words.sep_id, pack)
  shape = (len(indices), pack)[: 1 + (pack > 1)]
  return masking.mask_tokens(
    batch,
    rng.integers(1 << 63, size=shape).astype(np.uint64),
    unit='token',
    rate=0.15,
    mix=(0.8, 0.1, 0.1),
    max_predictions=LENGTHS[length],
    vocab_size=words.size,
    mask_id=words.mask_id,
    special=np.array([words.cls_id, words.sep_id]),
    continues=np.zeros(words.size, bool),
  )


@functools.cache
def make_step(vocab_size):
  bert = bert_config.BertConfig(vocab_size, HIDDEN, LAYERS, HEADS, 4 * HIDDEN)
  module = heads.PretrainingModel(bert)
  params = jax.jit(functools.partial(parameters.init, module))(
    jax.random.key(0)
  )

  def loss(params, batch):
    sums, _ = pretrain.compute_sums(module, params, batch, jax.random.key(1))
    return sums['mlm_loss'] + sums['nsp_loss']

  return functools.partial(jax.jit(jax.grad(loss)), params)


def seconds_of(step, batch) -> float:
  start = time.perf_counter()
  jax.block_until_ready(step(batch))
  return time.perf_counter() - start


def print_steps(length, rows, words):
  """Times steps on a shard's rows, alternating plain and packed."""
  sizes = lengths_of(rows)
  grouped = packing.pack(sizes, length, PACK)
  step, rng = make_step(words.size), np.random.default_rng(0)
  costs = {1: [], PACK: []}
  with tempfile.TemporaryDirectory() as directory:
    paths = {n: os.path.join(directory, f'{n}.arrayrecord') for n in costs}
    records.write(paths[1], rows)
    records.write(
      paths[PACK], [join([rows[i] for i in group]) for group in grouped]
    )
    batches = {
      n: [make_batch(paths[n], words, length, n, rng) for _ in range(ROUNDS)]
      for n in costs
    }
  for n in costs:
    seconds_of(step, batches[n][0])  # compiles
  for i in range(ROUNDS):
    for n, found in costs.items():
      batch = batches[n][i]
      found.append(seconds_of(step, batch) / batch['input_mask'].sum() * 1e6)
  plain, packed = (statistics.median(found) for found in costs.values())
  print(
    f'| {length} | {plain:.1f} | {packed:.1f} | {packed / plain:.3f} |',
    flush=True,
  )


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--data', required=True, help='prepared, without packing')
  folder = parser.parse_args().data
  manifest = manifest_lib.read(folder)
  recipe = manifest['recipe']
  if recipe['pack'] != 1 or not {*map(str, LENGTHS)} <= {*manifest['lengths']}:
    raise SystemExit(
      f'{folder} has pack={recipe["pack"]} and lengths '
      f'{", ".join(manifest["lengths"])}; prepare it with --pack=1 '
      '--max_seq_length=128,512.'
    )
  train = [s for s in manifest['shards'] if s['split'] == 'train']
  paths = {
    n: [os.path.join(folder, s['files'][str(n)]['name']) for s in train]
    for n in LENGTHS
  }
  print('| length | at most | pairs | rows | padding | pairs per row |')
  print('|---|---|---|---|---|---|')
  for length in LENGTHS:
    print_padding(length, [lengths_of(read(path)) for path in paths[length]])
  words = manifest_lib.load_tokenizer(folder)
  print(f'\nµs of a step per real token, at most {PACK} pairs per row:')
  print('| length | plain | packed | packed / plain |\n|---|---|---|---|')
  for length in LENGTHS:
    print_steps(length, read(paths[length][0]), words)


if __name__ == '__main__':
  main()
