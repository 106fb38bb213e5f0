"""What a launch checks, prints and asks before it rents."""

import json

import pytest

from bert_jax import errors
from launch import estimate, supervisor, terminal, tpu, world
from tests.launch.fakes import HAPPY, RUN, Google, make_cloud
from tests.launch.queued_test import make

ESTIMATE = {'hours': [31.5, 60.0], 'dollars': [126.0, 240.0]}
ROLE = 'roles/storage.objectAdmin'


def test_dry_run_sends_nothing_and_prints_the_request(capsys):
  cloud = Google()
  here = cloud.world()
  here.send = lambda *_: pytest.fail('a request was sent')
  assert tpu.main([*RUN, '--dry_run'], here) == 0
  out = capsys.readouterr().out
  assert 'gcloud compute tpus queued-resources create r-123456' in out
  assert '  argument=--workdir=gs://bkt/r' in out
  assert not any('queued-resources' in argv for argv in cloud.argvs)


def test_answer_no_rents_nothing(monkeypatch, capsys):
  monkeypatch.setattr('builtins.input', lambda question: 'n')
  cloud = Google(HAPPY)
  words = [word for word in RUN if word != '--yes']
  assert tpu.main(words, cloud.world()) == 1
  assert not cloud.created
  assert 'nothing was rented' in capsys.readouterr().out


REFUSED = {
  '--config=configs/none.py': 'not among the files',
  '--config.nope=3': 'nope',
}


@pytest.mark.parametrize('more', REFUSED)
def test_what_cannot_be_costs_nothing(more):
  cloud = Google(HAPPY)
  here = cloud.world()
  # The config is checked by the real command.
  here.run = lambda argv, **kw: (
    cloud.run(argv, **kw) if argv[0] == 'gcloud' else world.execute(argv)
  )
  with pytest.raises(errors.UserError, match=REFUSED[more]):
    tpu.main([*RUN, more], here)
  assert not cloud.created


def test_nobody_logged_in_is_one_line():
  here = world.World(run=lambda argv: world.Result(1, err='ERROR: log in'))
  with pytest.raises(errors.UserError, match='gcloud: ERROR: log in'):
    tpu.main(['ls'], here)


MISSING = {
  ROLE: r'storage.objects.create: gcloud storage buckets add-iam.*bkt',
  'roles/storage.legacyBucketReader': 'needs storage.buckets.get',
  'roles/tpu.admin': r'to delete its TPUs: gcloud projects add-iam.* p1 ',
}


@pytest.mark.parametrize('role', MISSING)
def test_missing_role_of_the_hosts_is_told_before_they_are_rented(role):
  cloud = Google(HAPPY)
  cloud.bindings[role] = ['user:me@b.c']
  with pytest.raises(errors.UserError, match=f'7-compute@.*{MISSING[role]}'):
    tpu.main(RUN, cloud.world())
  cloud = make_cloud(HAPPY)
  cloud.bindings = {key: ['serviceAccount:a@b.c'] for key in cloud.bindings}
  assert tpu.main([*RUN, '--service_account=a@b.c'], cloud.world()) == 0


@pytest.mark.parametrize('why', ['by a group', 'could not be checked'])
def test_role_that_may_come_otherwise_is_a_warning(why, capsys):
  cloud = make_cloud(HAPPY)
  cloud.bindings[ROLE] = ['group:all@b.c']
  if why == 'could not be checked':
    cloud.refuse = lambda method, path: 403 * path.endswith('/iam')
  assert tpu.main(RUN, cloud.world()) == 0
  assert why in capsys.readouterr().err


def test_bucket_that_refuses_is_told_before_anything_is_rented():
  cloud = Google(HAPPY)
  cloud.refuse = lambda method, path: 403 * (method == 'POST' and 'o?' in path)
  with pytest.raises(errors.UserError, match='403.*buckets create gs://bkt'):
    tpu.main(RUN, cloud.world())
  assert not cloud.created


def test_estimate_is_shown_and_a_limit_below_it():
  line = 'preflight it fits; 31.5 to 60 hours, $126 to $240 (estimated)'
  assert estimate.describe(make('--max_hours=72'), ESTIMATE) == [line]
  made = make('--max_usd=80')
  assert made.hours == 20.0
  assert 'limit of 20.00 hours is below' in estimate.describe(made, ESTIMATE)[1]
  assert 'not known' in estimate.describe(made, None)[0]
  limit = 'limit     20.0 hours of rent, $80.00; then the run is stopped'
  assert limit in estimate.describe_plan(made, 'p1', None)


def test_bill_stands_beside_the_estimate():
  ledger = supervisor.Ledger('j', attempts=3, preemptions=2, seconds=45_000.0)
  ledger = ledger._replace(reason='done', estimate=ESTIMATE)
  assert terminal.format_estimate({'hours': 'x', 'dollars': [1, None]}) == ''
  assert terminal.list_bill(make(), ledger) == [
    'ended     done',
    'requests  3, preemptions 2',
    'rent      12.50 hours, $50.00 (preflight: 31.5 to 60 hours, $126 to $240)',
  ]


def test_preflight_is_asked_once_and_refuses_what_does_not_fit():
  asked, fits = [], []

  def run(argv, seconds=0):
    asked.append(argv)
    with open(argv[-1].partition('=')[2], 'w') as file:
      json.dump({'run_estimate': {'hours': [1, 2]}}, file)
    return world.Result(0 if fits else 2, 'DOES NOT FIT')

  ask = lambda key: estimate.run_preflight(  # noqa: E731
    world.World(run=run), make(), 'configs/tiny.py', key
  )
  with pytest.raises(errors.UserError, match=r'DOES NOT FIT\n.*does not fit'):
    ask('one')
  fits.append(True)
  assert [ask(key)['hours'] for key in ('one', 'one', 'two')] == [[1, 2]] * 3
  assert len(asked) == 3
