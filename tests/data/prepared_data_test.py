"""What prepared data holds, and how it is opened."""

import hashlib
import os
import pathlib

import numpy as np

from bert_jax.data import dataset, manifest_file, prepare
from bert_jax.tokenization import tokenizer
from tests.data.preparation import (
  ONE,
  digest,
  make_recipe,
)


def test_manifest_counts(prepared):
  output, manifest = prepared
  found = manifest['documents']
  assert found['train'] + found['heldout'] == 120
  assert 4 <= found['heldout'] <= 24  # 12 +- 4 sigma
  for length in (32, 64):
    train = dataset.open_split(output, 'train', length)
    assert len(train.reader) == manifest['lengths'][str(length)]['pairs']
  assert 0 < manifest['unigram_entropy'] < 4.79  # ln 120
  assert manifest == manifest_file.read(output)


def test_the_manifest_names_every_file_with_its_hash(corpus, prepared):
  output, manifest = prepared
  [given] = manifest['inputs']
  assert given['files'] == [
    {
      'path': corpus,
      'bytes': os.path.getsize(corpus),
      'sha256': hashlib.sha256(pathlib.Path(corpus).read_bytes()).hexdigest(),
    }
  ]
  found = digest(output)
  for shard in manifest['shards']:
    for file in shard['files'].values():
      assert found[file['name']] == file['sha256']
  assert found['vocab.txt'] == manifest['vocab_sha256']


def test_packed_rows_hold_all_pairs(corpus, prepared, tmp_path):
  manifest = prepare.prepare(
    make_recipe(corpus, pack=3), str(tmp_path / 'packed'), ONE
  )
  for length in ('32', '64'):
    packed, plain = manifest['lengths'][length], prepared[1]['lengths'][length]
    assert packed['pairs'] == plain['pairs'] > packed['rows']
    assert packed['padding_share'] < plain['padding_share']
    assert packed['padding_share_unpacked'] == plain['padding_share']


def test_heldout_documents_are_not_in_the_training_data(corpus, prepared):
  words = tokenizer.Tokenizer.load(os.path.join(prepared[0], 'vocab.txt'))

  def sentences(split):
    reader = dataset.open_split(prepared[0], split, 64).reader
    rows = reader.rows(np.arange(len(reader)), 64, words.cls_id, words.sep_id)
    text = ' '.join(words.decode(r.tolist()) for r in rows['input_ids'])
    return {s.strip() for s in text.split('.') if len(s.split()) > 6}

  assert sentences('heldout')
  # Truncation at the front can make unlike sentences alike, hence the length.
  common = sentences('heldout') & sentences('train')
  assert len(common) < 3
