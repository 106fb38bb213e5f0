"""A stand-in for gcloud: queued resources and a bucket in memory."""

import fnmatch
import json

from launch import commands, resource
from launch.world import World

START = 1_790_000_000.0


class Gcloud:
  """Runs argument lists on what is in memory.

  Attributes:
    states: the states that each request goes through, one list per request, in
      their order; the last one stays. 'FAILED: message' is a failure.
    objects: {URL: (text, generation)} of the bucket.
    queue: {(name, zone): states that are still to come}.
    argvs: every command that was run.
    errors: messages with which the next commands fail, before anything else.
    project: the project that gcloud itself would use.
  """

  def __init__(self, *states):
    self.states = list(states)
    self.objects, self.queue, self.jobs = {}, {}, {}
    self.argvs, self.errors, self.created = [], [], []
    self.now, self.on_active = START, lambda: None
    self.project = 'p1'

  def world(self, period: float = 30.0) -> World:
    """Returns a world whose time passes only while it sleeps."""
    return World(self.run, lambda: self.now, self.sleep, period)

  def sleep(self, seconds: float):
    self.now += seconds

  def run(self, argv, seconds=0):
    """Does what gcloud would do."""
    self.argvs.append(argv)
    if self.errors:
      return commands.Result(1, err=self.errors.pop(0))
    if argv[:2] == ['gcloud', 'storage']:
      return self._storage(argv[2:])
    if argv[:4] == ['gcloud', 'compute', 'tpus', 'queued-resources']:
      return self._queued(argv[4:])
    if argv[:3] == ['gcloud', 'config', 'get']:
      return commands.Result(0, f'{self.project}\n')
    if argv[-2:-1] == ['list'] or '--format=json' in argv:
      return commands.Result(0, '[]')
    return commands.Result(0)

  def write(self, url, text):
    """Writes an object."""
    generation = str(int(self.objects.get(url, ('', '0'))[1]) + 1)
    self.objects[url] = text, generation
    return generation

  def _storage(self, argv):
    urls = [word for word in argv if word.startswith('gs://')]
    flags = dict(word.partition('=')[::2] for word in argv if '=' in word)
    if argv[0] == 'cp':
      wanted = flags.get('--if-generation-match')
      if wanted not in (None, self.objects.get(urls[0], ('', '0'))[1]):
        return commands.Result(1, err='HTTPError 412: Precondition failed')
      source, _ = (word for word in argv[1:] if not word.startswith('-'))
      with open(source, encoding='utf-8', errors='replace') as file:
        generation = self.write(urls[0], file.read())
      return commands.Result(0, err=f'Created: {urls[0]}#{generation}')
    found = [
      url
      for url in sorted(self.objects)
      if any(fnmatch.fnmatch(url, pattern) for pattern in urls)
    ]
    if argv[0] == 'cat':
      if not found:
        return commands.Result(1, err='The following URLs matched no objects')
      first = int(flags.get('--range', '0-').rstrip('-'))
      return commands.Result(0, self.objects[found[0]][0][first:])
    described = [self._describe(url) for url in found]
    if argv[:2] == ['objects', 'list']:
      return commands.Result(0, json.dumps(described))
    if not found:
      return commands.Result(1, err=f'{urls[0]} not found: 404.')
    return commands.Result(0, json.dumps(described[0]))

  def _describe(self, url):
    text, generation = self.objects[url]
    _, _, bucket, name = url.split('/', 3)
    return {
      'bucket': bucket,
      'name': name,
      'size': len(text),
      'generation': generation,
      'update_time': '2026-11-22T11:11:01+0000',
    }

  def _queued(self, argv):
    if argv[0] == 'list':
      return commands.Result(0, json.dumps(self._list()))
    zone = next(w for w in argv if w.startswith('--zone=')).partition('=')[2]
    key = argv[1], zone
    if argv[0] == 'create':
      assert key not in self.queue and not self.queue, 'two at a time'
      files = next(w for w in argv if w.startswith('--metadata-from-file='))
      path = files.rpartition('=')[2]
      with open(path, encoding='utf-8') as file:
        self.jobs[key] = file.read()
      self.queue[key] = list(self.states.pop(0))
      self.created.append(zone)
      return commands.Result(0)
    assert self.queue[key][0] != 'PROVISIONING', 'cannot be deleted'
    del self.queue[key]
    return commands.Result(0)

  def _list(self):
    found = []
    for (name, zone), states in list(self.queue.items()):
      state, _, message = states[0].partition(': ')
      labels = {resource.LABEL: name}
      metadata = {resource.JOB: self.jobs[name, zone]}
      node = {'labels': labels, 'metadata': metadata}
      found.append(
        {
          'name': f'projects/p1/locations/{zone}/queuedResources/{name}',
          'tpu': {'nodeSpec': [{'node': node}]},
          'state': {
            'state': state,
            'failedData': {'error': {'message': message}},
          },
        }
      )
      if state == 'ACTIVE':
        self.on_active()
      if len(states) > 1:
        states.pop(0)
      if states[0] == 'GONE':
        del self.queue[name, zone]
    return found

  def end(self, reason, detail=''):
    """Writes why the launch ends, as a host does."""
    text = [*self.jobs.values()][-1]
    fields = dict(line.partition('=')[::2] for line in text.splitlines())
    url = f'{fields["workdir"]}/launch/{fields["job"]}/end'
    self.write(url, f'reason={reason}\n{detail}')


class Groups(Gcloud):
  """Compute Engine that refuses groups, with the policies they are made of.

  Attributes:
    refusals: with what it refuses, one after the other; the last one stays.
    refused: which command it refuses, 'create' or 'resize'.
    policies: names of those there are.
    groups: names of those there are, without hosts.
  """

  def __init__(self, *refusals: str, refused: str = 'create'):
    super().__init__()
    self.refusals, self.refused = list(refusals), refused
    self.policies, self.groups = [], []

  def run(self, argv, seconds=0):
    """Does what gcloud would do."""
    if 'managed' in argv:
      self.argvs.append(argv)
      return self._run_group(argv[argv.index('managed') + 1 :])
    if argv[:3] != ['gcloud', 'compute', 'resource-policies']:
      return super().run(argv, seconds)
    self.argvs.append(argv)
    if argv[3] == 'create':
      self.policies.append(argv[5])
    elif argv[3] == 'delete':
      self.policies.remove(argv[4])
    else:
      return commands.Result(0, json.dumps([*map(self._policy, self.policies)]))
    return commands.Result(0)

  def _run_group(self, argv):
    if argv[0] == self.refused:
      rest = self.refusals[1:]
      refusal, self.refusals = self.refusals[0], rest or self.refusals
      return commands.Result(1, err=refusal)
    if argv[0] == 'create':
      self.groups.append(argv[1])
    elif argv[0] == 'delete':
      self.groups.remove(argv[1])
    elif argv[0] == 'list':
      return commands.Result(0, json.dumps([*map(self._group, self.groups)]))
    return commands.Result(0, '[]')

  def _policy(self, name):
    described = f'{resource.LABEL}={name}'
    return {'name': name, 'region': 'us-east5', 'description': described}

  def _group(self, name):
    described = f'{resource.LABEL}={name}'
    group = {'name': name, 'zone': 'us-east5-b', 'description': described}
    return {**group, 'targetSize': 0}
