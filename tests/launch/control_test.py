"""Looking at runs, stopping them and deleting everything."""

import os

import pytest

from bert_jax import errors
from launch import records, tpu
from tests.launch.fakes import A, B, Google, add, make_old


def test_down_deletes_all_with_the_label_and_fails_while_it_is_left(capsys):
  cloud = make_old('PROVISIONING')
  cloud.talks = False
  cloud.create('theirs', A, {'tpu': {'nodeSpec': [{'node': {}}]}})
  assert tpu.main(['down', 'old'], cloud.world()) == 1
  assert 'STILL THERE' in capsys.readouterr().err
  cloud.set_states('ACTIVE')
  assert tpu.main(['down', '--all'], cloud.world()) == 0
  assert [*cloud.items] == [('theirs', A)] and not cloud.refused
  # A supervisor that looks now does not ask for more.
  assert cloud.read('gs://bkt/old/launch/j-1/end') == 'reason=stopped\n'


LEDGERS = ('', '{', '7', '[]', 'null', '{"job": 1}', '{"reason": ""}')


@pytest.mark.parametrize('text', LEDGERS)
def test_down_needs_no_note_and_no_bucket(text, capsys, monkeypatch):
  cloud = make_old('ACTIVE')
  os.makedirs(records.folder())
  path = os.path.join(records.folder(), 'old.json')
  with open(path, 'w') as file:
    file.write(text)
  for name in ('launch/ledger.json', 'status.json'):
    cloud.write(f'gs://bkt/old/{name}', text)
  if text == '7':  # no folder at all, and a bucket that refuses
    monkeypatch.setenv('XDG_STATE_HOME', path)
    cloud.refuse = lambda method, path: 403 * ('storage' in path)
  words = ['down', 'old', '--workdir=gs://bkt/old']
  assert tpu.main(words[: 3 if text == '7' else 2], cloud.world()) == 0
  assert not cloud.items
  err = capsys.readouterr().err
  assert 'old.json is damaged, and passed over' in err
  assert ('may ask for more' in err) == (text == '7')


def test_down_and_ls_say_which_zone_did_not_answer(capsys):
  cloud = make_old('ACTIVE')
  add(cloud, 'old', 'ACTIVE', zone=B)
  cloud.dark = {B}
  for words in (['ls'], ['down', 'old'], ['down', '--all']):
    assert tpu.main(words, cloud.world()) == 1
    out, err = capsys.readouterr()
    assert 'nothing is' not in out and f'{B} could not be asked' in err
  assert cloud.slept < 10
  assert [zone for _, zone in cloud.items] == [B]
  cloud.dark = set()
  assert tpu.main(['down', '--all'], cloud.world()) == 0
  assert not cloud.items


def test_down_takes_no_unanswered_look_for_absence(capsys):
  cloud = make_old('ACCEPTED', 'SOMETHING_NEW', 'PROVISIONING', 'ACTIVE')
  cloud.delete = lambda *key: cloud.slept > 6 and Google.delete(cloud, *key)
  cloud.each = lambda n: setattr(cloud, 'dark', {A} if n < 4 else set())
  assert tpu.main(['down', 'old'], cloud.world()) == 0
  assert not cloud.items and not cloud.refused
  assert capsys.readouterr().out.count('cannot be deleted yet') == 1


def test_down_leaves_another_run_of_the_name_alone():
  cloud = make_old('ACTIVE')
  add(cloud, 'old', 'ACTIVE', zone=B, launch='k-2', workdir='gs://bkt/theirs')
  for act in ('down', 'stop'):
    with pytest.raises(errors.UserError, match='several runs are named old'):
      tpu.main([act, 'old'], cloud.world())
  words = ['down', 'old', '--workdir=gs://bkt/old']
  assert tpu.main(words, cloud.world()) == 0
  assert [name for name, _ in cloud.items] == ['old-2']
  assert 'gs://bkt/theirs/launch/k-2/end' not in cloud.objects
  assert tpu.main(['down', 'old-2'], cloud.world()) == 0
  assert not cloud.items


def test_ls_and_status_say_what_there_is(capsys):
  assert tpu.main(['ls'], Google().world()) == 0
  assert capsys.readouterr().out == 'project p1\nnothing is rented.\n'
  cloud = make_old('ACTIVE')
  cloud.write('gs://bkt/old/status.json', '{\n  "step": 7\n}')
  with pytest.raises(errors.UserError, match='give --workdir'):
    tpu.main(['status', 'old'], cloud.world())
  capsys.readouterr()
  words = ['status', 'old', '--workdir=gs://bkt/old']
  assert tpu.main(words, cloud.world()) == 0
  _, listed, *lines = capsys.readouterr().out.splitlines()
  assert listed.split() == ['old', 'active', A, 'old-1', 'gs://bkt/old']
  assert lines == ['{', '  "step": 7', '}']


def test_logs_show_whole_lines_of_one_host_or_all(capsys):
  cloud, words = Google(), ['logs', 'r', '--workdir=gs://bkt/r']
  # Of a program that was killed within a character.
  texts = [b'one\ntw\xc3\nthr', b'one\ntw\xc3\nthree\n']

  def each(*_):
    if not texts:
      raise KeyboardInterrupt
    cloud.write('gs://bkt/r/logs/host-0.log', texts.pop(0))

  each()
  cloud.each = each
  cloud.write('gs://bkt/r/logs/host-12.log', 'a\r  50%\r 100%\n')
  with pytest.raises(KeyboardInterrupt):
    tpu.main([*words, '--follow'], cloud.world())
  assert tpu.main([*words, '--worker=12'], cloud.world()) == 0
  lines = ['0] one', '0] tw\ufffd', '12]  100%', '0] three', '12]  100%']
  told = [x[8:] for x in capsys.readouterr().out.splitlines() if '[' in x]
  assert told == lines


def test_what_is_to_end_must_be_clear():
  for words in (['down'], ['down', 'r', '--all']):
    with pytest.raises(errors.UserError, match='either NAME or --all'):
      tpu.main(words, Google().world())
  with pytest.raises(errors.UserError, match='no launch of new'):
    tpu.main(['stop', 'new', '--workdir=gs://bkt/new'], Google().world())
