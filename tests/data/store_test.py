"""Tests of tokens on disk, and of pairs as offsets."""

import os
import pickle
import resource

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import store
from tests.data import made

CLS, SEP = 2, 3
# (first, second, is_random)
PAIRS = [
  ([7, 8], [9], False),
  ([10], [11, 12, 13], True),
  ([5], [6], False),
]
ROWS = [[pair] for pair in PAIRS]


def write(tmp_path, files=(ROWS,), length=8, vocab_size=20, pack=1):
  """Returns a reader of a shard for each list of rows."""
  shards = [
    made.shard(tmp_path, f'shard{k}', listed, length, vocab_size, pack)
    for k, listed in enumerate(files)
  ]
  return store.Reader(str(tmp_path), shards, length, vocab_size, pack)


def read(reader, indices):
  return reader.rows(np.array(indices), CLS, SEP)


def test_files_by_hand(tmp_path):
  write(tmp_path, [[PAIRS[1:], PAIRS[:1]]], pack=2)
  found = (tmp_path / 'shard0.tokens').read_bytes()
  assert np.frombuffer(found, '<u2').tolist() == [
    *(10, 11, 12, 13, 5, 6),
    *(7, 8, 9),
  ]
  assert (tmp_path / 'shard0').read_bytes() == bytes.fromhex(
    # Begins of both texts, tokens of both, whether the second is random.
    '00000000 01000000 0100 0300 01'
    '04000000 05000000 0100 0100 00'
    '06000000 08000000 0200 0100 00'
    # Pairs before each row, and before the end.
    '0000000000000000 0200000000000000 0300000000000000'
  )


def test_rows_by_hand(tmp_path):
  batch = read(write(tmp_path), [1, 0])
  assert {k: v.tolist() for k, v in batch.items()} == {
    'input_ids': [
      [2, 10, 3, 11, 12, 13, 3, 0],
      [2, 7, 8, 3, 9, 3, 0, 0],
    ],
    'input_mask': [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0, 0]],
    'segment_ids': [[0, 0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 0, 0]],
    'next_sentence_labels': [1, 0],
    'next_sentence_weights': [1, 1],
  }
  weights = batch.pop('next_sentence_weights')
  assert weights.dtype == np.float32
  assert {x.dtype for x in batch.values()} == {np.dtype('i4')}


def test_packed_rows_of_32_bits_by_hand(tmp_path, more=70_000):
  long = ([10 + more], [11, 12, 13 + more], True)
  files = [[[long, PAIRS[2]], [PAIRS[0]]]]
  batch = read(write(tmp_path, files, 13, 20 + more, pack=3), [0, 1])
  assert {k: v.tolist() for k, v in batch.items()} == {
    'input_ids': [
      [2, 10 + more, 3, 11, 12, 13 + more, 3, 2, 5, 3, 6, 3, 0],
      [2, 7, 8, 3, 9, 3, 0, 0, 0, 0, 0, 0, 0],
    ],
    'input_mask': [
      [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0],
      [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
    ],
    'segment_ids': [
      [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0],
      [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0],
    ],
    'sequence_ids': [
      [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0],
      [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
    ],
    'position_ids': [
      [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 0],
      [0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0],
    ],
    'cls_positions': [[0, 7, 0], [0, 0, 0]],
    'next_sentence_labels': [[1, 0, 0], [0, 0, 0]],
    'next_sentence_weights': [[1, 1, 0], [1, 0, 0]],
  }


def test_rows_of_sentences_by_hand(tmp_path):
  rows = [[([7, 8], False), ([9, 10, 11], False)], [([5], False)]]
  shard = made.shard(tmp_path, 'shard0', rows, 11, 20, pack=2)
  assert (tmp_path / 'shard0').read_bytes() == bytes.fromhex(
    # Begin and tokens of each part.
    '00000000 0200 02000000 0300 05000000 0100'
    # Parts before each row, and before the end.
    '00000000 02000000 03000000'
  )
  folder, shards = str(tmp_path), [shard]
  reader = store.Reader(folder, shards, 11, 20, 1, 'full_sentences')
  reader = pickle.loads(pickle.dumps(reader))
  batch = read(reader, [0, 1])
  assert {k: v.tolist() for k, v in batch.items()} == {
    'input_ids': [
      [2, 7, 8, 3, 2, 9, 10, 11, 3, 0, 0],
      [2, 5, 3, 0, 0, 0, 0, 0, 0, 0, 0],
    ],
    'input_mask': [[1] * 9 + [0] * 2, [1] * 3 + [0] * 8],
    'segment_ids': [[0] * 11] * 2,
    'sequence_ids': [
      [1, 1, 1, 1, 2, 2, 2, 2, 2, 0, 0],
      [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    ],
    'position_ids': [
      [0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 0],
      [0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0],
    ],
  }
  # A row that has one document needs no numbers.
  single = made.shard(tmp_path, 'shard1', rows[1:], 11, 20)
  reader = store.Reader(folder, [single], 11, 20, 1, 'doc_sentences')
  batch = read(reader, [0])
  assert sorted(batch) == ['input_ids', 'input_mask', 'segment_ids']
  assert batch['input_ids'].tolist() == [[2, 5, 3] + [0] * 8]


def test_shards_are_numbered_through(tmp_path):
  made_here = write(tmp_path, [ROWS, [], ROWS[:1]], length=6)
  assert len(made_here) == 4
  # As in a process that makes batches.
  for reader in (made_here, pickle.loads(pickle.dumps(made_here))):
    assert read(reader, [3, 2, 3])['input_ids'].tolist() == [
      [2, 7, 8, 3, 9, 3],
      [2, 5, 3, 6, 3, 0],
      [2, 7, 8, 3, 9, 3],
    ]


@pytest.fixture
def few_files():
  """Lets this process open five more files; yields the limit."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  few = len(os.listdir('/dev/fd')) + 5
  resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
  yield few
  resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_as_many_files_are_opened_as_the_system_allows(tmp_path, few_files):
  reader = write(tmp_path, [ROWS] * few_files)
  assert len(reader) == few_files * len(PAIRS)


def spread(tmp_path):
  """Writes files of several blocks; returns a function that reads all rows."""
  rng = np.random.default_rng(0)
  files = [
    [[(rng.integers(5, 999, 150).tolist(), [k % 999], False)] for k in range(n)]
    for n in (900, 500)
  ]
  reader = write(tmp_path, files, 154, 1000)
  sizes = [os.path.getsize(path) for path in reader._tokens._paths]
  assert min(sizes) > 2 * store.BLOCK

  def read_all():
    opened = pickle.loads(pickle.dumps(reader))
    return read(opened, np.arange(len(reader)))['input_ids']

  return read_all


def test_a_flipped_bit_anywhere_is_found_and_the_file_named(tmp_path):
  read_all, places = spread(tmp_path), np.random.default_rng(1)
  expected = read_all()
  for path in sorted(tmp_path.iterdir()):
    whole = path.read_bytes()
    edges = [k + d for k in range(0, len(whole), store.BLOCK) for d in (-1, 0)]
    for place in [*edges, *places.integers(0, len(whole), 10).tolist()]:
      damaged = bytearray(whole)
      damaged[place] ^= 1 << place % 8
      path.write_bytes(damaged)
      with pytest.raises(errors.UserError, match='is not as it') as caught:
        read_all()
      assert str(path) + ' ' in str(caught.value)
    path.write_bytes(whole)
  np.testing.assert_array_equal(read_all(), expected)


def test_a_file_that_is_gone_or_cut_is_refused(tmp_path):
  read_all = spread(tmp_path)
  path = tmp_path / 'shard1.tokens'
  for left in (path.stat().st_size - 1, store.BLOCK, 0):
    os.truncate(path, left)
    with pytest.raises(errors.UserError, match=f'{path} is not as it was'):
      read_all()
  path.unlink()
  with pytest.raises(FileNotFoundError, match='shard1.tokens'):
    read_all()
