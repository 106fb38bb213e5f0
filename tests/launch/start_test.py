"""What a launch checks, prints and asks before it rents."""

import pytest

from bert_jax import errors
from launch import start, tpu, world
from tests.launch.fakes import HAPPY, RUN, Google, make_cloud
from tests.launch.queued_test import make


def test_dry_run_sends_nothing_and_prints_the_request(capsys):
  cloud = Google()
  here = cloud.world()
  here.send = lambda *_: pytest.fail('a request was sent')
  assert tpu.main([*RUN, '--dry_run', '--max_usd=96'], here) == 0
  out = capsys.readouterr().out
  assert 'gcloud compute tpus queued-resources create r-123456' in out
  assert '\nargument=--workdir=gs://bkt/r\n' in out
  # Of all four chips.
  assert (
    'x $1.20 = $4.80 an hour' in out and '20.0 hours of rent, $96.00' in out
  )
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
  with pytest.raises(errors.UserError, match='batch_size'):
    tpu.main([*RUN, '--config.batch_size=7'], here)
  assert not cloud.created
  # One that it would take is taken, in the process that checks.
  start.check_config(world.World(), 'configs/tiny.py:smoke', ())


LOG_IN = """WARNING: a newer version exists
ERROR: (gcloud.config.config-helper) You do not have an active account selected.
Please run:

  $ gcloud auth login

to obtain new credentials.
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
  'storage.objects.create': 'gcloud storage buckets add-iam.* gs://bkt .*Admin',
  'storage.buckets.get': '.* gs://bkt .*roles/storage.legacyBucketReader',
  'tpu.nodes.delete': 'gcloud projects add-iam.* p1 .*tpu.admin',
}


@pytest.mark.parametrize('right', MISSING)
def test_missing_right_of_the_hosts_is_told_before_they_are_rented(right):
  cloud = Google(HAPPY)
  cloud.denied[right] = 'CANNOT_ACCESS'
  line = f'7-compute@.* needs {right}: {MISSING[right]}'
  with pytest.raises(errors.UserError, match=line):
    tpu.main(RUN, cloud.world())
  assert not cloud.created


def test_right_that_is_not_known_is_a_warning(capsys):
  words, cloud = [*RUN, '--service_account=a@b.c'], make_cloud(HAPPY)
  cloud.denied['tpu.nodes.delete'] = 'UNKNOWN_CONDITIONAL'
  assert tpu.main(words, cloud.world()) == 0 and cloud.principals == {'a@b.c'}
  assert 'a@b.c needs tpu.nodes.delete' in capsys.readouterr().err
  cloud = make_cloud(HAPPY)
  cloud.refuse = lambda method, path: 403 * path.endswith(':troubleshoot')
  assert tpu.main(RUN, cloud.world()) == 0
  assert 'could not be checked' in capsys.readouterr().err


def test_bucket_that_refuses_is_told_before_anything_is_rented():
  cloud = Google(HAPPY)
  cloud.refuse = lambda method, path: 403 * (method == 'POST' and 'o?' in path)
  with pytest.raises(errors.UserError, match='403.*buckets create gs://bkt'):
    tpu.main(RUN, cloud.world())
  assert not cloud.created


def test_preflight_is_shown_and_refuses_what_does_not_fit(capsys):
  argvs, codes = [], [0, 2, 1]

  def run(argv, seconds=0):
    argvs.append(argv)
    return world.Result(codes.pop(0), 'hours 1\nto 2', 'WARNING: x\nno libtpu')

  given = world.World(run=run), make('--config.seed=2'), 'configs/tiny.py'
  start.run_preflight(*given)
  assert capsys.readouterr().out.endswith('hours 1\nto 2\n')
  assert {'--config.seed=2', '--topology=v5e:2x2', '--price=1.0'} <= {*argvs[0]}
  for why in ('the run does not fit', 'no libtpu'):
    with pytest.raises(errors.UserError, match=f'preflight: {why}'):
      start.run_preflight(*given)
