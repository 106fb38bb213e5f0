"""Tests of the state that training begins with."""

import pytest

from bert_jax import errors
from bert_jax.train import fit
from tests import training


def test_too_little_disk_stops_the_run(tmp_path, monkeypatch):
  monkeypatch.setattr(
    'shutil.disk_usage',
    lambda path: type('Usage', (), {'free': 1000}),
  )
  with pytest.raises(errors.UserError, match='GB free, but 4 more'):
    training.fit(training.small_config(), tmp_path)


def test_other_data_under_a_run_stops_it(tmp_path):
  c = training.small_config()
  training.fit(c, tmp_path)
  made = training.make_task(c)
  made.facts['unigram_entropy'] = 2.5
  with pytest.raises(errors.UserError, match='was 2.0, is 2.5'):
    fit.fit(c, made, str(tmp_path))
