"""A stand-in for Google Cloud's TPU and Compute Engine APIs, on loopback.

The real gcloud talks to it. It keeps resources in memory and moves them through
their states when it is told to: `Cloud.script` maps (zone, number of the
request there) to a list of steps; each lists the resource once and then moves
on. Everything that was created and deleted is in `Cloud.history`.
"""

import contextlib
import http.server
import json
import re
import threading
import urllib.parse
import urllib.request

import emulator

_CAPACITY = 'There is no more capacity in the zone "{}"; try another zone.'
# What a request goes through if nothing else is scripted.
HAPPY = ('ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'ACTIVE')
_COMPUTE = '/compute/v1/projects/p1/'


class Cloud:
  """Resources and what happens to them.

  Attributes:
    script: {(zone, n-th request there, from 0): states in their order}. A state
      is 'FAILED: message', 'GONE' or one of the API; the last one stays.
    broken: HTTP codes to answer with, one per request, before anything else.
    history: ('create' or 'delete', kind, name, zone) in their order.
    refused: deletions in a state that cannot be deleted.
    on_active: called with (kind, name, zone, body) when hosts begin to run.
    on_gone: called with (kind, name, zone) when they end.
  """

  def __init__(self):
    self.script, self.broken = {}, []
    self.history, self.refused = [], []
    self.on_active = self.on_gone = lambda *_: None
    self.items: dict[tuple, dict] = {}
    self.most_alive = 0
    self._asked: dict[str, int] = {}
    self._lock = threading.RLock()

  def count(self, act: str, kind: str | None = None) -> int:
    """Returns how often something was created or deleted."""
    return sum(a == act and kind in (None, k) for a, k, _, _ in self.history)

  def create(self, kind: str, name: str, zone: str, body: dict) -> bool:
    """Adds a resource; returns False if there is one of that name."""
    with self._lock:
      if (kind, name, zone) in self.items:
        return False
      number = self._asked.get(zone, 0)
      self.history.append(('create', kind, name, zone))
      hosts = kind in ('queued', 'instances')
      states = ['ACTIVE']
      if hosts:
        self._asked[zone] = number + 1
        default = HAPPY if kind == 'queued' else ('STAGING', 'ACTIVE')
        states = list(self.script.get((zone, number), default))
      self.items[kind, name, zone] = {
        'body': body,
        'states': states,
        'running': False,
      }
      alive = [key for key in self.items if key[0] in ('queued', 'instances')]
      self.most_alive = max(self.most_alive, len(alive))
      return True

  def delete(self, kind: str, name: str, zone: str) -> bool:
    """Removes a resource; returns False if it may not be removed now."""
    with self._lock:
      item = self.items[kind, name, zone]
      if kind == 'queued' and item['states'][0] == 'PROVISIONING':
        self.refused.append((kind, name, zone))
        return False
      self.history.append(('delete', kind, name, zone))
      self._remove(kind, name, zone)
      return True

  def _remove(self, kind, name, zone):
    item = self.items.pop((kind, name, zone))
    if item['running']:
      threading.Thread(target=self.on_gone, args=(kind, name, zone)).start()

  def set_states(self, kind: str, name: str, *states: str):
    """Gives the only resource of a kind and name other states."""
    with self._lock:
      for (k, n, zone), item in list(self.items.items()):
        if (k, n) == (kind, name):
          item['states'] = list(states)
          if item['running'] and states[0] in ('SUSPENDED', 'GONE'):
            item['running'] = False
            self.on_gone(kind, name, zone)
          if states[0] == 'GONE':
            del self.items[k, n, zone]

  def list(self, kind: str) -> list[tuple[str, str, dict, str]]:
    """Returns (name, zone, body, state) and moves each one step on."""
    with self._lock:
      found = []
      for key, item in list(self.items.items()):
        if key[0] != kind:
          continue
        state = item['states'][0]
        if state == 'GONE':
          self._remove(*key)
          continue
        if state == 'ACTIVE' and kind in ('queued', 'instances'):
          if not item['running']:
            item['running'] = True
            self.on_active(*key, item['body'])
        found.append((key[1], key[2], item['body'], state))
        if len(item['states']) > 1:
          item['states'].pop(0)
      return found


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'

  def log_message(self, *_):
    """Says nothing."""

  def _answer(self, value, code=200):
    data = json.dumps(value).encode()
    self.send_response(code)
    self.send_header('Content-Type', 'application/json')
    self.send_header('Content-Length', str(len(data)))
    self.end_headers()
    self.wfile.write(data)

  def _fail(self, code, message):
    names = {403: 'PERMISSION_DENIED', 404: 'NOT_FOUND', 409: 'ALREADY_EXISTS'}
    names |= {429: 'RESOURCE_EXHAUSTED', 503: 'UNAVAILABLE'}
    status = names.get(code, 'FAILED_PRECONDITION')
    error = {'code': code, 'message': message, 'status': status}
    self._answer({'error': error}, code)

  def _handle(self):
    cloud = self.server.cloud
    size = int(self.headers.get('Content-Length') or 0)
    body = json.loads(self.rfile.read(size) or '{}') if size else {}
    if cloud.broken:
      code = cloud.broken.pop(0)
      return self._fail(code, f'the service answers {code} for now')
    url = urllib.parse.urlparse(self.path)
    if url.path.startswith('/compute/'):
      return _compute(self, cloud, url, body)
    return _tpu(self, cloud, url, body)

  do_GET = do_POST = do_DELETE = do_PATCH = _handle


def _operation(zone):
  name = f'projects/p1/locations/{zone}/operations/o'
  return {'name': name, 'done': True, 'response': {}}


def _tpu(handler, cloud, url, body):
  """Answers like the Cloud TPU API."""
  match = re.fullmatch(
    r'/v2(?:alpha1)?/projects/p1/locations/([^/]+)/(\w+)(?:/([\w-]+))?',
    url.path,
  )
  if not match:
    return handler._fail(404, f'not found: {url.path}')
  zone, kind, name = match.groups()
  if kind == 'operations':
    return handler._answer(_operation(zone))
  if kind == 'nodes':
    return handler._answer({'nodes': []})
  if handler.command == 'POST':
    name = urllib.parse.parse_qs(url.query)['queuedResourceId'][0]
    if not cloud.create('queued', name, zone, body):
      return handler._fail(409, f'{name} exists')
    return handler._answer(_operation(zone))
  if handler.command == 'DELETE':
    if ('queued', name, zone) not in cloud.items:
      return handler._fail(404, f'{name} not found')
    if not cloud.delete('queued', name, zone):
      return handler._fail(400, f'{name} is PROVISIONING: cannot be deleted')
    return handler._answer(_operation(zone))
  found = []
  for item, at, spec, text in cloud.list('queued'):
    state, _, message = text.partition(': ')
    shown = {'state': state}
    if state == 'FAILED':
      shown['failedData'] = {'error': {'code': 8, 'message': message}}
    full = f'projects/p1/locations/{at}/queuedResources/{item}'
    found.append({**spec, 'name': full, 'state': shown})
  return handler._answer({'queuedResources': found})


def _compute(handler, cloud, url, body):
  """Answers like the Compute Engine API."""
  image = re.fullmatch(
    r'/compute/\w+/(projects/[\w-]+/global/images)/family/([\w-]+)', url.path
  )
  if image:  # gcloud looks for it before it makes a template
    folder, family = image.groups()
    link = f'http://{handler.headers["Host"]}/compute/v1/{folder}/{family}-1'
    found = {'name': f'{family}-1', 'family': family, 'selfLink': link}
    return handler._answer({'kind': 'compute#image', **found})
  base = f'http://{handler.headers["Host"]}{_COMPUTE}'
  path = url.path[len(_COMPUTE) :]
  aggregated = path.startswith('aggregated/')
  if aggregated:
    kind = path.split('/')[1]
    grouped = {}
    for item in _show(cloud, kind, base):
      place = 'zones' if 'zone' in item else 'regions'
      where = item.get('zone') or item['region']
      key = f'{place}/{where.rpartition("/")[2]}'
      grouped.setdefault(key, {kind: []})[kind].append(item)
    return handler._answer({'kind': 'list', 'items': grouped})
  match = re.fullmatch(
    r'(?:(zones|regions)/([\w-]+)|global)/(\w+)(?:/([\w-]+)(?:/(\w+))?)?', path
  )
  if not match:
    return handler._fail(404, f'not found: {url.path}')
  scope, place, kind, name, verb = match.groups()
  if kind == 'operations':
    return handler._answer(_done(base, place, scope, 'done', ''))
  return _compute_item(
    handler, cloud, url, body, base, scope, place, kind, name, verb
  )


def _compute_item(
  handler, cloud, url, body, base, scope, place, kind, name, verb
):
  query = urllib.parse.parse_qs(url.query)
  if handler.command == 'POST' and verb == 'resize':
    group = cloud.items[kind, name, place]
    size = int(query['size'][0])
    group['body']['targetSize'] = size
    template = group['body']['instanceTemplate'].rpartition('/')[2]
    made = [
      item
      for (k, n, _), item in cloud.items.items()
      if (k, n) == ('instanceTemplates', template)
    ]
    for n in range(size):
      properties = {**made[0]['body']['properties'], 'name': f'{name}-{n}'}
      cloud.create('instances', f'{name}-{n}', place, properties)
    return handler._answer(_done(base, place, scope, 'resize', name))
  if handler.command == 'GET' and verb == 'listErrors':
    return handler._answer({'items': []})
  if handler.command == 'POST':
    states = cloud.script.get((place, cloud._asked.get(place, 0)), ())
    if kind == 'instances' and states and states[0].startswith('FAILED'):
      cloud.create(kind, body['name'], place, body)
      cloud.items.pop((kind, body['name'], place))
      message = states[0].partition(': ')[2]
      return handler._fail(400, message)
    if not cloud.create(kind, body['name'], place, body):
      return handler._fail(409, f'{body["name"]} already exists')
    return handler._answer(_done(base, place, scope, 'insert', body['name']))
  if name and (kind, name, place) not in cloud.items:
    return handler._fail(404, f'{name} was not found')
  if handler.command == 'DELETE':
    cloud.delete(kind, name, place)
    if kind == 'instanceGroupManagers':
      for key in list(cloud.items):
        if key[0] == 'instances' and key[1].startswith(f'{name}-'):
          cloud.delete(*key)
    return handler._answer(_done(base, place, scope, 'delete', name))
  items = _show(cloud, kind, base)
  if name:
    return handler._answer(next(i for i in items if i['name'] == name))
  return handler._answer({'kind': 'list', 'items': items})


def _done(base, place, scope, kind, name):
  where = f'{scope}/{place}' if scope else 'global'
  link = f'{base}{where}/operations/done'
  found = {
    'kind': 'compute#operation',
    'name': 'done',
    'status': 'DONE',
    'operationType': kind,
    'progress': 100,
    'selfLink': link,
    'targetLink': f'{base}{where}/instances/{name}',
  }
  if scope:
    found[scope[:-1]] = f'{base}{where}'
  return found


def _show(cloud, kind, base):
  """Returns the resources of a kind as the API shows them."""
  found = []
  for name, place, body, state in cloud.list(kind):
    zonal = kind in ('instances', 'instanceGroupManagers')
    where = f'{"zones" if zonal else "regions"}/{place}'
    item = {
      **body,
      'name': name,
      'selfLink': f'{base}{where}/{kind}/{name}',
      where.partition('/')[0][:-1]: f'{base}{where}',
    }
    if kind == 'instances':
      item['status'] = 'RUNNING' if state == 'ACTIVE' else state
      item.setdefault('machineType', 'x')
      item['metadata'] = {**item.get('metadata', {}), 'fingerprint': 'aaaa'}
      item['labelFingerprint'] = 'aaaa'
    if kind == 'instanceGroupManagers':
      item['fingerprint'] = 'aaaa'
      item['status'] = {'isStable': True}
      item['currentActions'] = {}
    found.append(item)
  return found


def start(cloud: Cloud) -> tuple[http.server.ThreadingHTTPServer, int]:
  """Serves on a free port of 127.0.0.1; returns (server, port)."""
  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Handler)
  server.daemon_threads = True
  server.cloud = cloud
  threading.Thread(target=server.serve_forever, daemon=True).start()
  return server, server.server_address[1]


def make_environment(port: int, bucket_port: int, folder: str) -> dict:
  """Returns the variables with which gcloud talks to the stand-ins."""
  here = 'http://127.0.0.1'
  return {
    'CLOUDSDK_AUTH_DISABLE_CREDENTIALS': 'true',
    'CLOUDSDK_CORE_PROJECT': 'p1',
    'CLOUDSDK_CONFIG': folder,
    'CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU': f'{here}:{port}/',
    'CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE': f'{here}:{port}/compute/v1/',
    'CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE': (
      f'{here}:{bucket_port}/storage/v1/'
    ),
    'CLOUDSDK_CORE_DISABLE_PROMPTS': '1',
    'CLOUDSDK_CORE_CHECK_GCE_METADATA': 'false',
    'CLOUDSDK_CORE_DISABLE_USAGE_REPORTING': 'true',
    'CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK': 'true',
  }


@contextlib.contextmanager
def serve_bucket():
  """Yields the port of an emulator, which keeps buckets in memory."""
  with emulator.running() as url:
    yield int(url.rpartition(':')[2])
