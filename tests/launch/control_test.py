"""Looking at runs, stopping them and deleting everything."""

import json
import os

import pytest

from bert_jax import errors
from launch import records, tpu
from tests.launch.fakes import A, B, Google, add, make_old


def test_down_deletes_all_and_fails_while_anything_is_left(capsys):
  cloud = make_old('PROVISIONING')
  assert tpu.main(['down', 'old'], cloud.world()) == 1
  assert 'STILL THERE' in capsys.readouterr().err
  cloud.set_states('ACTIVE')
  assert tpu.main(['down', '--all'], cloud.world()) == 0
  assert not cloud.items and not cloud.refused
  # A supervisor that looks now does not ask for more.
  assert cloud.read('gs://bkt/old/launch/j-1/end') == 'reason=stopped\n'


def test_down_deletes_without_the_bucket(capsys):
  cloud = make_old('ACTIVE')
  cloud.refuse = lambda method, path: 403 if 'storage' in path else 0
  assert tpu.main(['down', 'old'], cloud.world()) == 0
  assert not cloud.items
  assert 'may ask for more' in capsys.readouterr().err


LEDGERS = ('', '{', '7', '[]', 'null', '{"job": 1}', '{"reason": ""}')


@pytest.mark.parametrize('text', LEDGERS)
@pytest.mark.parametrize('words', [['old'], ['old', '--workdir=gs://bkt/old']])
def test_down_needs_no_note_and_no_ledger(text, words, capsys, monkeypatch):
  cloud = make_old('ACTIVE')
  path = os.path.join(records.folder(), 'old.json')
  with open(path, 'w') as file:
    file.write(text)
  if text == '7':  # no folder at all
    monkeypatch.setenv('XDG_STATE_HOME', path)
  for name in ('launch/ledger.json', 'status.json'):
    cloud.write(f'gs://bkt/old/{name}', text)
  assert tpu.main(['down', *words], cloud.world()) == 0
  assert not cloud.items
  assert 'old.json is damaged, and passed over' in capsys.readouterr().err


def test_down_and_ls_say_which_zone_did_not_answer(capsys):
  cloud = make_old('ACTIVE')
  add(cloud, 'old', 'ACTIVE', zone=B)
  cloud.dark = {B}
  for words in (['ls'], ['down', 'old'], ['down', '--all']):
    assert tpu.main(words, cloud.world()) == 1
    out, err = capsys.readouterr()
    assert 'nothing is' not in out and f'{B} could not be asked' in err
  assert [zone for _, zone in cloud.items] == [B]
  cloud.dark = set()
  assert tpu.main(['down', '--all'], cloud.world()) == 0
  assert not cloud.items


def test_down_takes_no_unanswered_look_for_absence():
  cloud, count = make_old('PROVISIONING', *['ACTIVE'] * 9), []

  def each(number):
    cloud.dark = {A} if number < 20 else set()
    count.append(number)

  cloud.each = each
  assert tpu.main(['down', 'old'], cloud.world()) == 0
  assert not cloud.items and len(count) > 20


def test_down_leaves_another_run_of_the_name_alone(capsys):
  cloud = make_old('ACTIVE')
  add(cloud, 'old', 'ACTIVE', zone=B, launch='k-2', workdir='gs://bkt/theirs')
  for act in ('down', 'stop'):
    with pytest.raises(errors.UserError, match='several runs are named old'):
      tpu.main([act, 'old'], cloud.world())
  words = ['down', 'old', '--workdir=gs://bkt/old']
  assert tpu.main(words, cloud.world()) == 0
  assert [name for name, _ in cloud.items] == ['old-2']
  assert 'down old-2' in capsys.readouterr().err
  assert 'gs://bkt/theirs/launch/k-2/end' not in cloud.objects
  assert tpu.main(['down', 'old-2'], cloud.world()) == 0
  assert not cloud.items


def test_only_labelled_resources_are_found():
  cloud = Google(('ACTIVE',))
  cloud.create('theirs', A, {'tpu': {'nodeSpec': [{'node': {}}]}})
  assert tpu.main(['down', '--all'], cloud.world()) == 0
  assert ('theirs', A) in cloud.items


def test_ls_and_status_say_what_there_is(capsys):
  assert tpu.main(['ls'], Google().world()) == 0
  assert capsys.readouterr().out == 'project p1\nnothing is rented.\n'
  cloud = make_old('ACTIVE')
  status = {'state': 'running', 'step': 1500, 'steps': 9000, 'loss': 2.5}
  status |= {'message': None, 'time': cloud.time - 65}
  cloud.write('gs://bkt/old/status.json', json.dumps(status))
  assert tpu.main(['status', 'old'], cloud.world()) == 0
  _, listed, line = capsys.readouterr().out.splitlines()
  assert listed.split() == ['old', 'active', A, 'old-1', 'gs://bkt/old']
  assert line == 'running: step 1,500/9,000, loss 2.5 (65 s ago)'


def test_logs_show_whole_lines_of_one_host_or_all(capsys):
  cloud = Google()
  cloud.write('gs://bkt/r/logs/host-0.log', 'one\ntwo\nthr')
  cloud.write('gs://bkt/r/logs/host-12.log', 'a\r  50%\r 100%\n')
  words = ['logs', 'r', '--workdir=gs://bkt/r']
  assert tpu.main(words, cloud.world()) == 0
  lines = ['[worker 0] one', '[worker 0] two', '[worker 12]  100%']
  assert capsys.readouterr().out.splitlines()[1:] == lines
  tpu.main([*words, '--worker=12'], cloud.world())
  assert 'worker 0' not in capsys.readouterr().out


def test_stop_asks_the_hosts():
  cloud = make_old('ACTIVE')
  assert tpu.main(['stop', 'old'], cloud.world()) == 0
  assert cloud.read('gs://bkt/old/launch/j-1/end') == 'reason=stopped\n'
  assert cloud.items
  with pytest.raises(errors.UserError, match='no launch of new'):
    tpu.main(['stop', 'new', '--workdir=gs://bkt/new'], cloud.world())


@pytest.mark.parametrize('words', [['down'], ['down', 'r', '--all']])
def test_down_needs_a_name_or_all(words):
  with pytest.raises(errors.UserError, match='either NAME or --all'):
    tpu.main(words, Google().world())
