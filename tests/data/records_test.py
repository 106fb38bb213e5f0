"""Tests of records."""

import os
import pathlib
import pickle
import resource

import numpy as np
import pytest
from array_record.python import array_record_module

from bert_jax import errors
from bert_jax.data import records
from bert_jax.tokenization import tokenizer
from tests.data.made import record

CLS, SEP = 2, 3
# (first, second, is_random)
PAIRS = [
  ([7, 8], [9], False),
  ([10], [11, 12, 13], True),
  ([5], [6], False),
]


def write(tmp_path, name='a', vocab_size=20, made=None):
  """Writes rows (lists of pairs); by default one row for each of PAIRS."""
  path = str(tmp_path / name)
  ids = tokenizer.choose_id_type(vocab_size)
  made = [[pair] for pair in PAIRS] if made is None else made
  records.write(path, [record(r, ids) for r in made])
  return path


def read(paths, indices, length=8, vocab_size=20, pairs_per_row=1, **options):
  reader = records.Reader(paths, vocab_size, **options)
  return reader.rows(np.array(indices), length, CLS, SEP, pairs_per_row)


def test_a_record_by_hand():
  coded = record(PAIRS[1:], np.dtype('<u2'))
  assert np.frombuffer(coded, '<u2').tolist() == [
    *(2, 1, 1, 3, 0, 1, 1),  # two pairs: random of 1 + 3, true of 1 + 1
    *(10, 11, 12, 13, 5, 6),
  ]
  assert record([([70_000], [1], True)], np.dtype('<u4')) == bytes.fromhex(
    '0100 0100 0100 0100 70110100 01000000'
  )


def test_rows_by_hand(tmp_path):
  rows = read([write(tmp_path)], [1, 0])
  assert {k: v.tolist() for k, v in rows.items()} == {
    'input_ids': [
      [2, 10, 3, 11, 12, 13, 3, 0],
      [2, 7, 8, 3, 9, 3, 0, 0],
    ],
    'input_mask': [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0, 0]],
    'segment_ids': [[0, 0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 0, 0]],
    'next_sentence_labels': [1, 0],
    'next_sentence_weights': [1, 1],
  }
  weights = rows.pop('next_sentence_weights')
  assert weights.dtype == np.float32
  assert {x.dtype for x in rows.values()} == {np.dtype('i4')}


@pytest.mark.parametrize('more', [0, 70_000])  # ids of 16 and of 32 bits
def test_packed_rows_by_hand(tmp_path, more):
  long = ([10 + more], [11, 12, 13 + more], True)
  path = write(tmp_path, 'a', 20 + more, [[long, PAIRS[2]], [PAIRS[0]]])
  rows = read([path], [0, 1], 13, 20 + more, pairs_per_row=3)
  assert {k: v.tolist() for k, v in rows.items()} == {
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


def test_files_are_numbered_through(tmp_path):
  paths = [
    write(tmp_path, 'a'),
    write(tmp_path, 'none', made=[]),
    write(tmp_path, 'b', made=[[PAIRS[0]]]),
  ]
  assert len(records.Reader(paths, 20)) == 4
  assert read(paths, [3, 2, 3, 0], 6)['input_ids'].tolist() == [
    [2, 7, 8, 3, 9, 3],
    [2, 5, 3, 6, 3, 0],
    [2, 7, 8, 3, 9, 3],
    [2, 7, 8, 3, 9, 3],
  ]


def test_an_id_outside_the_vocabulary_is_refused(tmp_path):
  path = write(tmp_path)
  read([path], [0], vocab_size=13)
  with pytest.raises(
    errors.UserError, match=r'record 1 of .*/a holds token id 13.*has 13 entr'
  ):
    read([path], [0, 1, 2], vocab_size=13)


def test_a_record_that_is_too_long_or_holds_too_many_pairs_is_named(tmp_path):
  paths = [write(tmp_path, 'a'), write(tmp_path, 'b', made=[PAIRS])]
  with pytest.raises(errors.UserError, match='record 1 of .*/a .* 6 tokens'):
    read(paths, [0, 1], 6)
  with pytest.raises(errors.UserError, match=r'record 0 of .*/b .* 2 pair\(s'):
    read(paths, [0, 3], 30, pairs_per_row=2)


@pytest.mark.parametrize(
  'bad',
  [
    '',  # empty
    '0000',  # no pair
    '01',  # half a number
    '0100 0000 0100 0100 0500',  # a token is missing
    '0100 0000 0100 0100 0500 0600 0700',  # one too many
    '0100 0000 0100 0100 0500 0600 07',  # half a one too many
    '0100 0200 0100 0100 0500 0600',  # neither random nor not
    '0200 0000 0100 0100',  # the second pair is missing
    'ffff 0000 0100 0100 0500 0600',
  ],
)
def test_a_malformed_record_is_refused_or_skipped(tmp_path, capfd, bad):
  good = record([PAIRS[2]], np.dtype('<u2'))
  path = str(tmp_path / 'a')
  records.write(path, [good, bytes.fromhex(bad), good])
  with pytest.raises(errors.UserError, match='record 1 of .*/a is not a row'):
    read([path], [2, 1])
  # As in a process that makes batches.
  sent = pickle.dumps(records.Reader([path], 20, skip_corrupt=True))
  reader = pickle.loads(sent)
  for _ in range(2):
    rows = reader.rows(np.array([2, 1, 0]), 6, CLS, SEP)
    assert rows['input_ids'].tolist() == [
      [2, 5, 3, 6, 3, 0],
      [0] * 6,
      [2, 5, 3, 6, 3, 0],
    ]
    assert rows['input_mask'].sum(1).tolist() == [5, 0, 5]
    assert rows['next_sentence_weights'].tolist() == [1, 0, 1]
  assert reader.skipped == 1
  lines = capfd.readouterr().err.splitlines()
  assert len(lines) == 1 and lines[0].startswith('skipped: record 1 of ')


@pytest.fixture
def few_files():
  """Lets this process open five more files; yields the limit."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  few = len(os.listdir('/dev/fd')) + 5
  resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
  yield few
  resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_as_many_files_are_opened_as_the_system_allows(tmp_path, few_files):
  path = write(tmp_path)
  first = records.Reader([path] * few_files, 20)
  second = records.Reader([path] * few_files, 20)
  assert len(first) == len(second) == few_files * len(PAIRS)


def test_too_many_open_files_are_explained(tmp_path, few_files, monkeypatch):
  path = write(tmp_path)

  def refuse(*_):
    raise ValueError('current limit exceeds maximum limit')

  monkeypatch.setattr(resource, 'setrlimit', refuse)
  with pytest.raises(errors.UserError, match='Too many.*raise ulimit -n'):
    # As many as the limit; some numbers below it are taken already.
    records.Reader([path] * few_files, 20)


def test_an_absent_file_is_refused(tmp_path):
  with pytest.raises(errors.UserError, match=r'absent \(No such file.*prepare'):
    records.Reader([str(tmp_path / 'absent')], 20)


def test_the_files_are_plain_array_records(tmp_path):
  reader = array_record_module.ArrayRecordReader(write(tmp_path))
  assert reader.read_all() == [record([p], np.dtype('<u2')) for p in PAIRS]
  assert 'group_size:1,' in reader.writer_options_string()


@pytest.mark.skipif(
  not pathlib.Path('/dev/full').is_char_device(), reason='needs /dev/full'
)
def test_a_full_disk_is_an_error_of_the_disk(tmp_path):
  os.symlink('/dev/full', tmp_path / 'a')
  with pytest.raises(OSError, match='No space left on device'):
    records.write(str(tmp_path / 'a'), [b'x' * 1000] * 1000)


def spread(tmp_path, count=300, size=150):
  """Writes a file of several blocks of 64 KiB; returns it and its rows."""
  rng = np.random.default_rng(0)
  made = [
    [(rng.integers(5, 999, size).tolist(), [k % 1000], False)]
    for k in range(count)
  ]
  path = write(tmp_path, 'spread', 1000, made)
  rows = read([path], np.arange(count), size + 4, 1000)['input_ids']
  return path, rows


def outcome(path, good):
  """Returns how reading a damaged file ends: never with wrong tokens."""
  everything = np.arange(len(good))
  try:
    rows = read([path], everything, good.shape[1], 1000)['input_ids']
  except errors.UserError as error:
    assert path in str(error) and '\n' not in str(error)
    try:
      reader = records.Reader([path], 1000, [len(good)], skip_corrupt=True)
    except errors.UserError:
      return 'refused'
    batch = reader.rows(everything, good.shape[1], CLS, SEP)
    bad = batch['next_sentence_weights'] == 0
    assert reader.skipped == bad.sum() > 0
    assert (batch['input_ids'][~bad] == good[~bad]).all()
    assert (batch['input_mask'][bad] == 0).all()
    return 'named'
  assert (rows == good).all()
  return 'unharmed'


def test_a_flipped_byte_anywhere_is_found_or_harmless(tmp_path):
  path, good = spread(tmp_path)
  whole = pathlib.Path(path).read_bytes()
  places = {*range(0, 400, 7), *range(0, len(whole), 1501)}
  places |= {b + k for b in range(0, len(whole), 1 << 16) for k in (0, 9, 17)}
  places |= {len(whole) - k for k in range(1, 200, 11)}
  found = []
  for place in sorted(places):
    damaged = bytearray(whole)
    damaged[place] ^= 1 << place % 8
    with open(path, 'r+b') as file:
      file.write(damaged)
    found.append(outcome(path, good))
  assert set(found) == {'named', 'refused', 'unharmed'}
  assert found.count('named') > len(found) / 2


def test_a_truncated_file_is_refused(tmp_path):
  path, good = spread(tmp_path)
  size = os.path.getsize(path)
  for left in (size - 1, size - (1 << 16), size // 2, 100, 1, 0):
    os.truncate(path, left)
    assert outcome(path, good) == 'refused'


def test_a_file_cut_short_while_it_is_open_is_an_error_at_its_records(tmp_path):
  path, good = spread(tmp_path)
  reader = records.Reader([path], 1000)
  os.truncate(path, os.path.getsize(path) // 3)
  with pytest.raises(errors.UserError, match='record 299 of .*/spread '):
    reader.rows(np.array([299]), good.shape[1], CLS, SEP)
