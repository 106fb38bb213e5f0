"""Answers that break off or are none: on real sockets, in whole launches."""

import contextlib
import json
import socket
import struct
import threading

import pytest

from launch import queued, tpu, world
from launch.world import Answer, Result
from tests.launch.fakes import HAPPY, RUN, A, make_cloud, make_old

OK = 'HTTP/1.1 200 OK\r\n'
LOST = (*HAPPY, *['ACTIVE'] * 20, 'SUSPENDED')


def _page(text):
  return f'{OK}Content-Length: {len(text)}\r\n\r\n{text}'


def _list(item):
  return _page(json.dumps({'queuedResources': [item], 'items': [item]}))


NAME = f'projects/p1/locations/{A}/queuedResources/r-1'
# What a server sends; then it closes the connection, or resets it ('!').
FAULTS = {
  'nothing': '',
  'reset': '!',
  'half a header': f'{OK}Content-Le',
  'no HTTP': '\x16\x03\x01\x02 what\r\n\r\n',
  'a header that never ends': f'{OK}X: {"x" * 70_000}\r\n\r\n',
  'a body that is cut': f'{OK}Content-Length: 99\r\n\r\n{{}}',
  'a body that is reset': f'{OK}Content-Length: 99\r\n\r\n{{}}!',
  'a chunk that is cut': f'{OK}Transfer-Encoding: chunked\r\n\r\n9\r\n{{}}',
  'no chunk': f'{OK}Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n',
  '500, cut': 'HTTP/1.1 500 No\r\nContent-Length: 99\r\n\r\n{',
  'an error page': 'HTTP/1.1 502 No\r\nContent-Length: 3\r\n\r\n<a>',
  'a page to log in': _page('<html>Welcome to our hotel!</html>'),
  'no object': _page('[7]'),
  'an empty list': _page('[]'),
  'an error with 200': _page('{"error": {"code": 503}}'),
  'very deep': _page('[' * 100_000),
  'an item without a name': _list({'state': {'state': 'ACTIVE'}}),
  'an item of another form': _list({'name': NAME, 'tpu': 7, 'state': 'x'}),
}


@contextlib.contextmanager
def serve(text: str):
  """Yields the URL of a server that answers all requests with a text."""
  listener = socket.create_server(('127.0.0.1', 0))

  def answer():
    with contextlib.suppress(OSError):
      while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
          connection.recv(65536)
          connection.sendall(text.rstrip('!').encode())
          if text.endswith('!'):  # closing resets
            linger = struct.pack('ii', 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

  thread = threading.Thread(target=answer, daemon=True)
  thread.start()
  yield f'http://127.0.0.1:{listener.getsockname()[1]}/'
  listener.shutdown(socket.SHUT_RDWR)
  thread.join()
  listener.close()


@pytest.mark.parametrize('fault', FAULTS)
def test_broken_answer_is_no_answer(fault):
  with serve(FAULTS[fault]) as url:
    properties = {'api_endpoint_overrides': {'tpu': url}}
    login = {'configuration': {'properties': properties}}
    login['credential'] = {'access_token': 't'}
    here = world.World(login=login, project='p1', sleep=lambda seconds: None)
    found, silent = queued.find(here, [A])
  assert not found and [*silent] == [A]


def _break(cloud, here, breaks):
  """Lets a function of their number break answers of a cloud."""
  count = iter(range(10**9))

  def send(method, url, *rest):
    # A write may have been done when its answer breaks.
    answer = cloud.send(method, url, *rest)
    return breaks(next(count), answer)

  here.send = send
  return here


@pytest.mark.parametrize('fault', FAULTS)
def test_launch_outlives_every_broken_answer(fault):
  """Every 23rd one; one set of hosts is taken away meanwhile."""
  cloud = make_cloud(LOST, HAPPY)
  with serve(FAULTS[fault]) as url:

    def breaks(number, answer):
      if not cloud.created or number % 23:
        return answer
      return world.send('GET', url, None, {})

    assert tpu.main(RUN, _break(cloud, cloud.world(), breaks)) == 0
  assert cloud.created == [A, A] and not cloud.items


ODD = {'date': 'once'}, {'date': ''}, {}
LOGINS = [Result(1, err='ERROR: no DNS'), Result(124), Result(0, 'no JSON')]
LOGINS += [Result(0, '{}'), Result(0, '[]')]


@pytest.mark.parametrize('head', ODD)
def test_answer_without_a_time_is_waited_for(head, capsys):
  cloud, more = make_cloud(LOST, HAPPY), {'x-goog-generation': '1'}

  def breaks(number, answer):
    odd = cloud.created and number % 23 == 0
    return Answer(answer.code, answer.data, head | more) if odd else answer

  assert tpu.main(RUN, _break(cloud, cloud.world(), breaks)) == 0
  assert cloud.created == [A, A] and not cloud.items
  # An answer without a time is not of 1970: 56 years of rent.
  assert 'rent      0.' in capsys.readouterr().out


@pytest.mark.parametrize('login', LOGINS)
def test_login_that_fails_once_ends_nothing(login):
  cloud = make_cloud(LOST, HAPPY)
  here, failed = cloud.world(), []

  def run(argv, **_):
    if 'config-helper' not in argv or not cloud.created or len(failed) > 9:
      return cloud.run(argv)
    failed.append(argv)
    return login

  here.run = run
  cloud.each = lambda number: here.login.clear()  # the token has expired
  assert tpu.main(RUN, here) == 0 and len(failed) == 10
  assert cloud.created == [A, A] and not cloud.items


def test_login_may_stand_behind_a_notice():
  here = world.World(
    run=lambda argv: Result(0, 'new!\n{"credential": {"access_token": "t"}}')
  )
  world.log_in(here)
  assert here.login['credential']['access_token'] == 't'


def test_look_outlives_every_exception(capsys):
  cloud = make_cloud(LOST, HAPPY)

  def breaks(number, answer):
    return 1 / 0 if cloud.created and number % 23 == 0 else answer

  assert tpu.main(RUN, _break(cloud, cloud.world(), breaks)) == 0
  assert 'looking again' in capsys.readouterr().err
  assert cloud.created == [A, A] and not cloud.items


@pytest.mark.parametrize('fault', ['a body that is cut', 'a page to log in'])
@pytest.mark.parametrize('number', [0, 1, 2, 5])
def test_down_deletes_all_whichever_answer_breaks(fault, number, capsys):
  cloud = make_old('ACTIVE')
  with serve(FAULTS[fault]) as url:

    def breaks(count, answer):
      return world.send('GET', url, None, {}) if count == number else answer

    here = _break(cloud, cloud.world(), breaks)
    assert tpu.main(['down', 'old'], here) == 0
  assert not cloud.items and 'nothing is left' in capsys.readouterr().out


def test_down_deletes_all_if_the_first_login_fails():
  cloud = make_old('ACTIVE')
  here, answers = cloud.world(), [Result(1), Result(0, 'x')]
  here.run = lambda argv: answers.pop() if answers else cloud.run(argv)
  assert tpu.main(['down', 'old'], here) == 0 and not cloud.items
