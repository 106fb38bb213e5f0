"""Compares TFDS folders with our records: size and speed.

  python benchmarks/measure/tfds_records.py --data=DIR [--rows=20000]

DIR is an output of bert_jax.data.prepare with one pair in a row. The same rows
are written as our records and, twice, with a TFDS builder (file format
array_record): `plain` has integer features, as most folders do; `compact`
stores the bytes of our records. All are read in random order, a batch of 256 at
a time: ours into padded arrays, those of TFDS into a dict of arrays per row,
which would still have to be padded. Prints whether TFDS costs less than 20 %.
"""

import contextlib
import io
import os
import tempfile
import time

import numpy as np
import tensorflow_datasets as tfds
from absl import app, flags, logging

from bert_jax.data import dataset, manifest, records, rows
from bert_jax.tokenization import tokenizer

_DATA = flags.DEFINE_string('data', None, 'Prepared data.', required=True)
_ROWS = flags.DEFINE_integer('rows', 20_000, 'Rows to write.')
_SECONDS = flags.DEFINE_float('seconds', 3, 'Duration of each measurement.')

B = 256
ALLOWED = 1.2
CLS, SEP = 1, 2  # what they are does not matter here
BYTES = tfds.features.Encoding.BYTES


def plain_features():
  return {
    'input_ids': tfds.features.Tensor(shape=(None,), dtype=np.int32),
    'segment_ids': tfds.features.Tensor(shape=(None,), dtype=np.int32),
    'next_sentence_label': np.int32,
  }


def plain_example(first, second, is_random):
  return {
    'input_ids': np.r_[CLS, first, SEP, second, SEP].astype(np.int32),
    'segment_ids': np.repeat(
      np.arange(2, dtype=np.int32), [len(first) + 2, len(second) + 1]
    ),
    'next_sentence_label': is_random,
  }


def compact_features():
  text = tfds.features.Tensor(shape=(None,), dtype=np.uint16, encoding=BYTES)
  return {'first': text, 'second': text, 'is_random': np.int32}


def compact_example(first, second, is_random):
  return {
    'first': first.astype(np.uint16),
    'second': second.astype(np.uint16),
    'is_random': is_random,
  }


class Rows(tfds.core.GeneratorBasedBuilder):
  """A builder of given pairs."""

  VERSION = tfds.core.Version('1.0.0')

  def __init__(self, pairs, features, example, **kwargs):
    self._given = pairs, features, example
    super().__init__(file_format='array_record', **kwargs)

  def _info(self):
    features = tfds.features.FeaturesDict(self._given[1]())
    return tfds.core.DatasetInfo(builder=self, features=features)

  def _split_generators(self, dl_manager):
    del dl_manager
    return {'train': self._generate_examples()}

  def _generate_examples(self):
    pairs, _, example = self._given
    for i, pair in enumerate(pairs):
      yield i, example(*pair)


def read_pairs(split, count):
  """Returns (first, second, is_random) of the first rows of a split."""
  rows = split.reader.rows(np.arange(count), split.length, CLS, SEP)
  length = rows['input_mask'].sum(1)
  after = rows['segment_ids'].sum(1)  # second text and [SEP]
  return [
    (ids[1 : n - m - 1], ids[n - m : n - 1], int(label))
    for ids, n, m, label in zip(
      rows['input_ids'],
      length,
      after,
      rows['next_sentence_labels'],
      strict=True,
    )
  ]


def rate(read, size):
  """Returns rows/s of reading random rows."""
  rng = np.random.default_rng(0)
  read(rng.integers(0, size, B))
  start, n = time.perf_counter(), 0
  while time.perf_counter() - start < _SECONDS.value:
    read(rng.integers(0, size, B))
    n += B
  return n / (time.perf_counter() - start)


def folder_size(path):
  return sum(
    os.path.getsize(os.path.join(where, name))
    for where, _, names in os.walk(path)
    for name in names
  )


def measure_ours(pairs, vocab_size, length, path):
  """Returns (bytes a row, rows/s written, rows/s read)."""
  ids = tokenizer.choose_id_type(vocab_size)
  texts = [text for first, second, _ in pairs for text in (first, second)]
  ends = np.cumsum([len(text) for text in texts])
  spans = np.stack([np.append(0, ends[:-1]), ends], 1).reshape(-1, 2, 2)
  is_random = np.array([r for _, _, r in pairs])
  flat = np.concatenate(texts).astype(ids)
  start = time.perf_counter()
  order, counts = np.arange(len(pairs)), np.ones(len(pairs), int)
  records.write(path, rows.encode(flat, spans, is_random, order, counts))
  wrote = len(pairs) / (time.perf_counter() - start)
  reader = records.Reader([path], vocab_size)
  read = rate(lambda i: reader.rows(i, length, CLS, SEP), len(pairs))
  return os.path.getsize(path) / len(pairs), wrote, read


def measure_tfds(pairs, features, example, path):
  """Returns (bytes a row, rows/s written, rows/s read)."""
  start = time.perf_counter()
  builder = Rows(pairs, features, example, data_dir=path)
  with contextlib.redirect_stdout(io.StringIO()):
    builder.download_and_prepare()
  wrote = len(pairs) / (time.perf_counter() - start)
  directory = str(builder.data_path)
  source = tfds.builder_from_directory(directory).as_data_source('train')
  assert len(source) == len(pairs)
  read = rate(lambda i: source.__getitems__(i.tolist()), len(pairs))
  return folder_size(directory) / len(pairs), wrote, read


def main(argv):
  del argv
  logging.set_verbosity('error')
  tfds.disable_progress_bar()
  found = manifest.read(_DATA.value)
  vocab_size = found['recipe']['vocab_size']
  good = True
  for length in found['recipe']['lengths']:
    split = dataset.open_split(_DATA.value, 'train', length)
    pairs = read_pairs(split, min(_ROWS.value, len(split.reader)))
    print(f'length {length}, {len(pairs):,} rows:')
    with tempfile.TemporaryDirectory() as folder:
      kinds = {
        'ours': measure_ours(
          pairs, vocab_size, length, os.path.join(folder, 'ours')
        ),
        'TFDS plain': measure_tfds(
          pairs, plain_features, plain_example, os.path.join(folder, 'plain')
        ),
        'TFDS compact': measure_tfds(
          pairs,
          compact_features,
          compact_example,
          os.path.join(folder, 'compact'),
        ),
      }
    size, wrote, read = kinds['ours']
    for name, (a, b, c) in kinds.items():
      print(
        f'  {name}: {a:.0f} bytes a row ({a / size:.2f} of ours), {b:,.0f} '
        f'written/s ({b / wrote:.2f}), {c:,.0f} read/s ({c / read:.2f})'
      )
      good &= a < ALLOWED * size and c * ALLOWED > read
  print(
    'verdict: TFDS costs '
    + ('less than 20 %' if good else 'more than 20 % in size or speed')
  )


if __name__ == '__main__':
  app.run(main)
