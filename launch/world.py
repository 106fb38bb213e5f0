"""How the launcher acts on the world: commands, requests to Google, and time.

Google's answers have codes, so that nothing is concluded from English, and its
lists name the zones that did not answer, which gcloud does not show.
"""

import contextlib
import dataclasses
import email.utils
import functools
import http.client
import json
import re
import ssl
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
_PASSING = (0, 408, 429, 500, 502, 503, 504)  # faults; 0 is no answer


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
  def now(self) -> float | None:
    """Returns the server's time, seconds since 1970; None if it tells none."""
    try:
      told = email.utils.parsedate_to_datetime(self.headers.get('date', ''))
      return told.timestamp()
    except (ValueError, OverflowError):
      return None


class Unknown(Exception):
  """What was asked for is not known, since there was no usable answer."""


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


# Reading the certificates takes longer than many requests.
_trust = functools.cache(lambda path: ssl.create_default_context(cafile=path))


def send(method: str, url: str, data, headers: dict, cafile=None) -> Answer:
  """Sends a request once; an answer that breaks off is none."""
  request = urllib_request.Request(url, data, headers, method=method)
  try:
    try:
      more = {'timeout': 60, 'context': _trust(cafile)}
      answer = urllib_request.urlopen(request, **more)
    except urllib_error.HTTPError as error:
      answer = error
    with answer:
      head = {key.lower(): value for key, value in answer.headers.items()}
      return Answer(answer.status, answer.read(), head)
  except (OSError, ValueError, http.client.HTTPException) as error:
    return Answer(0, (str(error) or repr(error)).encode())


@dataclasses.dataclass
class World:
  """How a launch acts on the world; replaced by stand-ins in tests."""

  run: Callable[..., Result] = execute
  send: Callable[..., Answer] = send
  # This machine's clock may be wrong: it measures waits, and nothing else.
  now: Callable[[], float] = time.time
  sleep: Callable[[float], None] = time.sleep
  period: float = 30.0  # seconds between two looks
  project: str = ''  # of all commands and requests
  login: dict = dataclasses.field(default_factory=dict)  # what gcloud said


def log_in(world: World):
  """Asks gcloud for a token and its settings; Unknown if it gives none."""
  argv = ['gcloud', 'config', 'config-helper', '--format=json']
  for pause in (2, 5, None):  # its token may be renewed at this second
    result = world.run([*argv, '--min-expiry=10m'])
    try:
      if result.code:
        raise Unknown(f'gcloud: {shorten(result.err)}')
      # Behind what else it has to say.
      told = _parse(result.out[max(0, result.out.find('{')) :], 'gcloud')
      with reading('gcloud'):
        told['credential']['access_token']  # checked before it is kept
        world.login = told
        return
    except Unknown:
      if pause is None:
        raise
      world.sleep(pause)


def read_setting(world: World, section: str, name: str) -> str | None:
  """Returns a setting of gcloud, such as core/project."""
  properties = world.login.get('configuration', {}).get('properties', {})
  return properties.get(section, {}).get(name)


def find_base(world: World, api: str) -> str:
  """Returns the URL of an API such as 'tpu', with a slash at its end."""
  own = read_setting(world, 'api_endpoint_overrides', api)
  own = own or f'https://{api}.googleapis.com/'
  return re.sub(r'(storage/)?v\d+/$', '', own)


def request(
  world: World, method, api, path, data=None, codes=(200,), **headers
) -> Answer:
  """Returns an answer that has one of the codes, or raises `Unknown`.

  It is sent with gcloud's login, and again while its fault may pass.
  """
  pauses, renewed = list(_PAUSES), False
  while True:
    if not world.login:
      log_in(world)
    token = world.login['credential']['access_token']
    head = {'Authorization': f'Bearer {token}', **headers}
    head['Content-Type'] = 'application/json'
    cafile = read_setting(world, 'core', 'custom_ca_certs_file')
    url = find_base(world, api) + path
    answer = world.send(method, url, data, head, cafile)
    if answer.code in codes:
      return answer
    if answer.code == 401 and not renewed:  # after an hour
      renewed, world.login = True, {}
    elif answer.code in _PASSING and pauses:
      world.sleep(pauses.pop(0))
    else:
      text = answer.data.decode(errors='replace')
      told = re.search(r'"message": *"((?:[^"\\]|\\.)*)"', text)
      text = ' '.join((told[1] if told else text).split())[:600]
      where = f'{api}: {path.partition("?")[0]}'
      raise Unknown(f'{where}: {answer.code or "no answer"}: {text}')


def ask(world: World, api: str, path: str, data=None, **query) -> Any:
  """Returns the JSON of an answer, to a POST of `data` if that is given."""
  path += f'?{parse.urlencode(query)}' if query else ''
  body = None if data is None else json.dumps(data).encode()
  answer = request(world, 'POST' if body else 'GET', api, path, body)
  return _parse(answer.data, f'{api}: {path.partition("?")[0]}')


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
