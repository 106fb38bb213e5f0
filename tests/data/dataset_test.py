"""Tests of opening and checking prepared data."""

import hashlib
import os

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import dataset, manifest_file, records
from bert_jax.runtime import storage
from tests.data import made


def prepared(tmp_path, shards=3):
  """Writes prepared data: shard k holds k + 1 pairs ([10 + k], [9])."""
  files = []
  for k in range(shards):
    path = tmp_path / f'train-{k}'
    row = made.record([([10 + k], [9], False)])
    records.write(str(path), [row] * (k + 1))
    files.append(
      {
        'name': path.name,
        'records': k + 1,
        'bytes': path.stat().st_size,
        'sha256': hashlib.sha256(path.read_bytes()).hexdigest(),
      }
    )
  vocab = tmp_path / 'vocab.txt'
  vocab.write_text('[PAD]\n')
  manifest = {
    'recipe': {'vocab_size': 20, 'pack': 1},
    'vocab_sha256': hashlib.sha256(vocab.read_bytes()).hexdigest(),
    'lengths': {'8': {}},
    'shards': [{'split': 'train', 'files': {'8': f}} for f in files],
  }
  manifest_file.write(str(tmp_path), manifest)
  return str(tmp_path)


def test_a_split_is_what_the_manifest_lists(tmp_path):
  split = dataset.open_split(prepared(tmp_path), 'train', 8)
  assert (len(split.reader), split.length) == (6, 8)
  rows = split.reader.rows(np.array([0, 1, 5]), 8, cls_id=2, sep_id=3)
  assert rows['input_ids'][:, 1].tolist() == [10, 11, 12]
  with pytest.raises(errors.UserError, match='length 16, only for 8'):
    dataset.open_split(str(tmp_path), 'train', 16)


def test_a_changed_file_is_refused_at_the_start(tmp_path):
  directory = prepared(tmp_path)
  path = tmp_path / 'train-1'
  os.rename(path, tmp_path / 'away')
  with pytest.raises(errors.UserError, match='cannot read .*train-1'):
    dataset.open_split(directory, 'train', 8)
  path.write_bytes((tmp_path / 'away').read_bytes()[:-1])
  with pytest.raises(errors.UserError, match=r'train-1 has \d+ bytes, its man'):
    dataset.open_split(directory, 'train', 8)
  # As large, but with another number of records.
  path.write_bytes((tmp_path / 'train-0').read_bytes())
  assert path.stat().st_size == (tmp_path / 'away').stat().st_size
  with pytest.raises(errors.UserError, match='train-1 holds 1 records, .* 2'):
    dataset.open_split(directory, 'train', 8)


def test_corrupt_records_are_skipped_on_request(tmp_path):
  directory = prepared(tmp_path)
  with open(tmp_path / 'train-0', 'r+b') as file:
    whole = file.read()
    file.seek(whole.index(b'\x0a\x00\x09\x00'))  # the texts
    file.write(b'\xff')
  split = dataset.open_split(directory, 'train', 8)
  with pytest.raises(errors.UserError, match='record 0 of .*train-0 cannot'):
    split.reader.rows(np.array([1, 0]), 8, 2, 3)
  split = dataset.open_split(directory, 'train', 8, skip_corrupt=True)
  rows = split.reader.rows(np.array([1, 0]), 8, 2, 3)
  assert rows['input_mask'].sum(1).tolist() == [5, 0]
  assert split.reader.skipped == 1


def test_verify_names_the_file_with_a_flipped_bit(tmp_path):
  directory = prepared(tmp_path)
  size = sum((tmp_path / f'train-{k}').stat().st_size for k in range(3))
  assert dataset.verify(directory) == size
  for name in ('train-2', 'vocab.txt'):
    path = tmp_path / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(errors.UserError, match=f'{name} is not as it was made'):
      dataset.verify(directory)
    path.write_bytes(whole)
  dataset.verify(directory)


def test_a_bucket_that_is_ill_is_no_reason_to_prepare_again(
  tmp_path, ill, remote
):
  directory = prepared(tmp_path)
  for name in os.listdir(directory):
    storage.upload(str(tmp_path / name), f'{remote}/{name}')
  assert dataset.verify(remote) > 0
  for name in ('train-1', 'vocab.txt'):
    ill.only, ill.status = name, 503
    with pytest.raises(errors.UserError, match='HTTP 503') as caught:
      dataset.verify(remote)
    assert caught.value.exit_code == errors.MAY_PASS
    assert 'prepare' not in str(caught.value)
