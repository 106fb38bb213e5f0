"""A stand-in for Google Cloud, in memory: the TPU API, a bucket, and roles.

Tests call `Cloud.answer`; on loopback, the real gcloud, launch/tpu.py and
launch/worker.sh talk to it. Resources move through their states when they are
listed. Everything that was created and deleted is in `Cloud.history`.
"""

import contextlib
import email.utils
import http.server
import json
import os
import pathlib
import re
import subprocess
import threading
import time
import urllib.parse

# What a request goes through if nothing else is scripted.
HAPPY = ('ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'ACTIVE')


class Cloud:
  """Resources and what happens to them.

  Attributes:
    script: {(zone, n-th request there, from 0): states in their order}. A state
      is 'FAILED: message', 'GONE' or one of the API; the last one stays.
    broken: HTTP codes to answer with, one per request, before anything else.
    refuse: called with (method, path); the HTTP code of a refusal, or 0.
    dark: zones that do not answer.
    places: zones that exist.
    history: ('create' or 'delete', name, zone) in their order.
    refused: deletions in a state that cannot be deleted.
    on_active, on_gone: called with (name, zone, body) when hosts begin to run,
      with (name, zone) when they end; rented: seconds in between.
    objects: {URL: (content, generation, time)} of the bucket.
    denied: {permission: state of access other than CAN_ACCESS}.
  """

  def __init__(self, now=time.time):
    self.script, self.broken, self.dark = {}, [], set()
    self.history, self.refused = [], []
    self.places = {'us-east5-b', 'europe-west4-b', 'z'}
    self.on_active = self.on_gone = lambda *_: None
    self.refuse = lambda method, path: 0
    self.items, self.objects, self.now = {}, {}, now
    self.denied, self.most_alive, self.rented = {}, 0, 0.0
    self._lock = threading.RLock()

  def create(self, name: str, zone: str, body: dict) -> bool:
    if (name, zone) in self.items:
      return False
    number = sum(e[0] == 'create' and e[2] == zone for e in self.history)
    self.history.append(('create', name, zone))
    states = list(self.script.get((zone, number), HAPPY))
    self.items[name, zone] = {'body': body, 'states': states, 'running': 0}
    self.most_alive = max(self.most_alive, len(self.items))
    return True

  def delete(self, name: str, zone: str) -> bool:
    if self.items[name, zone]['states'][0] == 'PROVISIONING':
      self.refused.append((name, zone))
      return False
    self.history.append(('delete', name, zone))
    self._end(self.items.pop((name, zone)), name, zone)
    return True

  def _end(self, item, *key):
    if item['running']:
      self.rented += self.now() - item['running']
      item['running'] = 0
      threading.Thread(target=self.on_gone, args=key).start()

  def set_states(self, *states: str):
    for item in self.items.values():
      item['states'] = list(states)

  def write(self, url: str, content: str | bytes):
    data = content.encode() if isinstance(content, str) else content
    generation = self.objects.get(url, (b'', 0, 0))[1] + 1
    self.objects[url] = data, generation, self.now()
    return generation

  def read(self, url: str) -> str:
    return self.objects[url][0].decode()

  def answer(self, method: str, url: str, data: bytes, headers: dict):
    """Returns (HTTP code, headers, content) for a request."""
    at, head = urllib.parse.urlparse(url), {}
    query = dict(urllib.parse.parse_qsl(at.query))
    with self._lock:
      code = self.broken.pop(0) if self.broken else self.refuse(method, url)
      if code:
        found = _fail(f'the service answers {code}')
      elif '/storage/v1/' in at.path:
        code, head, found = self._storage(method, at.path, query, data, headers)
      elif '/locations' in at.path:
        code, found = self._tpu(method, at.path, query, data)
      else:
        code, found = 200, self._check_access(data)
      head['Date'] = email.utils.formatdate(self.now(), usegmt=True)
      body = found if isinstance(found, bytes) else json.dumps(found).encode()
      return code, head, body

  def _storage(self, method, path, query, data, headers):
    bucket, _, name = re.search(r'/b/([^/]+)/(o/?)?(.*)', path).groups()
    url = f'gs://{bucket}/{urllib.parse.unquote(name)}'
    if method == 'POST':
      url = f'gs://{bucket}/{query["name"]}'
      wanted = query.get('ifGenerationMatch')
      if wanted not in (None, str(self.objects.get(url, ('', 0))[1])):
        return 412, {}, _fail('a condition was not met')
      return 200, {}, {'generation': str(self.write(url, data))}
    if not name:
      start = f'gs://{bucket}/{query["prefix"]}'
      found = [url for url in self.objects if url.startswith(start)]
      return 200, {}, {'items': [*map(self._describe, found)]}
    if url not in self.objects:
      return 404, {}, _fail('No such object')
    data, generation, _ = self.objects[url]
    first = headers.get('Range', 'bytes=0-')[6:-1]
    return 200, {'x-goog-generation': str(generation)}, data[int(first) :]

  def _describe(self, url):
    data, _, at = self.objects[url]
    when = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(at))
    return {'name': url.split('/', 3)[3], 'size': len(data), 'updated': when}

  def _check_access(self, data):
    if not data:
      return {'projectNumber': '7'}
    asked = json.loads(data)['accessTuple']
    return {
      'overallAccessState': self.denied.get(asked['permission'], 'CAN_ACCESS')
    }

  def _tpu(self, method, path, query, data):
    zone, kind, name = (*path.partition('/locations/')[2].split('/'), '')[:3]
    done = {'name': f'projects/p1/locations/{zone}/operations/o', 'done': True}
    if zone not in ('-', *self.places):
      return 403, _fail(f'Location {zone} is not found or is unauthorized.')
    if kind == 'operations':
      return 200, done | {'response': {}}
    if method == 'POST':
      name = query.get('queuedResourceId') or query['queued_resource_id']
      made = self.create(name, zone, json.loads(data))
      return (200, done) if made else (409, _fail(f'{name} already exists'))
    if method == 'DELETE':
      if (name, zone) not in self.items:
        return 404, _fail(f'{name} not found')
      gone = self.delete(name, zone)
      return (200, done) if gone else (400, _fail('it is PROVISIONING'))
    if zone in self.dark:
      return 503, _fail('the zone does not answer')
    found = [x for key in list(self.items) for x in self._list(*key, zone)]
    dark = [f'projects/p1/locations/{x}' for x in self.dark if zone == '-']
    return 200, {'queuedResources': found, 'unreachable': dark}

  def _list(self, name, zone, asked):
    """Yields a resource as the API shows it, and moves it one step on."""
    item = self.items[name, zone]
    if zone in self.dark or asked not in ('-', zone):
      return
    state, _, message = item['states'][0].partition(': ')
    if state in ('GONE', 'SUSPENDED'):
      self._end(item, name, zone)
    if state == 'GONE':
      del self.items[name, zone]
      return
    if state == 'ACTIVE' and not item['running']:
      self.on_active(name, zone, item['body'])
      item['running'] = self.now()
    if len(item['states']) > 1:
      item['states'].pop(0)
    shown = {'state': state, 'failedData': {'error': {'message': message}}}
    full = f'projects/p1/locations/{zone}/queuedResources/{name}'
    yield {'name': full, 'state': shown, 'tpu': item['body']['tpu']}


def _fail(message):
  return {'error': {'message': message}}


def read_metadata(body: dict) -> dict[str, str]:
  return body['tpu']['nodeSpec'][0]['node']['metadata']


def read_job(metadata: dict[str, str]) -> dict[str, str]:
  lines = metadata['bert-jax-job'].splitlines()
  return {key: value for key, _, value in (x.partition('=') for x in lines)}


@contextlib.contextmanager
def serve(answer):
  """Yields the port of a server that asks `answer`, as `Cloud.answer` is."""

  class Handler(http.server.BaseHTTPRequestHandler):
    log_message = staticmethod(lambda *_: None)

    def handle_one(self):
      size = int(self.headers.get('Content-Length') or 0)
      data = self.rfile.read(size)
      code, head, body = answer(self.command, self.path, data, self.headers)
      self.send_response_only(code)
      head |= {'Content-Type': 'application/json', 'Content-Length': len(body)}
      for key, value in head.items():
        self.send_header(key, value)
      self.end_headers()
      with contextlib.suppress(OSError):
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = handle_one

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  server.daemon_threads = True
  threading.Thread(target=server.serve_forever, args=(0.02,)).start()
  try:
    yield server.server_address[1]
  finally:
    server.shutdown()
    server.server_close()


def _serve_metadata(metadata):
  """Serves the metadata of a host; no text is 503, and what is not there 404."""

  def answer(method, path, data, headers):
    name = path.rpartition('/')[2]
    if name == 'token':
      return 200, {}, b'{"access_token": "t", "expires_in": 9}'
    found = metadata.get(name)
    code = 404 if found is None else 200 if found else 503
    return code, {}, (found or '').encode()

  return serve(answer)


def start_host(stack, home: str, environment, metadata, program: str):
  """Runs a host's startup script in a folder of its own, until it ends.

  The process has its `metadata`, which may be changed. With a program, the code
  counts as installed, and the program as its Python.
  """
  code = pathlib.Path(home, 'r', read_job(metadata)['sha256'])
  unit = pathlib.Path(home, 'bin/systemd-run')  # notes what it is to start
  unit.parent.mkdir(parents=True)
  unit.write_text('#!/bin/bash\necho "$*" >>"$HOME/units"\n')
  unit.chmod(0o755)
  for path in (code / 'env/bin', code / 'tree') if program else [code.parent]:
    path.mkdir(parents=True)
  if program:
    (code / 'ready').touch()
    (code / 'env/bin/python').write_text(f'#!/bin/bash\n{program}')
    (code / 'env/bin/python').chmod(0o755)
  port = stack.enter_context(_serve_metadata(metadata))
  own = {'HOME': home, 'BERT_JAX_HOME': home}
  own['GCE_METADATA_HOST'] = f'127.0.0.1:{port}'
  path = environment.get('PATH', os.environ['PATH'])
  own['PATH'] = f'{home}/bin:{path}'
  argv = ['bash', '-c', metadata['startup-script']]
  own = {**os.environ, **environment, **own}
  with open(f'{home}/console', 'w') as out:
    more = {'cwd': home, 'env': own, 'start_new_session': True}
    process = subprocess.Popen(argv, stdout=out, stderr=out, **more)
  process.metadata = metadata
  return process


def make_environment(port: int, folder: str) -> dict[str, str]:
  """Returns the variables by which gcloud finds the stand-in, and a folder."""
  pathlib.Path(folder, 'token').write_text('t')
  here = f'http://127.0.0.1:{port}'
  settings = {
    f'API_ENDPOINT_OVERRIDES_{api}': f'{here}/'
    for api in ('TPU', 'CLOUDRESOURCEMANAGER', 'POLICYTROUBLESHOOTER')
  }
  settings |= {
    'API_ENDPOINT_OVERRIDES_STORAGE': f'{here}/storage/v1/',
    'AUTH_ACCESS_TOKEN_FILE': f'{folder}/token',
    'CONFIG': f'{folder}/gcloud',
    'CORE_CHECK_GCE_METADATA': 'false',
    'CORE_DISABLE_PROMPTS': '1',
    'CORE_DISABLE_USAGE_REPORTING': 'true',
    'CORE_PROJECT': 'p1',
    'COMPONENT_MANAGER_DISABLE_UPDATE_CHECK': 'true',
  }
  return {f'CLOUDSDK_{key}': value for key, value in settings.items()}
