"""Tests of the data of a pre-training run."""

import os
import shutil

import pytest

from bert_jax import errors
from bert_jax.data import manifest
from bert_jax.pretraining import training_data
from tests.pretraining import pretrain_test
from tests.pretraining.pretrain_test import make_config

directory = pretrain_test.directory


def open_data(c, tmp_path):
  training_data.prepare_data(c, str(tmp_path))
  training_data.check_data(c, str(tmp_path))


def test_data_of_another_vocabulary_is_refused(directory, tmp_path):
  c = make_config(data__vocab_size=121, data__dir=directory)
  with pytest.raises(errors.UserError, match='vocab_size=120, the config'):
    open_data(c, tmp_path)


def test_a_run_warns_of_text_that_was_not_utf8(directory, tmp_path, capsys):
  open_data(make_config(data__dir=directory), tmp_path)
  assert 'WARNING' not in capsys.readouterr().out
  made = manifest.read(directory) | {'cleaned': {'invalid_utf8': 368}}
  shutil.copytree(directory, tmp_path / 'data')
  manifest.write(str(tmp_path / 'data'), made)
  open_data(make_config(data__dir=str(tmp_path / 'data')), tmp_path)
  assert '\nWARNING: 368 sequences of bytes are' in capsys.readouterr().out


def test_data_packed_otherwise_is_refused(directory, tmp_path):
  c = make_config(data__pack=2, data__dir=directory)
  with pytest.raises(errors.UserError, match='pack=1, the config data.pack=2'):
    open_data(c, tmp_path)


@pytest.mark.parametrize('choice', ['auto', 'true', 'as_lowercase'])
def test_what_was_decided_of_accents_holds(directory, tmp_path, choice):
  c = make_config(data__dir=directory, data__strip_accents=choice)
  open_data(c, tmp_path)
  c.data.strip_accents = 'false'
  message = 'has strip_accents=True, the config data.strip_accents=false'
  with pytest.raises(errors.UserError, match=message):
    open_data(c, tmp_path)


def test_a_length_that_was_not_prepared_is_refused(directory, tmp_path):
  c = make_config(data__dir=directory, phases__seq_length=(32, 48))
  with pytest.raises(errors.UserError, match='of 32 and 64 tokens, none of 48'):
    open_data(c, tmp_path)


def test_a_missing_data_dir_is_refused(tmp_path):
  c = make_config(data__dir=os.path.join(tmp_path, 'nothing'))
  with pytest.raises(errors.UserError, match='nothing does not exist'):
    open_data(c, tmp_path)
