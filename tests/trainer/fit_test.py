"""Tests of training from start to end."""

import os
import shutil
import signal
import types

import jax
import numpy as np
import pytest
import tensorstore
from orbax.checkpoint import type_handlers

from bert_jax import errors
from bert_jax.parallel import device_mesh
from bert_jax.runtime import workers
from bert_jax.trainer import fit
from bert_jax.workdir import status
from tests import training


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
  c = training.small_config(steps=(4, 2), checkpoint__every=3)
  whole = training.train(c, tmp_path / 'a')
  training.train_until(c, tmp_path / 'b', step=5)
  resumed = training.train(c, tmp_path / 'b')
  jax.tree.map(np.testing.assert_array_equal, whole, resumed)
  ends = [training.rows_of(tmp_path / x, 'checkpoint')[-1] for x in 'ab']
  assert ends[0]['fingerprint'] == ends[1]['fingerprint']
  steps = [row['step'] for row in training.rows_of(tmp_path / 'b', 'train')]
  assert steps == sorted(set(steps))
  facts = training.rows_of(tmp_path / 'b', 'run')[-1]
  assert (facts['devices'], facts['cores']) == (4, workers.count_cores())


def test_few_devices_write_each_array_and_it_comes_back(tmp_path, monkeypatch):
  c = training.small_config(steps=(6,))
  whole = training.train(c, tmp_path / 'a')
  handler = type_handlers.get_type_handler(jax.Array)
  monkeypatch.setattr(device_mesh, '_WRITERS', 2)
  try:
    few = training.train(c, tmp_path / 'b')
    shutil.rmtree(tmp_path / 'b' / 'checkpoints' / '6')
    resumed = training.train(c, tmp_path / 'b')
  finally:
    type_handlers.register_type_handler(jax.Array, handler, override=True)
  for found in (few, resumed):
    jax.tree.map(np.testing.assert_array_equal, whole, found)
  ends = [training.rows_of(tmp_path / x, 'checkpoint')[-1] for x in 'ab']
  assert ends[0]['fingerprint'] == ends[1]['fingerprint']
  name = b'params.encoder.layer_0.mlp_in.kernel/'
  assert [len(chunks(tmp_path / x, name)) for x in 'ab'] == [4, 2]


def chunks(workdir, name):
  """Returns the keys of an array's chunks in the last checkpoint."""
  path = f'file://{workdir}/checkpoints/6/state/'
  found = tensorstore.KvStore.open({'driver': 'ocdbt', 'base': path}).result()
  return [x for x in found.list().result() if x.startswith(name + b'0.')]


@pytest.mark.parametrize('compiling', [False, True])
def test_a_signal_before_the_first_update_ends_the_run(
  compiling, tmp_path, monkeypatch
):
  compile_all, compiled = fit._compile, []

  def compile_and_note(*args):
    compiled.append(True)
    found = compile_all(*args)
    if compiling:
      os.kill(os.getpid(), signal.SIGTERM)
    return found

  describe = fit._describe_model

  def describe_and_stop(*args):
    describe(*args)
    if not compiling:
      os.kill(os.getpid(), signal.SIGTERM)

  monkeypatch.setattr(fit, '_compile', compile_and_note)
  monkeypatch.setattr(fit, '_describe_model', describe_and_stop)
  with pytest.raises(errors.Interrupted):
    training.train(training.small_config(), tmp_path)
  assert compiled == [True] * compiling
  assert not training.rows_of(tmp_path, 'checkpoint')


@pytest.mark.parametrize(
  'keep, select, begun, message',
  [
    (3, 'last', False, '4 more .* need [0-9.]+ MB; free space, lower checkp'),
    (1, 'last', False, '2 more .* MB; free space or use another --workdir'),
    (3, 'best', False, '5 more'),
    (3, 'last', True, '1 more'),  # the others are there
  ],
)
def test_a_disk_without_room_for_checkpoints_is_said_in_mb(
  tmp_path, monkeypatch, keep, select, begun, message
):
  if begun:
    (tmp_path / 'checkpoints' / '8').mkdir(parents=True)
  usage = types.SimpleNamespace(free=1e6)
  monkeypatch.setattr('shutil.disk_usage', lambda path: usage)
  c = training.small_config(
    checkpoint__keep=keep, finetuning__select=select, data__vocab_size=100_000
  )
  objective = training.make_objective(c)
  with pytest.raises(errors.UserError, match=f'1.0 MB free, but {message}'):
    fit.check_disk(c, objective, str(tmp_path))
  usage.free = 1e9
  fit.check_disk(c, objective, str(tmp_path))


@pytest.mark.slow
def test_checkpoints_that_were_there_are_missed(tmp_path):
  def train(**changes):
    c = training.small_config(**changes)
    with status.Status(str(tmp_path), 6, 1) as writer:
      fit.fit(c, training.make_task(c), str(tmp_path), writer)

  train()
  shutil.rmtree(tmp_path / 'checkpoints')
  for _ in range(2):
    with pytest.raises(
      errors.UserError, match='lists no checkpoint, though the run'
    ):
      train()
  assert not list((tmp_path / 'checkpoints').iterdir())
  assert training.rows_of(tmp_path, 'train')[-1]['step'] == 6
  train(checkpoint__start_over=True)
  train()
