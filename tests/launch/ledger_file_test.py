"""One supervisor at a time goes on with a launch and its hosts."""

import pytest

from bert_jax import errors
from launch import commands, tpu
from tests.launch import fakes
from tests.launch.runs import HAPPY, LEDGER, RUN, A, B, interrupt, make_cloud


def test_second_supervisor_adopts_and_the_first_gives_up():
  cloud = fakes.Gcloud(HAPPY)
  world = cloud.world()
  second = []

  def on_active():
    if not second:
      second.append(True)
      cloud.on_active = lambda: cloud.end('done')
      assert tpu.main(RUN, cloud.world()) == 0

  cloud.on_active = on_active
  with pytest.raises(errors.UserError, match='watches this run now'):
    tpu.main(RUN, world)
  assert cloud.created == [A] and not cloud.queue


def test_second_start_at_the_same_time_rents_nothing():
  cloud = fakes.Gcloud(HAPPY)
  world = cloud.world()

  def run(argv, **more):
    if any(word.endswith('.tar.gz') for word in argv):  # between load and save
      cloud.write(LEDGER, '{"writer": "another"}')
    return cloud.run(argv, **more)

  world.run = run
  with pytest.raises(errors.UserError, match='watches this run now'):
    tpu.main(RUN, world)
  assert not cloud.created


def test_lost_answers_to_writes_of_the_ledger_end_no_watch():
  cloud = make_cloud((*HAPPY, 'ACTIVE', 'ACTIVE'))
  world, lost = cloud.world(), []

  def run(argv, **more):
    result = cloud.run(argv, **more)
    written = LEDGER in argv and 'cp' in argv and not result.code
    if written and len(lost) < 2 and cloud.created:
      lost.append(result)
      return commands.Result(124, err='timed out after 900 s')
    return result

  world.run = run
  assert tpu.main(RUN, world) == 0
  assert len(lost) == 2
  assert cloud.created == [A] and not cloud.queue


def test_name_of_another_run_is_refused():
  cloud = fakes.Gcloud(HAPPY)
  cloud.queue['r', B] = ['ACTIVE']
  cloud.jobs['r', B] = 'name=r\njob=j\nsha256=s\nworkdir=gs://bkt/other\n'
  with pytest.raises(errors.UserError, match='in use, with .*gs://bkt/other'):
    tpu.main(RUN, cloud.world())
  assert ('r', B) in cloud.queue


@pytest.mark.parametrize(
  'more, message',
  [
    ('--api=compute', 'has a queued resource of --api=queued'),
    ('--topology=v6e-8', 'has hosts of --topology=v6e:2x2'),
    ('--slices=2', 'has hosts of --slices=1'),
  ],
)
def test_live_hosts_of_another_kind_are_not_doubled(more, message):
  words = ['--topology=v6e-4', '--api=queued']
  cloud = interrupt(*words)
  with pytest.raises(errors.UserError, match=message):
    tpu.main([*RUN, *words, more], cloud.world())
  assert ('r', A) in cloud.queue
  asked = [argv[1:4] for argv in cloud.argvs]
  assert ['compute', 'instances', 'create'] not in asked
