"""Answers that break off or are none: on real sockets, in whole launches."""

import contextlib
import itertools
import json
import socket
import struct
import threading

import pytest

from launch import tpu, world
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
  'reset': '!',
  'nothing': '',
  'half a header': f'{OK}Content-Le',
  'no HTTP': '\x16\x03\x01\x02 what\r\n\r\n',
  'a body that is cut': f'{OK}Content-Length: 99\r\n\r\n{{}}',
  'a body that is reset': f'{OK}Content-Length: 99\r\n\r\n{{}}!',
  'a chunk that is cut': f'{OK}Transfer-Encoding: chunked\r\n\r\n9\r\n{{}}',
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
def serve(*texts: str):
  """Yields the URL of a server that answers with one text after the other."""
  listener = socket.create_server(('127.0.0.1', 0))

  def answer():
    with contextlib.suppress(OSError):
      for text in itertools.cycle(texts):
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


def _break(cloud, breaks):
  """Returns a world in which a function of their number breaks answers."""
  here, count = cloud.world(), itertools.count()

  def send(method, url, *rest):
    # A write may have been done when its answer breaks.
    answer = cloud.send(method, url, *rest)
    return breaks(next(count), answer)

  here.send = send
  return here


def test_launch_outlives_every_broken_answer():
  """Every seventh one; one set of hosts is taken away meanwhile."""
  cloud, broken = make_cloud(LOST, HAPPY), []
  with serve(*FAULTS.values()) as url:

    def breaks(number, answer):
      if not cloud.created or number % 7:
        return answer
      broken.append(number)
      return world.send('GET', url, None, {})

    assert tpu.main(RUN, _break(cloud, breaks)) == 0
  assert cloud.created == [A, A] and not cloud.items
  assert len(broken) > len(FAULTS)


ODD = {'date': 'once'}, {}, None


@pytest.mark.parametrize('head', ODD)
def test_launch_outlives_answers_without_a_time_and_every_exception(
  head, capsys
):
  cloud, more = make_cloud(LOST, HAPPY), {'x-goog-generation': '1'}

  def breaks(number, answer):
    if not cloud.created or number % 23:
      return answer
    return Answer(answer.code, answer.data, head | more)  # None is a TypeError

  assert tpu.main(RUN, _break(cloud, breaks)) == 0
  assert cloud.created == [A, A] and not cloud.items
  out, err = capsys.readouterr()
  # An answer without a time is not of 1970: 56 years of rent.
  assert 'rent      0.' in out and 'looking again' in err


LOGINS = [Result(1, err='ERROR: no DNS'), Result(124), Result(0, 'no JSON')]
LOGINS += [Result(0, '{}'), Result(0, '[]')]


def test_login_that_fails_for_a_while_ends_nothing():
  cloud = make_cloud(LOST, HAPPY)
  here, failures = cloud.world(), LOGINS * 3

  def run(argv, **_):
    if 'config-helper' in argv and cloud.created and failures:
      return failures.pop()
    return cloud.run(argv)

  here.run = run
  cloud.each = lambda number: here.login.clear()  # the token has expired
  assert tpu.main(RUN, here) == 0 and not failures
  assert cloud.created == [A, A] and not cloud.items


@pytest.mark.parametrize('fault', ['a body that is cut', 'a page to log in'])
@pytest.mark.parametrize('number', [0, 1, 2])
def test_down_deletes_all_whichever_answer_breaks(fault, number, capsys):
  cloud = make_old('ACTIVE')
  with serve(FAULTS[fault]) as url:

    def breaks(count, answer):
      return world.send('GET', url, None, {}) if count == number else answer

    here, answers = _break(cloud, breaks), [Result(1), Result(0, 'x')]
    # The first logins fail, too.
    here.run = lambda argv: answers.pop() if answers else cloud.run(argv)
    assert tpu.main(['down', 'gs://bkt/old'], here) == 0
  assert not cloud.items and 'nothing is left' in capsys.readouterr().out
