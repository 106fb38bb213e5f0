"""Tests of opening and checking prepared data."""

import os

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import dataset, manifest_file
from bert_jax.runtime import storage
from tests.data import made, preparation


def write(tmp_path):
  """Writes prepared data: shard k holds k + 1 pairs ([10 + k], [9])."""
  files = [[[([10 + k], [9], False)]] * (k + 1) for k in range(3)]
  return made.write(tmp_path, 'train', 8, files, 20)


def test_a_split_is_what_the_manifest_lists(tmp_path):
  reader = dataset.open_split(write(tmp_path), 'train', 8).reader
  assert (len(reader), reader.length) == (6, 8)
  rows = reader.rows(np.array([0, 1, 5]), cls_id=2, sep_id=3)
  assert rows['input_ids'][:, 1].tolist() == [10, 11, 12]


@pytest.fixture
def there(prepared, remote, tmp_path, monkeypatch):
  """Prepared data in a bucket, and an empty cache on this host."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  for name in os.listdir(prepared[0]):
    storage.upload(os.path.join(prepared[0], name), f'{remote}/data/{name}')
  return f'{remote}/data'


def test_only_what_is_needed_is_copied_and_it_is_the_same(there, prepared):
  folder = dataset.fetch(there, ())
  assert sorted(os.listdir(folder)) == ['.lock', 'manifest.json', 'vocab.txt']
  assert dataset.fetch(there, (32,)) == folder
  whole, copied = preparation.digest(prepared[0]), preparation.digest(folder)
  del copied['.lock'], whole['DATA_CARD.md']
  assert copied == {n: x for n, x in whole.items() if '-64.' not in n}
  rows = dataset.open_split(folder, 'train', 32).reader
  assert len(rows) == len(dataset.open_split(prepared[0], 'train', 32).reader)


def test_a_restart_copies_nothing_and_mends_what_was_cut(there, monkeypatch):
  folder = dataset.fetch(there, (32,))
  asked = []
  download = storage.download
  monkeypatch.setattr(
    storage,
    'download',
    lambda path, local: (asked.append(path), download(path, local)),
  )
  dataset.fetch(there, (32,))
  assert not asked
  name = next(n for n in os.listdir(folder) if n.startswith('heldout'))
  with open(os.path.join(folder, name), 'r+b') as file:
    file.truncate(10)
  dataset.fetch(there, (32,))
  assert asked == [f'{there}/{name}']


def test_a_file_that_was_changed_is_named_and_not_kept(there, prepared):
  name = next(n for n in os.listdir(prepared[0]) if n.endswith('32.pairs'))
  raw = bytearray(storage.read(f'{there}/{name}'))
  raw[len(raw) // 2] ^= 1
  with storage.replacing(f'{there}/{name}') as new, open(new, 'wb') as file:
    file.write(raw)
  with pytest.raises(
    errors.UserError, match=f'{there}/{name} is not as it was'
  ):
    dataset.fetch(there, (32,))
  cache = os.path.join(os.environ['XDG_CACHE_HOME'], 'bert_jax', 'data')
  (folder,) = os.listdir(cache)
  assert name not in os.listdir(os.path.join(cache, folder))


def test_no_name_in_a_manifest_leads_out_of_the_folder(there):
  manifest = manifest_file.read(there)
  manifest['shards'][0]['files']['32']['name'] = '../../x'
  manifest_file.write(there, manifest)
  with pytest.raises(errors.UserError, match="names '../../x'"):
    dataset.fetch(there, (32,))
