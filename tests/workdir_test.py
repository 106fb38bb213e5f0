"""Tests of working directories."""

import pytest

from bert_jax import config, errors, workdir


def claim(path, arguments=''):
  c = config.apply_arguments(config.pretraining('tiny'), arguments)
  with workdir.claimed(str(path), c):
    pass


def test_the_same_config_may_come_back(tmp_path):
  claim(tmp_path / 'run', 'seed=3')
  claim(tmp_path / 'run', 'seed=3')


def test_another_config_is_refused_and_the_difference_named(tmp_path):
  claim(tmp_path / 'run')
  with pytest.raises(errors.UserError) as caught:
    claim(tmp_path / 'run', 'seed=3,learning_rate=0.5')
  assert 'seed: 0 there, 3 now' in str(caught.value)
  assert 'optimizer.learning_rate: 0.0001 there, 0.5 now' in str(caught.value)
  claim(tmp_path / 'run')


def test_what_only_the_log_shows_may_change(tmp_path):
  claim(tmp_path / 'run')
  claim(tmp_path / 'run', 'log.every=7,keep=9,workers=1')


def test_one_writer_at_a_time(tmp_path):
  c = config.pretraining('tiny')
  with workdir.claimed(str(tmp_path), c):
    with pytest.raises(errors.UserError, match='another process is writing'):
      claim(tmp_path)
  claim(tmp_path)
