"""Whole launches, by one command or by looks; ending them."""

import subprocess
import sys

import pytest

from bert_jax import errors
from launch import tick, tpu
from tests.launch.fakes import (
  HAPPY,
  LEDGER,
  RUN,
  A,
  B,
  Google,
  add,
  make_cloud,
  make_old,
)

LOST = (*HAPPY, 'ACTIVE', 'SUSPENDED')
GONE = (*HAPPY, 'ACTIVE', 'GONE')
# States of each request, zones that were asked, the end that hosts write, and
# what is printed.
DONE, FAILED = ('done', ''), ('failed', 'error: batch_size\x1b[2J=7')
LAUNCHES = [
  ([HAPPY], [A], DONE, 'ended     done: host 0\nrequests  1, preemptions 0'),
  ([LOST, GONE, HAPPY], [A, A, A], DONE, 'requests  3, preemptions 2'),
  ([('FAILED: no more capacity',), HAPPY], [A, B], DONE, '(no more capacity)'),
  # It is not tried again; what a terminal would obey is not printed.
  ([HAPPY], [A], FAILED, 'error: batch_size\\x1b[2J=7'),
  ([GONE] * 9, [A, A, A], None, 'gave up: hosts ended 3 times'),
]


@pytest.mark.parametrize('states, zones, end, text', LAUNCHES)
def test_run_goes_on_to_its_end_and_all_is_deleted(
  states, zones, end, text, capsys
):
  cloud = Google(*states)
  cloud.on_active = lambda *_: cloud.states or cloud.end(*end)
  cloud.talks = end is not None  # hosts that say nothing end the launch
  assert tpu.main(RUN, cloud.world()) == (0 if end == DONE else 1)
  assert cloud.created == zones and not cloud.items
  out = capsys.readouterr().out
  assert out.startswith('to end everything: python launch/tpu.py down gs:')
  assert text in out


def test_second_of_two_that_were_asked_for_is_deleted():
  cloud = Google((*HAPPY, *['ACTIVE'] * 9))

  def each(count):
    if count == 6:  # hosts of a request without an answer came late
      job = cloud.read_job()
      add(cloud, 'r', 'ACTIVE', zone=B, launch=job['launch'])
    if count == 9:
      assert [zone for _, zone in cloud.items] == [A]
      cloud.end('done')

  cloud.each = each
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, B] and not cloud.items


def test_zone_that_does_not_answer_is_no_absence():
  cloud = Google((*HAPPY, *['ACTIVE'] * 9))

  def each(count):
    cloud.dark = {A} if 20 < count < 200 else {A, B} if count < 300 else set()
    cloud.broken += [403] * (300 < count < 315)
    if count == 400:
      cloud.end('done')

  cloud.each = each
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A]


def test_ledger_that_is_gone_for_a_moment_ends_no_watch(capsys):
  cloud = Google((*HAPPY, *['ACTIVE'] * 9))

  def each(count):
    cloud.broken += [404] * (count == 4)
    if count == 9:
      cloud.end('done')

  cloud.each = each
  assert tpu.main(RUN, cloud.world()) == 0
  assert 'has no sound ledger' in capsys.readouterr().err


def test_dark_fallback_zone_stops_no_replacement_in_the_good_one():
  cloud = make_cloud((*HAPPY, *['ACTIVE'] * 20, 'SUSPENDED'), HAPPY)
  cloud.each = lambda count: setattr(cloud, 'dark', {B} if count > 9 else set())
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, A] and cloud.slept < 200


def test_error_is_one_line_that_a_terminal_does_not_obey():
  argv = [sys.executable, 'launch/tpu.py', 'ls', '\x1b[2J']
  done = subprocess.run(argv, capture_output=True, text=True)
  said = 'error: \\x1b[2J is not an argument; see --help.\n'
  assert (done.returncode, done.stderr) == (1, said)


def test_any_content_of_the_bucket_is_survived(capsys):
  cloud = Google((*HAPPY, *['ACTIVE'] * 30))

  def each(count):
    for name in ('status.json', 'logs/host-x.log', 'logs/host-0.log'):
      cloud.write(f'gs://bkt/r/{name}', b'\xff\x1b[2J{"step": 1%d}\n' % 10**400)
    if count > 9:
      cloud.end('no such reason\x1b')
      cloud.each = lambda count: None

  cloud.each = each
  assert tpu.main(RUN, cloud.world()) == 1
  out, err = capsys.readouterr()
  assert '\x1b' not in out + err and 'unreadable' in out


def look(cloud, times=1):
  """Looks some times, by commands of their own; returns the exit codes."""
  codes = []
  while len(codes) < times and 0 not in codes:
    codes.append(tpu.main(['tick', 'gs://bkt/r'], cloud.world()))
    cloud.sleep(30)
  return codes


def begin(*states):
  """Returns a cloud in which a launch was asked for, and nobody watches it."""
  cloud = make_cloud(*states)

  def stop(count):
    raise KeyboardInterrupt

  cloud.each = stop
  assert tpu.main(RUN, cloud.world()) == 130
  cloud.each = lambda count: None
  return cloud


def test_looks_carry_a_launch_to_its_end(capsys):
  cloud = begin(LOST, LOST, HAPPY)
  codes = look(cloud, 99)
  assert {*codes[:-1]} == {tick.AGAIN} and codes[-1] == 0
  assert cloud.created == [A, A, A] and not cloud.items
  assert 'requests  3, preemptions 2' in capsys.readouterr().out


@pytest.mark.parametrize('text', ['', '{', '[]', 'null', '{"job": 1}'])
def test_without_a_sound_ledger_nothing_is_done_but_down(text, capsys):
  cloud = begin(HAPPY)
  cloud.write(LEDGER, text)
  with pytest.raises(errors.UserError, match='no sound ledger .* see run'):
    look(cloud)
  with pytest.raises(errors.UserError, match='no launch is under way'):
    tpu.main(['stop', 'gs://bkt/r'], cloud.world())
  assert cloud.items
  assert tpu.main(['down', 'gs://bkt/r'], cloud.world()) == 0
  assert not cloud.items


def test_down_deletes_all_with_the_label_and_fails_while_it_is_left(capsys):
  cloud = make_old('PROVISIONING')
  cloud.talks = False
  cloud.create('theirs', A, {'tpu': {'nodeSpec': [{'node': {}}]}})
  assert tpu.main(['down', 'old-1'], cloud.world()) == 1
  assert 'STILL THERE' in capsys.readouterr().err
  cloud.set_states('ACTIVE')
  assert tpu.main(['down', '--all'], cloud.world()) == 0
  assert [*cloud.items] == [('theirs', A)] and not cloud.refused
  assert cloud.read('gs://bkt/old/launch/j-1/end') == 'reason=stopped\n'


def test_down_needs_no_bucket_and_leaves_others_alone(capsys):
  cloud = make_old('ACTIVE')
  add(cloud, 'old', 'ACTIVE', zone=B, launch='k-2', workdir='gs://bkt/theirs')
  cloud.refuse = lambda method, path: 403 * ('storage' in path)
  assert tpu.main(['down', 'gs://bkt/old'], cloud.world()) == 0
  assert [name for name, _ in cloud.items] == ['old-2']
  assert 'may ask for more' in capsys.readouterr().err
  assert tpu.main(['down', 'old-2'], cloud.world()) == 0
  assert not cloud.items


def test_down_takes_no_wrong_name_for_an_end():
  cloud = make_old('ACTIVE')
  for target in 'old', 'gs://bkt/odl':
    with pytest.raises(errors.UserError, match=f'known of {target}: see ls'):
      tpu.main(['down', target], cloud.world())
  assert tpu.main(['down', 'gs://bkt/old/'], cloud.world()) == 0
  assert not cloud.items


def test_down_and_ls_say_which_zone_did_not_answer(capsys):
  cloud = make_old('ACTIVE')
  add(cloud, 'old', 'ACTIVE', zone=B)
  cloud.dark = {B}
  for words in (['ls'], ['down', 'gs://bkt/old'], ['down', '--all']):
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
  assert tpu.main(['down', 'gs://bkt/old'], cloud.world()) == 0
  assert not cloud.items and not cloud.refused
  assert 'cannot be deleted yet' in capsys.readouterr().out


def test_ls_says_what_there_is(capsys):
  assert tpu.main(['ls'], Google().world()) == 0
  assert capsys.readouterr().out == 'project p1\nnothing is rented.\n'
  assert tpu.main(['ls'], make_old('ACTIVE').world()) == 0
  _, listed = capsys.readouterr().out.splitlines()
  assert listed.split() == ['old', 'active', A, 'old-1', 'gs://bkt/old']


def test_logs_are_shown_by_whole_lines(capsys):
  cloud = Google((*HAPPY, *['ACTIVE'] * 9))
  # Of a program that was killed within a character.
  texts = [b'one\ntw\xc3\nthr', b'one\ntw\xc3\nthree\n']
  cloud.talks = False

  def each(*_):
    cloud.write('gs://bkt/r/logs/host-12.log', 'a\r  50%\r 100%\n')
    if texts:
      cloud.write('gs://bkt/r/logs/host-0.log', texts.pop(0))
    elif cloud.items:
      cloud.end('done')

  cloud.each = each
  assert tpu.main(RUN, cloud.world()) == 0
  told = [x[8:] for x in capsys.readouterr().out.splitlines() if '[w' in x]
  assert told == ['0] one', '0] tw\ufffd', '12]  100%', '0] three']
