"""Looking at runs, stopping them and deleting everything."""

import json

import pytest

from bert_jax import errors
from launch import commands, tpu
from tests.launch import fakes
from tests.launch.runs import A, make_old, refuse


def test_down_deletes_all_and_fails_while_anything_is_left(capsys):
  cloud = make_old('PROVISIONING')
  assert tpu.main(['down', 'old'], cloud.world()) == 1
  assert 'STILL THERE' in capsys.readouterr().err
  cloud.queue['old', A] = ['ACTIVE']
  assert tpu.main(['down', '--all'], cloud.world()) == 0
  assert not cloud.queue
  # A supervisor that looks now does not ask for more.
  assert cloud.objects['gs://bkt/old/launch/j/end'][0] == 'reason=stopped\n'


def test_down_deletes_without_the_bucket(capsys):
  cloud = make_old('ACTIVE')
  assert tpu.main(['down', '--all'], refuse(cloud, 'storage')) == 0
  assert not cloud.queue
  assert 'may ask for more' in capsys.readouterr().err


def test_down_deletes_what_one_api_shows_while_the_other_is_refused(capsys):
  cloud = make_old('ACTIVE')
  assert tpu.main(['down', 'old'], refuse(cloud, 'instances', 'list')) == 1
  assert not cloud.queue
  out, err = capsys.readouterr()
  assert 'nothing is left' not in out and 'compute could not be asked' in err


def test_down_takes_no_unanswered_look_for_absence():
  cloud = make_old('PROVISIONING', 'ACTIVE')
  world, asked = cloud.world(), []

  def run(argv, **more):
    if 'queued-resources' in argv and 'list' in argv:
      asked.append(argv)
      if len(asked) == 2:
        return commands.Result(1, err='HTTPError 403: forbidden')
    return cloud.run(argv, **more)

  world.run = run
  assert tpu.main(['down', 'old'], world) == 0
  assert not cloud.queue and len(asked) == 4


def test_ls_and_status_say_what_there_is(capsys):
  assert tpu.main(['ls'], fakes.Gcloud().world()) == 0
  assert capsys.readouterr().out == 'project p1\nnothing is rented.\n'
  cloud = make_old('ACTIVE')
  status = {'state': 'running', 'step': 1500, 'steps': 9000, 'phase': 1}
  status |= {'phases': 2, 'loss': 2.5, 'steps_per_second': 3.25}
  status |= {'seconds_left': 5400.0, 'checkpoint': 1000, 'message': None}
  status |= {'exit_code': None, 'host': 'h', 'time': cloud.now - 65}
  cloud.write('gs://bkt/old/status.json', json.dumps(status))
  assert tpu.main(['status', 'old'], cloud.world()) == 0
  assert capsys.readouterr().out.splitlines() == [
    f'queued resource old: active in {A}',
    'running: step 1,500/9,000, phase 2 of 2, loss 2.5000, 3.25 steps/s, '
    '1 h 30 min left, checkpoint 1,000 (1 min 5 s ago)',
  ]


def test_logs_show_whole_lines_of_one_host_or_all(capsys):
  cloud = fakes.Gcloud()
  cloud.write('gs://bkt/r/logs/host-0.log', 'one\ntwo\nthr')
  cloud.write('gs://bkt/r/logs/host-12.log', 'a\r  50%\r 100%\n')
  words = ['logs', 'r', '--workdir=gs://bkt/r']
  assert tpu.main(words, cloud.world()) == 0
  assert capsys.readouterr().out.splitlines() == [
    '[worker 0] one',
    '[worker 0] two',
    '[worker 12]  100%',
  ]
  tpu.main([*words, '--worker=12'], cloud.world())
  assert 'worker 0' not in capsys.readouterr().out


def test_stop_asks_the_hosts():
  cloud = make_old('ACTIVE')
  assert tpu.main(['stop', 'old'], cloud.world()) == 0
  assert cloud.objects['gs://bkt/old/launch/j/end'][0] == 'reason=stopped\n'
  assert ('old', A) in cloud.queue
  with pytest.raises(errors.UserError, match='no launch of new'):
    tpu.main(['stop', 'new', '--workdir=gs://bkt/new'], cloud.world())
