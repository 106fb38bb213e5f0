"""Whole launches, with a stand-in for gcloud."""

import json

import pytest

from bert_jax import errors
from launch import commands, tpu
from launch.world import World
from tests.launch import fakes

A, B = 'us-east5-b', 'europe-west4-b'
RUN = [
  *('run', '--name=r', '--config=configs/tiny.py:smoke', '--spot', '--yes'),
  *('--workdir=gs://bkt/r', '--topology=v5litepod-4', f'--zone={A},{B}'),
  '--no_preflight',
]
LEDGER = 'gs://bkt/r/launch/ledger.json'
COMPUTE = ['gcloud', 'compute', 'instances']
HAPPY = ('ACCEPTED', 'PROVISIONING', 'ACTIVE')


@pytest.fixture(autouse=True)
def _folders(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path))
  monkeypatch.chdir(tpu.start.ROOT)


def _deletions(cloud):
  return [argv for argv in cloud.argvs if argv[4:5] == ['delete']]


def test_run_that_ends_well_is_asked_for_once_and_deleted(capsys):
  cloud = fakes.Gcloud(HAPPY)
  cloud.on_active = lambda: cloud.end('done')
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A] and not cloud.queue
  out = capsys.readouterr().out
  assert out.startswith('to end everything: python launch/tpu.py down r')
  assert 'ended     done' in out and 'requests  1, preemptions 0' in out


def test_preempted_run_is_asked_for_again_with_the_same_job(capsys):
  lost = (*HAPPY, 'ACTIVE', 'SUSPENDED')
  cloud = fakes.Gcloud(lost, (*HAPPY, 'ACTIVE', 'GONE'), HAPPY)
  cloud.on_active = lambda: cloud.states or cloud.end('done')
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, A, A] and not cloud.queue
  assert 'requests  3, preemptions 2' in capsys.readouterr().out


def test_full_zone_is_left_for_the_next():
  cloud = fakes.Gcloud(('FAILED: no more capacity',), HAPPY)
  cloud.on_active = lambda: cloud.end('done')
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, B] and not cloud.queue


def test_a_group_that_is_refused_is_no_reason_to_try_for_ever(capsys):
  # Its policy is there by then, and is deleted before the next look.
  cloud = fakes.Groups('ERROR: Invalid value for field topology')
  words = [x for x in RUN if not x.startswith('--topology')]
  argv = [*words, '--topology=v6e-16']
  assert tpu.main(argv, cloud.world()) == 1
  asked = [x for x in cloud.argvs if 'managed' in x and 'create' in x]
  assert len(asked) <= 2 and cloud.policies == []
  assert 'Invalid value for field topology' in capsys.readouterr().out


def test_refusal_of_a_group_that_was_made_counts_once(capsys):
  # The group exists, without hosts, when its hosts are refused.
  busy, wrong = 'HTTPError 503: busy', 'Invalid value for field size'
  cloud = fakes.Groups(busy, busy, wrong, refused='resize')
  words = [x for x in RUN if not x.startswith('--topology')]
  assert tpu.main([*words, '--topology=v6e-16'], cloud.world()) == 1
  assert len([x for x in cloud.argvs if 'resize' in x]) == 3
  assert f'ended     structural: {wrong}' in capsys.readouterr().out
  assert cloud.groups == cloud.policies == []


def test_refusal_of_hosts_that_came_up_after_all_is_forgotten():
  lost = (*HAPPY, 'SUSPENDED')
  cloud = fakes.Gcloud(lost, lost, lost, HAPPY)
  cloud.on_active = lambda: cloud.states or cloud.end('done')
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


def test_second_supervisor_adopts_and_the_first_gives_up():
  cloud = fakes.Gcloud(HAPPY)
  world = cloud.world()
  second = []

  def on_active():
    if not second:
      second.append(True)
      cloud.on_active = lambda: cloud.end('done')
      assert tpu.main(RUN, fakes_world(cloud)) == 0

  cloud.on_active = on_active
  with pytest.raises(errors.UserError, match='watches this run now'):
    tpu.main(RUN, world)
  assert cloud.created == [A] and not cloud.queue


def fakes_world(cloud):
  return World(cloud.run, lambda: cloud.now, cloud.sleep, 30.0)


def test_lost_answers_to_writes_of_the_ledger_end_no_watch():
  cloud = fakes.Gcloud((*HAPPY, 'ACTIVE', 'ACTIVE'))
  world, lost = cloud.world(), []

  def run(argv, **more):
    result = cloud.run(argv, **more)
    written = LEDGER in argv and 'cp' in argv and not result.code
    if written and len(lost) < 2 and cloud.created:
      lost.append(result)
      return commands.Result(124, err='timed out after 900 s')
    return result

  world.run = run
  cloud.on_active = lambda: cloud.end('done')
  assert tpu.main(RUN, world) == 0
  assert len(lost) == 2
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


def _list_projects(argvs):
  """Returns the projects that commands of gcloud name; None if one does not."""
  flags = [[w for w in argv if w.startswith('--project')] for argv in argvs]
  asked = ['gcloud', 'config', 'get', 'project']
  return {
    f[0] if f else None for f, a in zip(flags, argvs, strict=True) if a != asked
  }


def test_watch_stays_in_its_project_when_gcloud_chooses_another():
  cloud = fakes.Gcloud((*HAPPY, 'ACTIVE', 'SUSPENDED'), HAPPY)

  def on_active():
    cloud.project = 'p2'
    if not cloud.states:
      cloud.end('done')

  cloud.on_active = on_active
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, A]
  gcloud = [argv for argv in cloud.argvs if argv[0] == 'gcloud']
  assert _list_projects(gcloud) == {'--project=p1'}


@pytest.mark.parametrize('here', [True, False])
def test_run_is_looked_for_in_its_own_project(here, monkeypatch, tmp_path):
  cloud = fakes.Gcloud(HAPPY)
  cloud.on_active = lambda: cloud.end('done')
  assert tpu.main(RUN, cloud.world()) == 0
  cloud.project, count = 'p2', len(cloud.argvs)
  words = ['down', 'r']
  if not here:
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'other'))
    words.append('--workdir=gs://bkt/r')
  assert tpu.main(words, cloud.world()) == 0
  lists = [argv for argv in cloud.argvs[count:] if 'list' in argv]
  assert lists and _list_projects(lists) == {'--project=p1'}


def test_run_is_not_continued_in_another_project():
  cloud = _interrupt()
  cloud.queue.clear()  # nothing of it is seen there
  cloud.project = 'p2'
  with pytest.raises(errors.UserError, match='is in project p1'):
    tpu.main(RUN, cloud.world())
  assert cloud.created == [A]
  # What is ended there may begin here.
  del cloud.sleep
  assert tpu.main(['stop', 'r'], cloud.world()) == 0
  cloud.states, cloud.on_active = [HAPPY], lambda: cloud.end('done')
  assert tpu.main(RUN, cloud.world()) == 0


def test_name_of_another_run_is_refused():
  cloud = fakes.Gcloud(HAPPY)
  cloud.queue['r', B] = ['ACTIVE']
  cloud.jobs['r', B] = 'name=r\njob=j\nsha256=s\nworkdir=gs://bkt/other\n'
  with pytest.raises(errors.UserError, match='in use, with .*gs://bkt/other'):
    tpu.main(RUN, cloud.world())
  assert ('r', B) in cloud.queue


def _interrupt(*words):
  """Returns a cloud with the hosts of a run that nobody watches."""
  cloud = fakes.Gcloud(HAPPY)

  def interrupt():
    raise KeyboardInterrupt

  cloud.on_active = interrupt
  assert tpu.main([*RUN, *words], cloud.world()) == 130
  cloud.on_active = lambda: None
  cloud.sleep = lambda seconds: interrupt()  # no later watch lasts
  return cloud


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
  cloud = _interrupt(*words)
  with pytest.raises(errors.UserError, match=message):
    tpu.main([*RUN, *words, more], cloud.world())
  assert ('r', A) in cloud.queue
  assert not [x for x in cloud.argvs if x[:4] == [*COMPUTE, 'create']]


def test_run_needs_no_rights_to_the_other_api(capsys):
  cloud = fakes.Gcloud(HAPPY)
  cloud.on_active = lambda: cloud.end('done')
  assert tpu.main(RUN, _refuse(cloud, 'instances', 'list')) == 0
  assert 'compute could not be asked for hosts' in capsys.readouterr().err


def test_dry_run_runs_nothing_and_prints_the_request(capsys, monkeypatch):
  def fail(*_, **__):
    raise AssertionError('a command was run')

  monkeypatch.setattr(commands.subprocess, 'run', fail)
  assert tpu.main([*RUN, '--dry_run']) == 0
  out = capsys.readouterr().out
  assert 'gcloud compute tpus queued-resources create r --node-id=r' in out
  assert '  argument=--workdir=gs://bkt/r' in out


def test_detached_watch_is_the_same_command_without_asking(monkeypatch):
  started = []

  class Process:
    pid = 7

    def __init__(self, argv, **more):
      started.append((argv, more['start_new_session'], more['env']))

  monkeypatch.setattr(tpu.start.subprocess, 'Popen', Process)
  monkeypatch.setattr(tpu.sys, 'argv', ['launch/tpu.py', *RUN, '--detach'])
  cloud = fakes.Gcloud(HAPPY)
  assert tpu.main([*RUN, '--detach'], cloud.world()) == 0
  ((argv, alone, environment),) = started
  assert environment['CLOUDSDK_CORE_PROJECT'] == 'p1'
  assert argv[1:] == ['launch/tpu.py', *RUN, '--yes'] and alone
  assert not cloud.created  # that is for the watch to do


def test_plan_says_the_hours_of_rent_without_a_price_too(capsys):
  words = [word for word in RUN if not word.startswith('--topology')]
  argv = [*words, '--topology=tpu7x-8', '--max_hours=5', '--dry_run']
  assert tpu.main(argv, fakes.Gcloud().world()) == 0
  limit = 'limit     5.0 hours of rent; then the run is stopped'
  assert limit in capsys.readouterr().out.splitlines()


def test_answer_no_rents_nothing(monkeypatch, capsys):
  monkeypatch.setattr('builtins.input', lambda question: 'n')
  cloud = fakes.Gcloud(HAPPY)
  words = [word for word in RUN if word != '--yes']
  assert tpu.main(words, cloud.world()) == 1
  assert not cloud.created
  assert 'nothing was rented' in capsys.readouterr().out


@pytest.mark.parametrize(
  'more, message',
  [
    ('--workdir=/tmp/x', 'must be gs://BUCKET/FOLDER'),
    ('--name=Large', 'lower-case letters'),
    ('--topology=v5litepod-17', 'did you mean'),
    ('--topology=h100:8', 'not a TPU slice'),
    ('--zone=us-east5', 'not a zone'),
    ('--max_usd=0', 'must be more than 0'),
    ('--max_hours=inf', 'must be more than 0 and finite'),
    ('--price=nan', 'must be more than 0 and finite'),
    ('--topology=tpu7x-8', 'needs --max_usd|needs a price'),
    ('--config=configs/none.py', 'not among the files'),
    ('--config.nope=3', 'nope'),
    ('--confg=x', 'not an argument'),
  ],
)
def test_what_cannot_be_costs_nothing(more, message):
  cloud = fakes.Gcloud(HAPPY)
  world = cloud.world()

  def run(argv, seconds=900):
    # The config is checked by the real command.
    real = argv[0] != 'gcloud'
    return commands.execute(argv) if real else cloud.run(argv)

  world.run = run
  words = [*RUN, '--max_usd=3'] if 'tpu7x' in more else RUN
  with pytest.raises(errors.UserError, match=message):
    tpu.main([*words, more], world)
  assert not cloud.created


def test_down_deletes_all_and_fails_while_anything_is_left(capsys):
  cloud = fakes.Gcloud()
  cloud.queue['old', A] = ['PROVISIONING']
  cloud.jobs['old', A] = 'name=old\njob=j\nworkdir=gs://bkt/old\n'
  assert tpu.main(['down', 'old'], cloud.world()) == 1
  assert 'STILL THERE' in capsys.readouterr().err
  cloud.queue['old', A] = ['ACTIVE']
  assert tpu.main(['down', '--all'], cloud.world()) == 0
  assert not cloud.queue
  # A supervisor that looks now does not ask for more.
  assert cloud.objects['gs://bkt/old/launch/j/end'][0] == 'reason=stopped\n'


def _make_old(*states):
  """Returns a cloud with a queued resource of a run `old`."""
  cloud = fakes.Gcloud()
  cloud.queue['old', A] = [*states]
  cloud.jobs['old', A] = 'name=old\njob=j\nworkdir=gs://bkt/old\n'
  return cloud


def _refuse(cloud, *words):
  """Returns a world in which commands with all of some words are refused."""
  world = cloud.world()

  def run(argv, **more):
    if all(word in argv for word in words):
      return commands.Result(1, err='HTTPError 403: forbidden')
    return cloud.run(argv, **more)

  world.run = run
  return world


def test_down_deletes_without_the_bucket(capsys):
  cloud = _make_old('ACTIVE')
  assert tpu.main(['down', '--all'], _refuse(cloud, 'storage')) == 0
  assert not cloud.queue
  assert 'may ask for more' in capsys.readouterr().err


def test_down_deletes_what_one_api_shows_while_the_other_is_refused(capsys):
  cloud = _make_old('ACTIVE')
  assert tpu.main(['down', 'old'], _refuse(cloud, 'instances', 'list')) == 1
  assert not cloud.queue
  out, err = capsys.readouterr()
  assert 'nothing is left' not in out and 'compute could not be asked' in err


def test_down_takes_no_unanswered_look_for_absence():
  cloud = _make_old('PROVISIONING', 'ACTIVE')
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
  cloud = fakes.Gcloud()
  assert tpu.main(['ls'], cloud.world()) == 0
  assert capsys.readouterr().out == 'project p1\nnothing is rented.\n'
  cloud.queue['old', A] = ['ACTIVE']
  cloud.jobs['old', A] = 'name=old\njob=j\nworkdir=gs://bkt/old\n'
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
  cloud = fakes.Gcloud()
  cloud.queue['old', A] = ['ACTIVE']
  cloud.jobs['old', A] = 'name=old\njob=j\nworkdir=gs://bkt/old\n'
  assert tpu.main(['stop', 'old'], cloud.world()) == 0
  assert cloud.objects['gs://bkt/old/launch/j/end'][0] == 'reason=stopped\n'
  assert ('old', A) in cloud.queue
  with pytest.raises(errors.UserError, match='no launch of new'):
    tpu.main(['stop', 'new', '--workdir=gs://bkt/new'], cloud.world())
