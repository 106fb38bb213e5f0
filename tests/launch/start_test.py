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


def test_config_that_a_run_would_refuse_costs_nothing():
  cloud = Google(HAPPY)
  here = cloud.world()
  here.run = lambda argv, **_: (
    cloud.run(argv) if argv[0] == 'gcloud' else world.execute(argv)
  )
  with pytest.raises(errors.UserError, match='nope'):
    tpu.main([*RUN, '--config.nope=3'], here)
  assert not cloud.created
  # One that it would take is taken, in the process that checks.
  estimate.check_config(world.World(), 'configs/tiny.py:smoke', ())
  with pytest.raises(errors.UserError, match='batch_size'):
    estimate.check_config(
      world.World(), 'configs/tiny.py:smoke', ('--config.batch_size=7',)
    )


LOG_IN = """WARNING: a newer version exists
ERROR: (gcloud.config.config-helper) You do not have an active account selected.
Please run:

  $ gcloud auth login

to obtain new credentials.

If you have already logged in with a different account, run:

  $ gcloud config set account ACCOUNT

to select an already authenticated account to use.
"""


def test_nobody_logged_in_is_one_line():
  run = lambda argv: world.Result(1, err=LOG_IN)  # noqa: E731
  here = world.World(run=run, sleep=lambda seconds: None)
  line = (
    r'^gcloud: ERROR: .* an active account .* gcloud auth login to obtain.*$'
  )
  with pytest.raises(world.Unknown, match=line):
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


@pytest.mark.parametrize(
  'how, why',
  [
    ('group', 'by a group or a condition'),
    ('condition', 'by a group or a condition'),
    ('hidden', 'could not be checked'),
  ],
)
def test_role_that_may_come_otherwise_is_a_warning(how, why, capsys):
  cloud = make_cloud(HAPPY)
  if how == 'group':
    cloud.bindings[ROLE] = ['group:all@b.c']
  elif how == 'condition':
    cloud.conditional = {ROLE}
  else:
    cloud.refuse = lambda method, path: 403 * path.endswith('/iam')
  assert tpu.main(RUN, cloud.world()) == 0
  assert why in capsys.readouterr().err


def test_bucket_that_refuses_is_told_before_anything_is_rented():
  cloud = Google(HAPPY)
  cloud.refuse = lambda method, path: 403 * (method == 'POST' and 'o?' in path)
  with pytest.raises(errors.UserError, match='403.*buckets create gs://bkt'):
    tpu.main(RUN, cloud.world())
  assert not cloud.created


def test_estimate_and_bill_are_of_all_chips(capsys):
  made = make('--max_usd=80')
  fits, warning = estimate.describe(made, ESTIMATE)
  assert fits.endswith('31.5 to 60 hours, $126 to $240 (estimated)')
  assert 'limit of 20.00 hours is below' in warning
  ledger = supervisor.Ledger('j', seconds=45_000.0, reason='done')
  terminal.Screen(world.World()).show_bill(made, ledger)
  assert 'ended     done\n' in (out := capsys.readouterr().out)
  assert '12.50 hours, $50.00\n' in out


def test_preflight_is_asked_once_and_refuses_what_does_not_fit():
  asked, codes = [], [2, 0, 0]

  def run(argv, seconds=0):
    asked.append(argv)
    with open(argv[-1].partition('=')[2], 'w') as file:
      json.dump({'run_estimate': {'hours': [1, 2]}}, file)
    return world.Result(codes.pop(0), 'DOES NOT FIT')

  given = world.World(run=run), make(), 'configs/tiny.py'
  with pytest.raises(errors.UserError, match=r'DOES NOT FIT\n.*does not fit'):
    estimate.run_preflight(*given, 'one')
  for key in ('one', 'one', 'two'):
    assert estimate.run_preflight(*given, key) == {'hours': [1, 2]}
  assert len(asked) == 3
