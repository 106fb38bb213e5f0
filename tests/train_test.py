"""Tests of the training loop."""

import jax
import numpy as np
import pytest

from bert_jax import errors, log, train
from bert_jax import step as step_lib
from tests import training


def fit(c, workdir, **kwargs):
  return train.fit(c, training.make_task(c, **kwargs), str(workdir))


def rows_of(workdir, kind):
  found = log.read(str(workdir / 'metrics.jsonl'))
  return [r for r in found if r['kind'] == kind]


def test_fit_logs_evaluates_and_saves(tmp_path):
  fit(training.small_config(steps=(4, 4)), tmp_path)
  assert [r['step'] for r in rows_of(tmp_path, 'train')] == [2, 4, 6, 8]
  assert [r['step'] for r in rows_of(tmp_path, 'eval')] == [4, 8]
  assert [r['step'] for r in rows_of(tmp_path, 'checkpoint')] == [4, 8]
  row = rows_of(tmp_path, 'train')[-1]
  assert (
    row['sequences_per_second'] > row['tokens_per_second'] / training.LENGTH
  )
  assert row['learning_rate'] == pytest.approx(1e-2 / 6)
  assert {'mlm_loss', 'mlm_accuracy', 'nsp_loss', 'nsp_accuracy'} <= set(row)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
  c = training.small_config(steps=(4, 4), checkpoint__every=3)
  whole = fit(c, tmp_path / 'a')

  def failing(step):
    if step == 7 and not (tmp_path / 'failed').exists():
      (tmp_path / 'failed').touch()
      raise OSError('the disk was pulled out')
    return training.make_batch(step)

  with pytest.raises(OSError, match='pulled out'):
    fit(c, tmp_path / 'b', batch=failing)
  resumed = fit(c, tmp_path / 'b', batch=failing)
  jax.tree.map(np.testing.assert_array_equal, whole, resumed)
  ends = [rows_of(tmp_path / x, 'checkpoint')[-1] for x in 'ab']
  assert ends[0]['fingerprint'] == ends[1]['fingerprint']
  steps = [r['step'] for r in rows_of(tmp_path / 'b', 'train')]
  assert steps == sorted(set(steps))


def test_twenty_non_finite_updates_in_a_row_stop_the_run(tmp_path):
  def broken(step):
    batch = training.make_batch(step)
    if step >= 5:
      batch['masked_lm_weights'][:] = np.nan
    return batch

  c = training.small_config(steps=(60,), checkpoint__every=4, eval__every=0)
  with pytest.raises(errors.UserError, match='20 updates in a row.*step 25'):
    fit(c, tmp_path, batch=broken)
  skipped = [r['step'] for r in rows_of(tmp_path, 'skipped')]
  assert skipped == list(range(6, 26))


def test_a_wrong_initial_loss_stops_the_run(tmp_path):
  c = training.small_config(model__initializer_std=5.0)
  with pytest.raises(errors.UserError, match='the initial loss is'):
    fit(c, tmp_path)


def test_a_batch_that_devices_cannot_share_stops_the_run(tmp_path):
  c = training.small_config(phases__batch_size=(10,))
  with pytest.raises(errors.UserError, match='use a multiple of 4'):
    fit(c, tmp_path)


def test_too_little_disk_stops_the_run(tmp_path, monkeypatch):
  monkeypatch.setattr(
    train.shutil,
    'disk_usage',
    lambda path: type('Usage', (), {'free': 1000}),
  )
  with pytest.raises(errors.UserError, match='GB free, but 4 more'):
    fit(training.small_config(), tmp_path)


def test_other_data_under_a_run_stops_it(tmp_path):
  c = training.small_config()
  fit(c, tmp_path)
  made = training.make_task(c)
  made.facts['unigram_entropy'] = 2.5
  with pytest.raises(errors.UserError, match='was 2.0, is 2.5'):
    train.fit(c, made, str(tmp_path))


def test_the_step_is_compiled_once_per_phase(tmp_path, monkeypatch):
  traces = []
  original = step_lib.train_step

  def counting(*args, **kwargs):
    traces.append(1)
    return original(*args, **kwargs)

  monkeypatch.setattr(step_lib, 'train_step', counting)
  fit(training.small_config(steps=(3, 3)), tmp_path)
  assert len(traces) == 2


def test_a_run_goes_on_with_another_mesh(tmp_path, capsys):
  c = training.small_config(steps=(4, 2), phases__accumulate=(2, 1))
  whole = fit(c, tmp_path / 'a')
  c.mesh.model = 2

  def failing(step):
    if step == 5:
      raise OSError('the disk was pulled out')
    return training.make_batch(step)

  with pytest.raises(OSError, match='pulled out'):
    fit(c, tmp_path / 'b', batch=failing)
  # V=11 is odd.
  said = 'mesh.model=2 does not divide the vocabulary: embeddings/word/embed'
  assert said in capsys.readouterr().out
  c.mesh.model = 1
  parts = fit(c, tmp_path / 'b')
  assert 'resumed at step 4' in capsys.readouterr().out
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4),
    whole,
    parts,
  )


def test_a_mesh_that_the_devices_do_not_allow_stops_the_run(tmp_path):
  c = training.small_config(mesh__model=3)
  with pytest.raises(errors.UserError, match='mesh.model=3 does not divide'):
    fit(c, tmp_path)
