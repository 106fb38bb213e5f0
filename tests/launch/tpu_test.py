"""Whole launches, with a stand-in for gcloud."""

from launch import commands, tpu
from tests.launch import fakes
from tests.launch.runs import HAPPY, RUN, A, B, make_cloud


def test_run_that_ends_well_is_asked_for_once_and_deleted(capsys):
  cloud = make_cloud(HAPPY)
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A] and not cloud.queue
  out = capsys.readouterr().out
  assert out.startswith('to end everything: python launch/tpu.py down r')
  assert 'ended     done' in out and 'requests  1, preemptions 0' in out


def test_preempted_run_is_asked_for_again_with_the_same_job(capsys):
  lost = (*HAPPY, 'ACTIVE', 'SUSPENDED')
  cloud = make_cloud(lost, (*HAPPY, 'ACTIVE', 'GONE'), HAPPY)
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, A, A] and not cloud.queue
  assert 'requests  3, preemptions 2' in capsys.readouterr().out


def test_full_zone_is_left_for_the_next():
  cloud = make_cloud(('FAILED: no more capacity',), HAPPY)
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, B] and not cloud.queue


def test_a_group_that_is_refused_is_no_reason_to_try_for_ever(capsys):
  # Its policy is there by then, and is deleted before the next look.
  cloud = fakes.Groups('ERROR: Invalid value for field topology')
  assert tpu.main([*RUN, '--topology=v6e-16'], cloud.world()) == 1
  asked = [x for x in cloud.argvs if 'managed' in x and 'create' in x]
  assert len(asked) <= 2 and cloud.policies == []
  assert 'Invalid value for field topology' in capsys.readouterr().out


def test_refusal_of_a_group_that_was_made_counts_once(capsys):
  # The group exists, without hosts, when its hosts are refused.
  busy, wrong = 'HTTPError 503: busy', 'Invalid value for field size'
  cloud = fakes.Groups(busy, busy, wrong, refused='resize')
  assert tpu.main([*RUN, '--topology=v6e-16'], cloud.world()) == 1
  assert len([x for x in cloud.argvs if 'resize' in x]) == 3
  assert f'ended     structural: {wrong}' in capsys.readouterr().out
  assert cloud.groups == cloud.policies == []


def test_refusal_of_hosts_that_came_up_after_all_is_forgotten():
  lost = (*HAPPY, 'SUSPENDED')
  cloud = make_cloud(lost, lost, lost, HAPPY)
  world = cloud.world()

  def run(argv, seconds=0):
    result = cloud.run(argv)
    lost = argv[3:5] == ['queued-resources', 'create']
    return commands.Result(1, err='no answer') if lost else result

  world.run = run
  assert tpu.main(RUN, world) == 0
  assert len(cloud.created) == 4


def test_exit_code_1_is_not_tried_again_and_its_lines_are_shown(capsys):
  cloud = fakes.Gcloud(HAPPY)
  cloud.on_active = lambda: cloud.end('failed', 'error: batch_size=7 is odd')
  assert tpu.main(RUN, cloud.world()) == 1
  assert cloud.created == [A] and not cloud.queue
  assert 'error: batch_size=7 is odd' in capsys.readouterr().out


def test_failed_listing_is_no_absence():
  cloud = fakes.Gcloud(HAPPY)
  count = [0]

  def on_active():
    count[0] += 1
    cloud.errors += ['HTTPError 403: forbidden'] if count[0] < 4 else []
    if count[0] == 4:
      cloud.end('done')

  cloud.on_active = on_active
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A]


def test_money_becomes_a_deadline(capsys):
  cloud = fakes.Gcloud(HAPPY)
  # 4 chips x $1.20 an hour: $0.48 are 6 minutes.
  assert tpu.main([*RUN, '--max_usd=0.48'], cloud.world()) == 1
  assert 'seconds=360\n' in [*cloud.jobs.values()][0]
  out = capsys.readouterr().out
  assert 'ended     out of time' in out and not cloud.queue
  assert 'rent      0.1' in out and '$0.4' in out
