"""Work units of a sweep."""

import pytest

from launch import xm


def parse(*more):
  words = ['--where=local', '--config=configs/tiny.py', '--workdir=runs']
  return xm.make_parser().parse_args([*words, '--sweep=seed=1', *more])


def test_sweeps_are_combined():
  found = xm.list_points(['optimizer.learning_rate=1e-4,2e-4', 'seed=0,1'])
  assert len(found) == 4
  assert found[1] == {'optimizer.learning_rate': '1e-4', 'seed': '1'}


@pytest.mark.parametrize('text', ['seed', '=1', 'seed=', 'seed=1,'])
def test_sweep_without_field_or_values_is_refused(text):
  with pytest.raises(ValueError, match='FIELD=VALUE'):
    xm.list_points([text])


def test_each_run_has_its_own_folder():
  point = {'optimizer.learning_rate': '1e-4', 'seed': '1'}
  assert xm.make_arguments(parse(), 1, point) == [
    '-m',
    'bert_jax.main',
    '--config=configs/tiny.py',
    '--workdir=runs/learning_rate=1e-4_seed=1',
    '--config.optimizer.learning_rate=1e-4',
    '--config.seed=1',
  ]


def test_runs_on_tpus_are_started_by_the_launcher():
  given = parse('--where=tpu', '--', '--topology=v6e-4', '--zone=us-east5-b')
  found = xm.make_arguments(given, 2, {'seed': '1'})
  assert found[0].endswith('launch/tpu.py')
  assert found[1:4] == ['run', '--name=sweep-2', '--yes']
  assert '--topology=v6e-4' in found
