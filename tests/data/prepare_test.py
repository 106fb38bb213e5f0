"""Tests of the way from text to records."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_jax import errors, tokenizer
from bert_jax.data import loader, prepare, recipe

_WORDS = (
  'the a bird fish stone river cold warm runs sees under over quickly old new '
  'house tree cloud rain wind sun night day morning evening child woman man'
).split()


def write_corpus(path, documents=120, seed=0):
  rng = random.Random(seed)
  blocks = []
  for _ in range(documents):
    lines = [
      ' '.join(rng.choices(_WORDS, k=rng.randint(4, 12))) + '.'
      for _ in range(rng.randint(4, 12))
    ]
    blocks.append('\n'.join(lines))
  path.write_text('\n\n'.join(blocks), encoding='utf-8')
  return str(path)


def make_recipe(path, **changes):
  fields = {
    'inputs': (path,),
    'layout': 'sentences',
    'language': 'en',
    'max_documents': 0,
    'vocab': '',
    'vocab_size': 120,
    'lowercase': True,
    'lengths': (32, 64),
    'passes': 2,
    'short_seq_prob': 0.1,
    'heldout': 0.1,
    'shards': 4,
    'seed': 0,
  }
  return recipe.Recipe(**{**fields, **changes})


def digest(directory):
  """Returns {file name: SHA-256} of a directory."""
  return {
    name: hashlib.sha256(
      open(os.path.join(directory, name), 'rb').read()
    ).hexdigest()
    for name in sorted(os.listdir(directory))
  }


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  return write_corpus(tmp_path_factory.mktemp('text') / 'corpus.txt')


@pytest.fixture(scope='module')
def prepared(corpus, tmp_path_factory):
  output = str(tmp_path_factory.mktemp('data') / 'one')
  return output, prepare.prepare(make_recipe(corpus), output, workers=1)


def test_two_workers_write_the_same_bytes(corpus, prepared, tmp_path):
  # 120 documents are merged into 2 shards; one of 4 more for heldout.
  output = str(tmp_path / 'two')
  prepare.prepare(make_recipe(corpus), output, workers=2)
  assert digest(output) == digest(prepared[0])
  assert len(digest(output)) == 8  # (2 shards + held-out) x 2 lengths + 2


def test_a_killed_preparation_continues_to_the_same_bytes(
  corpus, prepared, tmp_path
):
  vocab = os.path.join(prepared[0], 'vocab.txt')
  output = str(tmp_path / 'killed')
  command = [
    *(sys.executable, '-m', 'bert_jax.data.prepare', f'--input={corpus}'),
    *(f'--vocab={vocab}', f'--output={output}', '--max_seq_length=32,64'),
    *('--layout=sentences', '--passes=2', '--heldout=0.1', '--shards=4'),
    '--workers=1',
  ]
  process = subprocess.Popen(command, stdout=subprocess.PIPE)
  done = os.path.join(output + '.partial', 'work', 'documents.json')
  deadline = time.monotonic() + 60
  while not os.path.exists(done) and time.monotonic() < deadline:
    time.sleep(0.01)
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert not os.path.exists(output)
  subprocess.run(command, check=True, capture_output=True)
  made, reference = digest(output), digest(prepared[0])
  made.pop('manifest.json')  # names the vocabulary that was given
  reference.pop('manifest.json')
  assert made == reference


def test_a_kill_just_before_the_end_loses_nothing(corpus, prepared, tmp_path):
  output = str(tmp_path / 'data')
  shutil.copytree(prepared[0], output + '.partial')
  os.makedirs(output + '.partial/work')  # half removed
  assert prepare.prepare(make_recipe(corpus), output) == prepared[1]
  assert digest(output) == digest(prepared[0])


def test_a_directory_that_cannot_be_written_is_an_error(corpus):
  with pytest.raises(errors.UserError, match='cannot write /proc/data'):
    prepare.prepare(make_recipe(corpus), '/proc/data')


def test_manifest_counts(prepared):
  output, manifest = prepared
  found = manifest['documents']
  assert found['train'] + found['heldout'] == 120
  assert 4 <= found['heldout'] <= 24  # 12 +- 4 sigma
  for length in (32, 64):
    train = loader.open_split(output, 'train', length)
    assert len(train.reader) == manifest['lengths'][str(length)]['pairs']
  assert 0 < manifest['unigram_entropy'] < 4.79  # ln 120
  assert manifest == prepare.read_manifest(output)


def test_heldout_documents_are_not_in_the_training_data(corpus, prepared):
  words = tokenizer.Tokenizer.load(os.path.join(prepared[0], 'vocab.txt'))

  def sentences(split):
    reader = loader.open_split(prepared[0], split, 64).reader
    rows = reader.rows(np.arange(len(reader)), 64, words.cls_id, words.sep_id)
    text = ' '.join(words.decode(r.tolist()) for r in rows['input_ids'])
    return {s.strip() for s in text.split('.') if len(s.split()) > 6}

  assert sentences('heldout')
  # Truncation at the front can make unlike sentences alike, hence the length.
  common = sentences('heldout') & sentences('train')
  assert len(common) < 3


def test_finished_data_is_not_made_again(corpus, prepared):
  before = os.stat(os.path.join(prepared[0], 'manifest.json')).st_mtime_ns
  prepare.prepare(make_recipe(corpus), prepared[0], workers=1)
  after = os.stat(os.path.join(prepared[0], 'manifest.json')).st_mtime_ns
  assert before == after


def test_another_recipe_in_the_same_place_is_an_error(corpus, prepared):
  with pytest.raises(errors.UserError, match='seed: 0 there, 1 now'):
    prepare.prepare(make_recipe(corpus, seed=1), prepared[0])


def test_a_truncated_file_is_named(corpus, tmp_path):
  output = str(tmp_path / 'data')
  prepare.prepare(make_recipe(corpus, lengths=(32,)), output, workers=1)
  name = next(n for n in os.listdir(output) if n.startswith('train'))
  with open(os.path.join(output, name), 'r+b') as file:
    file.truncate(1000)
  with pytest.raises(errors.UserError, match=f'{name} has 1000 bytes'):
    loader.open_split(output, 'train', 32)


def test_a_length_that_was_not_prepared_is_an_error(prepared):
  with pytest.raises(errors.UserError, match='not prepared for length 128'):
    loader.open_split(prepared[0], 'train', 128)


@pytest.mark.parametrize(
  'text, message',
  [
    ('', 'holds no text'),
    ('\n\n  \n', 'holds no text'),
    ('one document.\nof two lines.\n', r'holds 1 document\(s\)'),
  ],
)
def test_too_little_text_is_an_error(tmp_path, text, message):
  path = tmp_path / 'corpus.txt'
  path.write_text(text)
  with pytest.raises(errors.UserError, match=message):
    prepare.prepare(make_recipe(str(path)), str(tmp_path / 'data'))
  assert not (tmp_path / 'data').exists()


def test_a_vocabulary_of_another_size_is_an_error(corpus, prepared, tmp_path):
  vocab = os.path.join(prepared[0], 'vocab.txt')
  with pytest.raises(errors.UserError, match='has 120 entries'):
    prepare.prepare(
      make_recipe(corpus, vocab=vocab, vocab_size=121), str(tmp_path / 'data')
    )
