"""Tests of the data of a pre-training run."""

import shutil

import pytest

from bert_jax import errors
from bert_jax.data import manifest_file
from bert_jax.pretraining import training_data
from tests.pretraining.pretrain_test import make_config


def open_data(c, tmp_path):
  training_data.prepare_data(c, str(tmp_path))
  training_data.check_data(c, str(tmp_path))


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'data__vocab_size': 121}, 'vocab_size=120, the config'),
    ({'data__pack': 2}, 'pack=1, the config data.pack=2'),
    (
      {'data__rows': 'doc_sentences', 'objective__nsp': False},
      'rows=pairs, the config data.rows=doc_sentences',
    ),
    ({'data__lowercase': False}, 'lowercase=True, the config data.lowerc'),
    ({'phases__seq_length': (32, 48)}, 'of 32 and 64 tokens, none of 48'),
    (
      {'data__strip_accents': 'false'},
      'has strip_accents=True, the config data.strip_accents=false',
    ),
    ({'data__dir': 'nothing'}, 'nothing does not exist'),
  ],
)
def test_data_that_do_not_fit_the_config_are_refused(
  directory, tmp_path, changes, words
):
  c = make_config(**{'data__dir': directory, **changes})
  with pytest.raises(errors.UserError, match=words):
    open_data(c, tmp_path)


def test_another_vocabulary_is_refused(directory, tmp_path):
  folder = tmp_path / 'data'
  shutil.copytree(directory, folder)
  words = (folder / 'vocab.txt').read_text().replace('the\n', 'thy\n')
  (folder / 'vocab.txt').write_text(words)
  with pytest.raises(errors.UserError, match='not the vocabulary that the da'):
    open_data(make_config(data__dir=str(folder)), tmp_path)


def test_a_run_warns_of_text_that_was_not_utf8(directory, tmp_path, capsys):
  open_data(make_config(data__dir=directory), tmp_path)
  assert 'WARNING' not in capsys.readouterr().out
  made = manifest_file.read(directory) | {'cleaned': {'invalid_utf8': 368}}
  shutil.copytree(directory, tmp_path / 'data')
  manifest_file.write(str(tmp_path / 'data'), made)
  open_data(make_config(data__dir=str(tmp_path / 'data')), tmp_path)
  assert '\nWARNING: 368 sequences of bytes, most' in capsys.readouterr().out


@pytest.mark.parametrize('choice', ['auto', 'true', 'as_lowercase'])
def test_what_was_decided_of_accents_holds(directory, tmp_path, choice):
  open_data(
    make_config(data__dir=directory, data__strip_accents=choice), tmp_path
  )
