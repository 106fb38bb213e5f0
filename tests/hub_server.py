"""A stand-in for the HTTP interface of the Hugging Face hub, on this machine."""

import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator

# (id or type/id, revision, path) of a request.
_ASKED = re.compile(
  r'/api/(?P<id>(?:datasets|models)/[^/]+/[^/]+)'
  r'(?:/(?P<what>revision|tree|paths-info)/(?P<revision>[^/]+)(?:/(?P<path>.*))?)?'
)
_FILE = re.compile(
  r'/(?P<id>(?:datasets/)?[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)'
)


class Hub:
  """Repositories such as datasets/OWNER/NAME, and what goes wrong with them."""

  def __init__(self):
    self.revisions: dict[str, dict[str, str]] = {}  # of each repository
    self.commits: dict[str, dict[str, bytes]] = {}  # {commit: {path: content}}
    self.asked: list[str] = []  # methods and paths
    self.token = ''  # that requests need, if any
    # What to do in the place of an answer, (request) -> whether it did something.
    self.fault: Callable[[http.server.BaseHTTPRequestHandler], bool] = (
      lambda request: False
    )

  def commit(self, repository: str, files: dict[str, bytes]) -> str:
    """Makes the content of a repository's branch main; returns its commit."""
    commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
    self.commits[commit] = files
    self.revisions.setdefault(repository, {})['main'] = commit
    return commit

  def answer(self, request):
    """Answers a request as the hub does."""
    url = urllib.parse.urlsplit(request.path)
    self.asked.append(f'{request.command} {url.path}')
    if self.fault(request):
      return
    if url.path.startswith('/cdn/'):
      return _send_part(request, self.commits[url.path.split('/')[2]])
    match = _ASKED.fullmatch(url.path) or _FILE.fullmatch(url.path)
    if not match:
      return send(request, b'{}')
    fields = {
      k: urllib.parse.unquote(x or '') for k, x in match.groupdict().items()
    }
    repository = fields['id']
    if match.re is _FILE and not repository.startswith('datasets/'):
      repository = f'models/{repository}'
    if (
      self.token and request.headers['Authorization'] != f'Bearer {self.token}'
    ):
      return send(request, b'', 401, X_Error_Code='GatedRepo')
    if repository not in self.revisions:
      return send(request, b'', 404, X_Error_Code='RepoNotFound')
    revision = fields['revision'] or 'main'
    commit = self.revisions[repository].get(revision, revision)
    if commit not in self.commits:
      return send(request, b'', 404, X_Error_Code='RevisionNotFound')
    files = self.commits[commit]
    if match.re is _FILE:
      return _redirect(request, commit, files, fields['path'])
    if not fields.get('what') or fields['what'] == 'revision':
      names = [{'rfilename': x} for x in files]
      name = repository.partition('/')[2]
      return send(request, {'id': name, 'sha': commit, 'siblings': names})
    below = fields['path'] and f'{fields["path"].rstrip("/")}/'
    deep = 'recursive=True' in url.query or 'recursive=true' in url.query
    wanted = None
    if fields['what'] == 'paths-info':
      size = int(request.headers['Content-Length'])
      form = urllib.parse.parse_qs(request.rfile.read(size).decode())
      wanted = form['paths']
    entries = list(_list(files, below, deep or wanted is not None))
    if wanted is not None:
      entries = [x for x in entries if x['path'] in wanted]
    elif not entries:
      return send(request, b'', 404, X_Error_Code='EntryNotFound')
    return send(request, entries)


def _list(files, below, deep) -> Iterator[dict]:
  """Yields the entries of a folder."""
  folders = set()
  for path, content in sorted(files.items()):
    if not path.startswith(below):
      continue
    *parents, _ = path.removeprefix(below).split('/')
    for n in range(1, len(parents) + 1 if deep else min(len(parents), 1) + 1):
      folder = below + '/'.join(parents[:n])
      if folder not in folders:
        folders.add(folder)
        yield {
          'type': 'directory',
          'path': folder,
          'oid': _hash(folder.encode()),
        }
    if deep or not parents:
      oid = _hash(content)
      yield {'type': 'file', 'path': path, 'size': len(content), 'oid': oid}


def _hash(content: bytes) -> str:
  return hashlib.sha1(content).hexdigest()


def _redirect(request, commit, files, path):
  if path not in files:
    return send(request, b'', 404, X_Error_Code='EntryNotFound')
  port = request.server.server_address[1]  # large files are on another host
  send(
    request,
    b'',
    302,
    Location=f'http://localhost:{port}/cdn/{commit}/{urllib.parse.quote(path)}',
    X_Repo_Commit=commit,
    X_Linked_Size=str(len(files[path])),
    X_Linked_Etag=f'"{_hash(files[path])}"',
    ETag=f'"{_hash(files[path])}"',
  )


def _send_part(request, files):
  content = files[urllib.parse.unquote(request.path.split('/', 3)[3])]
  code, more = 200, {'ETag': f'"{_hash(content)}"', 'Accept_Ranges': 'bytes'}
  if match := re.fullmatch(
    r'bytes=(\d+)-(\d*)', request.headers['Range'] or ''
  ):
    begin = int(match[1])
    end = min(int(match[2] or len(content)) + 1, len(content))
    more['Content_Range'] = f'bytes {begin}-{end - 1}/{len(content)}'
    code, content = 206, content[begin:end]
  send(request, content, code, **more)


def send(request, body, code=200, **headers):
  if not isinstance(body, bytes):
    body = json.dumps(body).encode()
  request.send_response(code)
  for name, value in headers.items():
    request.send_header(name.replace('_', '-'), value)
  request.send_header('Content-Length', str(len(body)))
  request.end_headers()
  if request.command != 'HEAD':
    request.wfile.write(body)


@contextlib.contextmanager
def running() -> Iterator[tuple[Hub, str]]:
  """Yields an empty hub and its address, for HF_ENDPOINT."""
  hub = Hub()

  class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
      pass

    def do_GET(self):
      hub.answer(self)

    do_HEAD = do_POST = do_GET

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  try:
    yield hub, f'http://127.0.0.1:{server.server_address[1]}'
  finally:
    server.shutdown()
    server.server_close()
