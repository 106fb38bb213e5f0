"""What a run keeps of its data, and what it says if they change."""

import dataclasses
import shutil

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import manifest_file
from bert_jax.finetuning import classes, encode, training
from bert_jax.runtime import files, storage
from bert_jax.tokenization.tokenizer import AddedWord
from bert_jax.workdir import checkpoint_reader
from tests import models
from tests.finetuning import made


def open_data(c, workdir):
  return training.open_data(classes.CLASSES, c, str(workdir))


@pytest.fixture
def begun(tmp_path):
  """Returns the config of a run that has a checkpoint, and its folder."""
  c, workdir = made.configure(tmp_path), f'{tmp_path}/run'
  open_data(c, workdir)
  checkpoint = f'{workdir}/checkpoints/5/{checkpoint_reader.COMMITTED}'
  files.write_file(checkpoint, lambda new: files.write_json(new, {}))
  return c, workdir


def test_a_run_keeps_its_tokenizer_but_no_rows(begun):
  c, workdir = begun
  assert storage.list_names(f'{workdir}/data') == ['manifest.json', 'vocab.txt']
  shutil.rmtree(c.init_from)
  assert open_data(c, workdir).tokenizer == models.TOKENIZER


def test_a_run_that_has_begun_knows_changed_files(begun, tmp_path):
  c, workdir = begun
  path, facts = tmp_path / 'texts' / 'test.csv', []
  for text in (path.read_text(), path.read_text().replace('the', 'cat', 1)):
    path.write_text(text)
    data = open_data(*begun)
    facts.append(training.make_task(classes.CLASSES, c, data).facts)
  changed = errors.find_changes(*facts)
  assert changed[0].startswith('data.splits.test.sha256 was ')


def test_every_field_of_rows_is_in_their_hash():
  rows = [
    encode.Rows(made.encode_rows([text], None, 16), labels, ids=names)
    for text in ('cat', 'dog')
    for labels in (None, np.array([0]), np.array([1]))
    for names in (['x'], ['\ud800'])
  ]
  assert len({x.compute_sha256() for x in rows}) == len(rows)


def test_added_words_stay_whole_in_data_and_in_what_is_read_from_them(
  tmp_path, monkeypatch
):
  added = (AddedWord('dog', 7, True, False, False, True),)
  words = dataclasses.replace(models.TOKENIZER, added=added)
  monkeypatch.setattr(training.starting, 'read_tokenizer', lambda c: words)
  c = made.configure(tmp_path)
  rows = ['dogs,a', 'catdog,b'] * 9
  made.write_csv(tmp_path / 'texts', train=rows, dev=rows)
  data = open_data(c, tmp_path)
  assert manifest_file.load_tokenizer(f'{tmp_path}/data') == words
  assert words.tokens(data.splits['train'].encoded.ids[:8]) == (
    '[CLS] dog [UNK] [SEP] [CLS] cat dog [SEP]'.split()
  )
  facts = training.make_task(classes.CLASSES, c, data).facts
  assert facts['data']['recipe']['added'] == [list(added[0])]
  lines = data.manifest['read']
  assert ' tokens, 25.00% of the tokens unknown (' in lines[0]
