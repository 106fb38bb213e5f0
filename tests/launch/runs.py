"""The command that starts a run, and clouds in which it goes well or badly."""

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
HAPPY = ('ACCEPTED', 'PROVISIONING', 'ACTIVE')


def make_cloud(*states) -> fakes.Gcloud:
  """Returns a cloud in which the last hosts that are asked for end the run."""
  cloud = fakes.Gcloud(*states)
  cloud.on_active = lambda: cloud.states or cloud.end('done')
  return cloud


def make_old(*states: str) -> fakes.Gcloud:
  """Returns a cloud with a queued resource of a run `old`."""
  cloud = fakes.Gcloud()
  cloud.queue['old', A] = [*states]
  cloud.jobs['old', A] = 'name=old\njob=j\nworkdir=gs://bkt/old\n'
  return cloud


def interrupt(*words: str) -> fakes.Gcloud:
  """Returns a cloud with the hosts of a run that nobody watches.

  Args:
    *words: further arguments of the run.
  """
  cloud = fakes.Gcloud(HAPPY)

  def stop():
    raise KeyboardInterrupt

  cloud.on_active = stop
  assert tpu.main([*RUN, *words], cloud.world()) == 130
  cloud.on_active = lambda: None
  cloud.sleep = lambda seconds: stop()  # no later watch lasts
  return cloud


def refuse(cloud: fakes.Gcloud, *words: str) -> World:
  """Returns a world in which commands with all of some words are refused."""
  world = cloud.world()

  def run(argv, **more):
    if all(word in argv for word in words):
      return commands.Result(1, err='HTTPError 403: forbidden')
    return cloud.run(argv, **more)

  world.run = run
  return world
