"""Whole launches, with a stand-in for Google Cloud and a simulated clock."""

import subprocess
import sys

import pytest

from launch import archive, tpu, world
from tests.launch import fakes
from tests.launch.fakes import HAPPY, RUN, A, B, Google, make_cloud

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
  assert out.startswith('to end everything: python launch/tpu.py down r')
  assert text in out


def test_zone_without_the_chips_or_that_does_not_exist_is_left_out(capsys):
  words, cloud = [*RUN, f'--zone=us-east9-z,{A},{B}'], make_cloud(HAPPY)
  cloud.zones = {B}
  assert tpu.main(words, cloud.world()) == 0
  assert cloud.created == [B]
  err = capsys.readouterr().err
  assert f'{A} does not offer v5litepod-4' in err and 'us-east9-z does' in err
  cloud.zones = set()
  with pytest.raises(world.Unknown, match='no zone of'):
    tpu.main(words, cloud.world())
  cloud = fakes.interrupt()  # hosts that live are watched all the same
  cloud.on_active = lambda *_: cloud.end('done')
  assert tpu.main(words, cloud.world()) == 0
  assert not cloud.items
  cloud.dark = {A}
  with pytest.raises(world.Unknown, match=f'{A}: .*could not reach'):
    tpu.main(words, cloud.world())


def test_second_of_two_that_were_asked_for_is_deleted():
  cloud = Google((*HAPPY, *['ACTIVE'] * 9))
  here, lost = cloud.world(), world.Result(1, err='no answer')
  here.run = lambda argv, **_: (
    cloud.run(argv) and lost if 'create' in argv else cloud.run(argv)
  )

  def each(count):
    if count == 6:  # hosts of a request without an answer came late
      job = cloud.read_job()
      own = {'launch': job['launch'], 'workdir': job['workdir']}
      fakes.add(cloud, 'r', 'ACTIVE', zone=B, **own)
    if count == 9:
      assert [zone for _, zone in cloud.items] == [A]
      cloud.end('done')

  cloud.each = each
  assert tpu.main(RUN, here) == 0
  assert cloud.created == [A, B] and not cloud.items


def test_zone_that_does_not_answer_is_no_absence():
  cloud = Google((*HAPPY, *['ACTIVE'] * 9))

  def each(count):
    cloud.dark = {A, B} if 20 < count < 300 else set()
    cloud.broken += [403] * (300 < count < 315)
    if count == 400:
      cloud.end('done')

  cloud.each = each
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A]


def test_dark_fallback_zone_stops_no_replacement_in_the_good_one():
  cloud = make_cloud((*HAPPY, *['ACTIVE'] * 20, 'SUSPENDED'), HAPPY)
  cloud.each = lambda count: setattr(cloud, 'dark', {B} if count > 9 else set())
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, A] and cloud.slept < 200


@pytest.mark.parametrize('ahead', [-2400.0, 9e6])
def test_clock_of_the_launcher_changes_nothing(ahead, capsys):
  cloud = Google((*HAPPY, *['ACTIVE'] * 200))
  cloud.ahead = ahead
  cloud.each = lambda count: count == 150 and cloud.end('done')  # 75 minutes
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A] and 'rent      1.2' in capsys.readouterr().out


def test_money_becomes_a_deadline(capsys):
  cloud, told = Google(HAPPY), []
  cloud.on_active = lambda *_: told.append(cloud.read_job()['seconds'])
  # 4 chips x $1.20 an hour: $0.48 are 6 minutes.
  assert tpu.main([*RUN, '--max_usd=0.48'], cloud.world()) == 1
  end = 'ended     out of time\nrequests  1, preemptions 0\nrent      0.1'
  assert end in capsys.readouterr().out
  assert told == ['360'] and not cloud.items


STATUSES = ('', '{', '[]', '7', 'null', '{"step": null}', '[' * 100_000)
STATUSES += ('{"step": 1%s}' % ('0' * 400), '\x1b[2J', b'\xff\x1b')


def test_supervisor_survives_any_content_of_the_bucket(capsys):
  cloud = Google((*HAPPY, *['ACTIVE'] * 30))
  texts = [*STATUSES]

  def each(count):
    if texts and cloud.items:
      for name in ('status.json', 'logs/host-x.log', 'logs/host-0.log'):
        cloud.write(f'gs://bkt/r/{name}', texts[-1])
      texts.pop()
    elif cloud.items:
      cloud.end('no such reason')

  cloud.each = each
  assert tpu.main(RUN, cloud.world()) == 1
  out, err = capsys.readouterr()
  assert 'status.json is damaged, and passed over' in err
  assert '\x1b' not in out + err and 'unreadable' in out


@pytest.mark.parametrize(
  'words, said',
  [
    (['archive'], "[Errno 2] No such file or directory: 'git'"),
    (['ls', '\x1b[2J'], '\\x1b[2J is not an argument; see --help.'),
  ],
)
def test_error_is_one_line_that_a_terminal_does_not_obey(words, said):
  argv = [sys.executable, 'launch/tpu.py', *words]
  done = subprocess.run(
    argv, cwd=archive.ROOT, env={'PATH': ''}, capture_output=True, text=True
  )
  assert (done.returncode, done.stderr) == (1, f'error: {said}\n')
