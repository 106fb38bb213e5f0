"""Launches against a stand-in for Google Cloud, with a simulated clock."""

import json
import pathlib

import fake_cloud
import pytest

from launch.world import Answer, Result, World

A, B = 'us-east5-b', 'europe-west4-b'
RUN = [
  *('run', '--name=r', '--config=configs/tiny.py:smoke', '--spot', '--yes'),
  *('--workdir=gs://bkt/r', '--topology=v5litepod-4', f'--zone={A},{B}'),
  '--no_preflight',
]
LEDGER = 'gs://bkt/r/launch/ledger.json'
HAPPY = ('ACCEPTED', 'PROVISIONING', 'ACTIVE')


class Google(fake_cloud.Cloud):
  """A cloud whose time passes only while a launcher sleeps.

  Attributes:
    states: those of each request, in the order of requests.
    argvs: every command that was run.
    talks: whether hosts that run write their log.
    each: called with their number after each sleep.
  """

  def __init__(self, *states):
    super().__init__(lambda: self.time)
    self.time, self.project = 1_790_000_000.0, 'p1'
    self.states, self.argvs = list(states), []
    self.talks, self.slept, self.each = True, 0, lambda count: None

  def world(self) -> World:
    return World(self.run, self.send, self.sleep)

  def sleep(self, seconds: float):
    self.time += seconds
    self.slept += 1
    if self.slept > 20_000:
      pytest.fail('the launch does not end')
    if self.talks and any(item['running'] for item in self.items.values()):
      log = f'{self.read_job()["workdir"]}/logs/host-0.log'
      self.write(log, f'{self.slept}\n')
    self.each(self.slept)

  def create(self, name, zone, body):
    if self.states:
      number = sum(e[0] == 'create' and e[2] == zone for e in self.history)
      self.script[zone, number] = self.states.pop(0)
    return super().create(name, zone, body)

  def read_job(self) -> dict[str, str]:
    body = [*self.items.values()][-1]['body']
    return fake_cloud.read_job(fake_cloud.read_metadata(body))

  def end(self, reason: str, detail: str = ''):
    """Writes why the launch of what was created last ends, as hosts do."""
    job = self.read_job()
    url = f'{job["workdir"]}/launch/{job["launch"]}/end'
    self.write(url, f'reason={reason}\nhost 0\n{detail}')

  @property
  def created(self) -> list[str]:
    return [zone for act, _, zone in self.history if act == 'create']

  def send(self, method, url, data, headers) -> Answer:
    code, head, body = self.answer(method, url, data, headers)
    return Answer(code, body, {k.lower(): v for k, v in head.items()})

  def run(self, argv, seconds=0) -> Result:
    self.argvs.append(argv)
    if 'queued-resources' not in argv:
      properties = {'core': {'project': self.project}}
      login = {'configuration': {'properties': properties}}
      login['credential'] = {'access_token': 't'}
      return Result(0, f'a newer version!\n{json.dumps(login)}')
    act, name = argv[argv.index('queued-resources') + 1 :][:2]
    flags = dict(word.partition('=')[::2] for word in argv)
    place = f'/v2/projects/p1/locations/{flags["--zone"]}/queuedResources'
    method, path, data = 'DELETE', f'{place}/{name}', None
    if act == 'create':
      labels = dict(x.split('=') for x in flags['--labels'].split(','))
      files = flags['--metadata-from-file'].removeprefix('^|^').split('|')
      files = (x.split('=', 1) for x in files)
      metadata = {key: pathlib.Path(path).read_text() for key, path in files}
      node = {'labels': labels, 'metadata': metadata}
      data = json.dumps({'tpu': {'nodeSpec': [{'node': node}]}}).encode()
      method, path = 'POST', f'{place}?queuedResourceId={name}'
    code, _, body = self.answer(method, path, data, {})
    return Result(0 if code == 200 else 1, err=body.decode())


def make_cloud(*states) -> Google:
  """Returns a cloud in which the last hosts that are asked for end the run."""
  cloud = Google(*states)
  cloud.on_active = lambda *_: cloud.states or cloud.end('done')
  return cloud


def make_old(*states: str) -> Google:
  """Returns a cloud with a queued resource of a run."""
  cloud = Google()
  add(cloud, 'old', *states)
  return cloud


def add(cloud, name, *states, zone=A, launch='j-1', workdir='gs://bkt/old'):
  """Adds a queued resource with our labels."""
  labels = {'bert-jax-run': name, 'bert-jax-launch': launch}
  job = f'name={name}\nlaunch={launch}\nworkdir={workdir}\n'
  job += 'topology=v5e:2x2\nslices=1\nsha256=s\n'
  node = {'labels': labels, 'metadata': {'bert-jax-job': job}}
  cloud.states.insert(0, states)
  body = {'tpu': {'nodeSpec': [{'node': node}]}}
  cloud.create(f'{name}-{launch[2:]}', zone, body)
