"""Tests of working directories."""

import json

import pytest

from bert_jax import config, errors
from bert_jax.workdir import claim as claim_lib


def claim(path, arguments='', trains=True):
  c = config.apply_arguments(config.pretraining('tiny'), arguments)
  with claim_lib.claim(str(path), c):
    if trains:
      (path / 'checkpoints').mkdir(exist_ok=True)


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


def test_before_training_the_config_may_be_put_right(tmp_path):
  claim(tmp_path / 'run', trains=False)
  claim(tmp_path / 'run', 'seed=3')
  with pytest.raises(errors.UserError, match='seed: 3 there, 0 now'):
    claim(tmp_path / 'run')


def test_a_field_that_the_run_is_older_than_has_its_default(tmp_path):
  claim(tmp_path / 'run')
  path = tmp_path / 'run' / 'config.json'
  fields = json.loads(path.read_text())
  del fields['model.mask_value']
  path.write_text(json.dumps(fields))
  claim(tmp_path / 'run')
  path.write_text(json.dumps(fields))
  with pytest.raises(errors.UserError, match='mask_value: -10000.0 there'):
    claim(tmp_path / 'run', 'mask_value=-5.0')


def test_what_only_the_log_shows_may_change(tmp_path):
  claim(tmp_path / 'run')
  claim(tmp_path / 'run', 'log.every=7,keep=9,workers=1')


def test_one_writer_at_a_time(tmp_path):
  c = config.pretraining('tiny')
  with claim_lib.claim(str(tmp_path), c):
    with pytest.raises(errors.UserError, match='another process is writing'):
      claim(tmp_path)
  claim(tmp_path)
