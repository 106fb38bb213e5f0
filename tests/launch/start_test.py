"""What a launch checks and asks before it rents, and which launch goes on."""

import json

import pytest

from bert_jax import errors
from launch import start, tpu, world
from tests.launch.fakes import HAPPY, LEDGER, RUN, A, B, Google, add, make_cloud
from tests.launch.queued_test import make


def interrupt() -> Google:
  """Returns a cloud with the hosts of a run that nobody watches."""
  cloud = Google(HAPPY)

  def stop(*_):
    raise KeyboardInterrupt

  cloud.on_active = stop
  assert tpu.main(RUN, cloud.world()) == 130
  cloud.on_active = lambda *_: None
  return cloud


def test_dry_run_sends_nothing_and_prints_the_request(capsys):
  cloud = Google()
  here = cloud.world()
  here.send = lambda *_: pytest.fail('a request was sent')
  assert tpu.main([*RUN, '--dry_run', '--max_usd=96'], here) == 0
  out = capsys.readouterr().out
  assert 'gcloud compute tpus queued-resources create r-123456' in out
  assert '\nargument=--workdir=gs://bkt/r\n' in out
  # Of all four chips.
  assert '4 chips x $1.20 = $4.80 an hour' in out
  assert '20.0 hours of rent, $96.00' in out and not cloud.argvs[1:]


def test_config_that_a_run_would_refuse_costs_nothing():
  cloud = Google(HAPPY)
  here = cloud.world()
  here.run = lambda argv, **_: (
    cloud.run(argv) if argv[0] == 'gcloud' else world.execute(argv)
  )
  with pytest.raises(errors.UserError, match='batch_size'):
    tpu.main([*RUN, '--config.batch_size=7'], here)
  assert not cloud.created


def test_nothing_is_rented_without_a_yes(monkeypatch, capsys):
  cloud, answers = make_cloud(HAPPY), ['y', '', EOFError]  # Ctrl-D first
  words = [word for word in RUN if word != '--yes']

  def answer(question):
    assert question == 'rent this for at most $345.60? [y/N] '
    given = answers.pop()
    if given is EOFError:
      raise EOFError
    return given

  monkeypatch.setattr('builtins.input', answer)
  with pytest.raises(errors.UserError, match='no terminal; give --yes'):
    tpu.main(words, cloud.world())
  monkeypatch.setattr('sys.stdin.isatty', lambda: True)
  for _ in range(2):
    assert tpu.main(words, cloud.world()) == 1
  assert capsys.readouterr().out.count('nothing was rented') == 2
  assert not cloud.created
  assert tpu.main(words, cloud.world()) == 0 and cloud.created


MISSING = ['storage.objects.create', 'storage.buckets.get', 'tpu.nodes.delete']


@pytest.mark.parametrize('right', MISSING)
def test_missing_right_of_the_hosts_is_told_before_they_are_rented(right):
  cloud = Google(HAPPY)
  cloud.denied[right] = 'CANNOT_ACCESS'
  where = 'buckets/bkt' if 'storage' in right else 'projects/p1'
  line = f'7-compute@.* lacks the right {right} to .*{where}: see step 3'
  with pytest.raises(errors.UserError, match=line):
    tpu.main(RUN, cloud.world())
  assert not cloud.created


def test_bucket_that_refuses_is_told_before_anything_is_rented():
  cloud = Google(HAPPY)
  cloud.refuse = lambda method, path: 403 * (method == 'POST' and 'o?' in path)
  with pytest.raises(errors.UserError, match='403.*buckets create gs://bkt'):
    tpu.main(RUN, cloud.world())
  assert not cloud.created


def test_preflight_is_shown_and_refuses_what_does_not_fit(capsys):
  codes = [0, 2, 1]
  run = lambda argv, seconds: world.Result(codes.pop(0), str(argv), 'no libtpu')  # noqa: E731
  given = world.World(run=run), make('--config.seed=2'), 'configs/tiny.py'
  start.run_preflight(*given)
  assert "seed=2', '--quick', '--slices=1', '--topo" in capsys.readouterr().out
  for why in ('the run does not fit', 'no libtpu'):
    with pytest.raises(errors.UserError, match=f'preflight: {why}'):
      start.run_preflight(*given)


def test_two_that_watch_one_launch_do_no_harm():
  cloud = make_cloud((*HAPPY, *['ACTIVE'] * 5, 'SUSPENDED'), HAPPY)
  cloud.each = lambda count: (
    count == 5 and tpu.main(RUN, cloud.world()) and pytest.fail('not done')
  )
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A, A] and not cloud.items


OTHERS = {
  '--name=second': 'with name r: give',
  '--topology=v5litepod-8': 'with slice v5e:2x2',
  '--slices=2': 'with slices 1',
  '--workdir=gs://bkt/other': 'r-.* of gs://bkt/r is active',
}


@pytest.mark.parametrize('more', OTHERS)
def test_live_launch_is_neither_doubled_nor_taken_over(more):
  cloud = interrupt()
  before = cloud.objects[LEDGER]
  with pytest.raises(errors.UserError, match=OTHERS[more]):
    tpu.main([*RUN, more], cloud.world())
  assert cloud.objects[LEDGER] == before and cloud.created == [A]
  # It may begin when the first has ended.
  assert tpu.main(['stop', 'gs://bkt/r'], cloud.world()) == 0 and cloud.items
  with pytest.raises(errors.UserError, match=OTHERS[more]):
    tpu.main([*RUN, more], cloud.world())


def test_hosts_in_a_zone_that_is_asked_for_no_more_are_watched():
  cloud = interrupt()
  cloud.end('done')
  cloud.set_states('ACTIVE')
  assert tpu.main([*RUN, f'--zone={B}'], cloud.world()) == 0
  assert cloud.created == [A] and not cloud.items


@pytest.mark.parametrize('text', [None, '{', '{"job": "x"}'])
def test_hosts_of_a_lost_ledger_are_not_doubled(text, capsys):
  cloud = interrupt()
  del cloud.objects[LEDGER]
  if text:
    cloud.write(LEDGER, text)
  with pytest.raises(errors.UserError, match='of another launch'):
    tpu.main(RUN, cloud.world())
  # Once they have written until when they run, their launch goes on.
  job = cloud.read_job()['launch']
  cloud.write(f'gs://bkt/r/launch/{job}/deadline-1', f'{cloud.time + 2e5:.0f}')
  cloud.end('done')
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A] and json.loads(cloud.read(LEDGER))['job'] == job
  damaged = 'ledger.json is damaged' in capsys.readouterr().err
  assert damaged == bool(text)


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


def test_hosts_of_a_lost_ledger_may_be_in_a_zone_that_is_silent():
  cloud = interrupt()
  job = cloud.read_job()['launch']
  cloud.write(f'gs://bkt/r/launch/{job}/deadline-1', f'{cloud.time + 2e5:.0f}')
  del cloud.objects[LEDGER]
  begin = cloud.slept

  def each(count):
    cloud.dark = {A} if count < begin + 40 else set()
    if count == begin + 50:
      cloud.end('done')

  cloud.each = each
  assert tpu.main(RUN, cloud.world()) == 0
  assert cloud.created == [A]


@pytest.mark.parametrize('reason', ['', 'out of time'])
def test_a_launch_stays_in_its_project(reason):
  cloud = interrupt()
  ledger = json.loads(cloud.read(LEDGER))
  cloud.write(LEDGER, json.dumps(ledger | {'reason': reason}))
  cloud.project = 'p2'
  with pytest.raises(errors.UserError, match='with project p1'):
    tpu.main(RUN, cloud.world())
  add(cloud, 'other', 'ACTIVE')
  assert tpu.main(['down', 'gs://bkt/r'], cloud.world()) == 0
  assert [name for name, _ in cloud.items] == ['other-1']
  acts = [x for x in cloud.argvs if 'queued-resources' in x]
  assert all('--project=p1' in argv for argv in acts)
