"""Launches by single looks, each of which knows what the ledger says."""

import pytest

from bert_jax import errors
from launch import tick, tpu
from launch.world import Result
from tests.launch.fakes import HAPPY, LEDGER, RUN, A, B, make_cloud

LOST = (*HAPPY, 'ACTIVE', 'SUSPENDED')


def look(cloud, times=1, *words):
  """Looks some times, by commands of their own; returns the exit codes."""
  codes = []
  while len(codes) < times and 0 not in codes:
    codes.append(tpu.main(['tick', 'r', *words], cloud.world()))
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


@pytest.mark.parametrize('words', [[], ['--workdir=gs://bkt/r']])
def test_looks_carry_a_launch_to_its_end(words, capsys):
  cloud = begin(LOST, LOST, HAPPY)
  codes = look(cloud, 99, *words)
  assert {*codes[:-1]} == {tick.AGAIN} and codes[-1] == 0
  assert cloud.created == [A, A, A] and not cloud.items
  assert 'requests  3, preemptions 2' in capsys.readouterr().out
  assert look(cloud) == [0]  # one more does nothing


def test_look_that_fails_says_that_it_is_to_be_taken_again(capsys):
  cloud = begin(HAPPY)
  cloud.broken = [403]
  assert look(cloud) == [tick.AGAIN]
  here = cloud.world()
  here.run = lambda argv: Result(1, err='ERROR: no DNS')
  assert tpu.main(['tick', 'r'], here) == tick.AGAIN
  assert capsys.readouterr().err.count('look again') == 2
  assert look(cloud, 9)[-1] == 0


def test_refused_request_is_asked_for_elsewhere():
  cloud = begin(('GONE',), HAPPY)
  here = cloud.world()
  here.run = lambda argv: (
    Result(1, err='no more capacity') if 'create' in argv else cloud.run(argv)
  )
  cloud.time += 99
  cloud.items.clear()
  assert tpu.main(['tick', 'r'], here) == tick.AGAIN
  assert '"refusals": 1' in cloud.read(LEDGER)
  assert look(cloud, 9)[-1] == 0
  assert cloud.created == [A, B]


def test_without_a_sound_ledger_nothing_is_done(capsys):
  cloud = begin(HAPPY)
  cloud.write(LEDGER, '{')
  assert look(cloud) == [tick.AGAIN] and cloud.items
  assert 'no sound ledger; "run" begins another' in capsys.readouterr().err
  del cloud.objects[LEDGER]
  with pytest.raises(errors.UserError, match='no launch was started'):
    look(cloud)
