"""How the launcher acts on the world: commands, requests to Google, and time.

Google's answers have codes and name silent zones, which gcloud does not show.
"""

import contextlib
import dataclasses
import datetime
import email.utils
import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib import error as urllib_error
from urllib import parse
from urllib import request as urllib_request

from bert_jax import errors

_PAUSES = (2, 5, 10, 20)  # seconds between the tries of a request
_ODD = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_PASSING = (0, 401, 408, 429, 500, 502, 503, 504)  # faults; 0 is no answer


class Result(NamedTuple):
  """What a command did."""

  code: int  # 124 if it took too long
  out: str = ''
  err: str = ''


class Answer(NamedTuple):
  """What a server answered."""

  code: int  # HTTP status; 0 if there was no answer
  data: bytes = b''
  headers: dict[str, str] = {}  # names in lower case

  @property
  def now(self) -> float:
    """Returns the server's time, seconds since 1970."""
    with reading('a Date'):
      told = email.utils.parsedate_to_datetime(self.headers['date'])
      return told.timestamp()

  @property
  def text(self) -> str | None:
    """Returns the text of an object; None if there is none."""
    return None if self.code == 404 else self.data.decode(errors='replace')

  @property
  def generation(self) -> str:
    """Returns what changes with each write of an object; '0' of none."""
    with reading('a generation'):
      return '0' if self.code == 404 else self.headers['x-goog-generation']


class Unknown(Exception):
  """What was asked for is not known, since there was no usable answer."""


class Changed(Unknown):
  """An object is no longer the one that was read: another command wrote it."""


def execute(argv: list[str], seconds: int = 900) -> Result:
  """Runs a command and waits for it; no shell reads its arguments."""
  more = {'stdin': subprocess.DEVNULL, 'timeout': seconds, 'errors': 'replace'}
  try:
    done = subprocess.run(argv, capture_output=True, **more)
  except subprocess.TimeoutExpired:
    return Result(124, err=f'timed out after {seconds} s')
  except OSError as error:  # it is not installed, or there is no memory
    return Result(126, err=f'{argv[0]}: {error}')
  return Result(done.returncode, done.stdout, done.stderr)


def send(method: str, url: str, data, headers: dict) -> Answer:
  """Sends a request once; an answer that breaks off is none."""
  request = urllib_request.Request(url, data, headers, method=method)
  try:
    try:
      answer = urllib_request.urlopen(request, timeout=60)
    except urllib_error.HTTPError as error:
      answer = error
    with answer:
      head = {key.lower(): value for key, value in answer.headers.items()}
      return Answer(answer.status, answer.read(), head)
  except (OSError, ValueError, http.client.HTTPException) as error:
    return Answer(0, (str(error) or repr(error)).encode())


def _parse(text: str | bytes, where: str) -> dict[str, Any]:
  with reading(where):
    told = {**json.loads(text)}  # an empty list is no object
    if 'error' in told:  # whatever the code says
      raise LookupError(told['error'])
    return told


@contextlib.contextmanager
def reading(where: str):
  """Turns what an answer of an unforeseen form raises into `Unknown`."""
  try:
    yield
  except _ODD as error:
    raise Unknown(f'{where}: an odd answer: {error!r:.200}') from error


def _split(url) -> tuple[str, str]:
  bucket, _, name = url.removeprefix('gs://').partition('/')
  return f'storage/v1/b/{bucket}/o', name


def shorten(message: str) -> str:
  """Returns what a command says of its failure as one line."""
  lines = [x for x in message.splitlines() if x and not x.startswith('WARNING')]
  # More than four lines of gcloud's advice may follow what went wrong.
  first = [i for i, x in enumerate(lines) if x.startswith('ERROR')] or [-4]
  return ' '.join(' '.join(lines[first[0] :]).split())[:600] or 'no message'


def say(line: str, file=None):
  """Prints a line at once, without control characters."""
  print(errors.escape(line), file=file or sys.stdout, flush=True)


def warn(line: str):
  """Prints a line on standard error."""
  say(line, sys.stderr)


@dataclasses.dataclass
class World:
  """How a launch acts on the world; replaced by stand-ins in tests."""

  run: Callable[..., Result] = execute
  send: Callable[..., Answer] = send
  sleep: Callable[[float], None] = time.sleep
  period: float = 30.0  # seconds between two looks
  project: str = ''  # of all commands and requests
  login: dict = dataclasses.field(default_factory=dict)  # what gcloud said

  def log_in(self):
    """Asks gcloud for a token and its settings; Unknown if it gives none."""
    argv = ['gcloud', 'config', 'config-helper', '--format=json']
    result = self.run([*argv, '--min-expiry=10m'])
    if result.code:
      raise Unknown(f'gcloud: {shorten(result.err)}')
    with reading('gcloud'):
      # Behind what else it has to say.
      told = json.loads(result.out[result.out.index('{') :])
      told['credential']['access_token']  # checked before it is kept
      self.login = told

  def choose_project(self):
    """Works in gcloud's project, unless one was chosen."""
    if not self.project:
      self.log_in()
      self.project = self.read_setting('core', 'project') or ''
      if not self.project:
        raise errors.UserError('no project: gcloud config set project NAME')
      say(f'project {self.project}')

  def read_setting(self, section: str, name: str) -> str | None:
    """Returns a setting of gcloud, such as core/project."""
    properties = self.login.get('configuration', {}).get('properties', {})
    return properties.get(section, {}).get(name)

  def find_base(self, api: str) -> str:
    """Returns the URL of an API such as 'tpu', with a slash at its end."""
    own = self.read_setting('api_endpoint_overrides', api)
    own = own or f'https://{api}.googleapis.com/'
    return re.sub(r'(storage/)?v\d+/$', '', own)

  def request(self, method, api, path, data, codes=(200,), **headers) -> Answer:
    """Returns an answer with one of the codes, or raises `Unknown`, after tries."""
    for pause in (*_PAUSES, None):
      if not self.login:
        self.log_in()
      token = self.login['credential']['access_token']
      head = {'Authorization': f'Bearer {token}', **headers}
      head['Content-Type'] = 'application/json'
      answer = self.send(method, self.find_base(api) + path, data, head)
      if answer.code in codes:
        return answer
      if answer.code == 401:  # the token is an hour old
        self.login = {}
      if answer.code not in _PASSING or pause is None:
        break
      self.sleep(pause)
    text = answer.data.decode(errors='replace')
    told = re.search(r'"message": *"((?:[^"\\]|\\.)*)"', text)
    text = ' '.join((told[1] if told else text).split())[:600]
    text = f'{answer.code or "no answer"}: {text}'
    raise Unknown(f'{api}: {path.partition("?")[0]}: {text}')

  def ask(self, api: str, path: str, data=None, **query) -> Any:
    """Returns the JSON of an answer, to a POST of `data` if that is given."""
    path += f'?{parse.urlencode(query)}' if query else ''
    body = None if data is None else json.dumps(data).encode()
    answer = self.request('POST' if body else 'GET', api, path, body)
    return _parse(answer.data, f'{api}: {path.partition("?")[0]}')

  def read(self, url: str, first: int = 0) -> Answer:
    """Returns an object `gs://...` from a byte on, or 404."""
    folder, name = _split(url)
    path = f'{folder}/{parse.quote(name, safe="")}?alt=media'
    head = {'Range': f'bytes={first}-'} if first else {}
    codes = (200, 206, 404)
    answer = self.request('GET', 'storage', path, None, codes, **head)
    _ = answer.generation  # a page to log in has none, and is Unknown
    return answer

  def write(self, url: str, data: bytes, generation='') -> str:
    """Writes an object, and returns its generation.

    `Changed` is raised if it has another than a given one ('0': it is new).
    """
    folder, name = _split(url)
    query = {'uploadType': 'media', 'name': name}
    if generation:
      query['ifGenerationMatch'] = generation
    path = f'upload/{folder}?{parse.urlencode(query)}'
    answer = self.request('POST', 'storage', path, data, (200, 412))
    if answer.code == 412:
      raise Changed(f'{url} was written by another command meanwhile')
    return str(_parse(answer.data, url)['generation'])

  def list_folder(self, url: str) -> list[tuple[str, int, float]]:
    """Returns (URL, bytes, time of writing) of a folder's first 1,000 objects."""
    path, name = _split(f'{url}/')
    page, objects = self.ask('storage', path, prefix=name), []
    with reading(url):
      for item in page.get('items', []):
        at = datetime.datetime.fromisoformat(item['updated']).timestamp()
        full = f'{url}/{item["name"].removeprefix(name)}'
        objects.append((full, int(item['size']), at))
    return sorted(objects)
