"""One supervisor at a time goes on with a launch, and with its own alone."""

import json

import pytest

from bert_jax import errors
from launch import tpu, world
from tests.launch.fakes import HAPPY, LEDGER, RUN, A, B, Google, interrupt


def test_two_that_watch_one_launch_do_no_harm():
  cloud = Google((*HAPPY, *['ACTIVE'] * 5, 'SUSPENDED'), HAPPY)

  def each(count):
    if count == 5:
      assert tpu.main(RUN, cloud.world()) == 0

  cloud.each = each
  cloud.on_active = lambda *_: cloud.states or cloud.end('done')
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, A] and not cloud.items


def test_second_start_at_the_same_time_rents_nothing():
  cloud = Google(HAPPY)
  # Another writes between load and save.
  cloud.refuse = lambda _, url: (
    0 * ('.tar' in url and cloud.write(LEDGER, '{}'))
  )
  with pytest.raises(world.Unknown, match='another command looks after'):
    tpu.main(RUN, cloud.world())
  assert not cloud.created


def test_second_name_does_not_take_the_ledger_of_a_live_launch():
  cloud = interrupt()
  before, words = cloud.objects[LEDGER], [*RUN, '--name=second']
  with pytest.raises(errors.UserError, match='in use by a launch named r'):
    tpu.main(words, cloud.world())
  assert cloud.objects[LEDGER] == before and cloud.created == [A]
  # It may begin once the first is ended, whose hosts save and go by themselves.
  assert tpu.main(['stop', 'r'], cloud.world()) == 0 and cloud.items
  cloud.states, cloud.on_active = [HAPPY], lambda *_: cloud.end('done')
  assert tpu.main(words, cloud.world()) == 0


OTHERS = ['--topology=v5litepod-8', '--slices=2', '--workdir=gs://bkt/other']


@pytest.mark.parametrize('more', OTHERS)
def test_live_hosts_of_another_kind_or_run_are_not_doubled(more):
  cloud = interrupt()
  with pytest.raises(
    errors.UserError, match=f'in use by hosts with {more[:8]}'
  ):
    tpu.main([*RUN, more, f'--zone={B}'], cloud.world())
  assert cloud.created == [A] and cloud.items


@pytest.mark.parametrize('more', [[], [f'--zone={B}']])
@pytest.mark.parametrize('text', [None, '{"job": "x"}'])
def test_live_hosts_are_adopted_whatever_the_ledger_and_the_zones(
  text, more, capsys
):
  cloud = interrupt()
  launch = cloud.read_job()['launch']
  if text is not None:
    cloud.write(LEDGER, text)
  cloud.on_active = lambda *_: cloud.end('done')
  cloud.set_states('ACTIVE')
  assert tpu.main([*RUN, *more], cloud.world()) == 0
  assert cloud.created == [A] and not cloud.items
  assert json.loads(cloud.read(LEDGER))['job'] == launch
  damaged = 'ledger.json is damaged' in capsys.readouterr().err
  assert damaged == (text is not None)


@pytest.mark.parametrize('text', [None, '{'])
def test_what_was_spent_is_known_without_the_ledger(text, capsys):
  cloud, words = interrupt(), [*RUN, '--max_hours=2']
  job = cloud.read_job()['launch']
  folder = f'gs://bkt/r/launch/{job}'
  cloud.write(f'{folder}/deadline-3', f'{cloud.time + 5400:.0f}\n')
  cloud.time += 1800
  cloud.write('gs://bkt/r/logs/host-2.log', 'its last words')
  cloud.time += 9e5
  del cloud.objects[LEDGER]
  if text:
    cloud.write(LEDGER, text)
  cloud.items.clear()  # half an hour before it, an hour since
  cloud.states = [(*HAPPY, *['ACTIVE'] * 999)]
  cloud.on_active = lambda *_: None
  assert tpu.main(words, cloud.world()) == 1
  out = capsys.readouterr().out
  assert 'ended     out of time' in out and 'rent      2.0' in out
  assert f'going on with launch {job}' in out
  assert cloud.created == [A, A] and 3400 < cloud.rented < 3800
  # Of a launch that has ended, nothing is counted.
  cloud.write(f'{folder}/end', 'reason=stopped\n')
  cloud.write(LEDGER, '{')
  cloud.states, cloud.on_active = [HAPPY], lambda *_: cloud.end('done')
  assert tpu.main(words, cloud.world()) == 0


def test_commands_stay_in_the_project_of_their_run(capsys):
  cloud = interrupt()
  cloud.project = 'p2'
  cloud.set_states('ACTIVE')
  assert tpu.main(['down', 'r'], cloud.world()) == 0
  assert 'project p1\n' in capsys.readouterr().out and not cloud.items
  projects = {x[-1] for x in cloud.argvs if 'queued-resources' in x}
  assert projects == {'--project=p1'}
  url = next(url for url in cloud.objects if url.endswith('/end'))
  del cloud.objects[url]
  with pytest.raises(errors.UserError, match='in project p1'):
    tpu.main(RUN, cloud.world())
  assert cloud.created == [A]
