"""What a launch checks, prints and asks before it rents."""

import pytest

from bert_jax import errors
from launch import commands, tpu
from tests.launch import fakes
from tests.launch.runs import HAPPY, RUN, make_cloud, refuse


def test_dry_run_runs_nothing_and_prints_the_request(capsys, monkeypatch):
  def fail(*_, **__):
    raise AssertionError('a command was run')

  monkeypatch.setattr(commands.subprocess, 'run', fail)
  assert tpu.main([*RUN, '--dry_run']) == 0
  out = capsys.readouterr().out
  assert 'gcloud compute tpus queued-resources create r --node-id=r' in out
  assert '  argument=--workdir=gs://bkt/r' in out


def test_plan_says_the_hours_of_rent_without_a_price_too(capsys):
  argv = [*RUN, '--topology=tpu7x-8', '--max_hours=5', '--dry_run']
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


def test_run_needs_no_rights_to_the_other_api(capsys):
  cloud = make_cloud(HAPPY)
  assert tpu.main(RUN, refuse(cloud, 'instances', 'list')) == 0
  assert 'compute could not be asked for hosts' in capsys.readouterr().err


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
