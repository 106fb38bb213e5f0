"""Tests of sweeps with XManager."""

import asyncio
import sys

import pytest

from launch import xm


def list_runs(*more):
  words = ['--where=local', '--config=configs/tiny.py', '--workdir=runs']
  return xm.list_runs(xm.make_parser().parse_args([*words, *more]))


def test_sweeps_are_combined_and_each_run_has_its_own_folder(capsys):
  found = list_runs('--sweep=optimizer.learning_rate=1,2', '--sweep=seed=1')
  assert len(found) == 2
  assert found[1] == [
    *('-m', 'bert_jax.main', '--config=configs/tiny.py'),
    '--workdir=runs/2_learning_rate=2_seed=1',
    *('--config.optimizer.learning_rate=2', '--config.seed=1'),
  ]
  assert len({run[3] for run in list_runs('--sweep=data.dir=a/b,ab')}) == 2
  more = '--where=tpu', '--sweep=seed=0,1', '--', '--zone=us-east5-b'
  path, *words = list_runs(*more)[1]
  assert path.endswith('launch/tpu.py') and '--zone=us-east5-b' in words
  assert words[:3] == ['run', '--name=sweep-2', '--yes']
  with pytest.raises(SystemExit):
    list_runs('--sweep=seed=1,')
  assert 'argument --sweep: seed=1, must be FIELD=V' in capsys.readouterr().err


def test_without_xmanager_it_says_what_to_install(monkeypatch):
  monkeypatch.setitem(sys.modules, 'xmanager', None)
  with pytest.raises(SystemExit, match='error: .*; pip install xmanager'):
    asyncio.run(xm.run_all(None))
