"""Tests of how processes see one another."""

import socket
import threading

import jax
import pytest

from bert_jax import errors
from bert_jax.parallel import distributed, watchdog
from bert_jax.runtime import bucket, pulse
from tests import processes


class Memory:
  """A client of a store in this process."""

  def __init__(self):
    self.texts = {}
    self.bytes = 0  # of texts that were told or asked for

  def key_value_set(self, key, text, allow_overwrite=False):
    if key in self.texts and not allow_overwrite:
      raise jax.errors.JaxRuntimeError('ALREADY_EXISTS')
    self.bytes += len(text)
    self.texts[key] = text

  def key_value_dir_get(self, prefix):
    found = [
      (k, text) for k, text in self.texts.items() if k.startswith(prefix)
    ]
    self.bytes += sum(len(text) for _, text in found)
    return found


class Ended(BaseException):
  """Raised instead of ending this process."""


@pytest.fixture(autouse=True)
def ended(monkeypatch):
  """Raises at the end of the process; nobody says farewell."""

  def end(message, code):
    raise Ended(code, message)

  monkeypatch.setattr(watchdog, '_end', end)
  monkeypatch.setattr(watchdog.time, 'sleep', lambda seconds: None)


def make(count=3, client=None):
  client = client or Memory()
  hosts = [
    watchdog._Hosts(client, pulse.Pulse(watched=True), k) for k in range(count)
  ]
  for _ in range(2):
    exchange(hosts)
  return hosts


def exchange(hosts):
  for one in hosts:
    one.exchange()


def look(one):
  watchdog._look(pulse.Watch(one._pulse, watchdog._PERIOD), one)


def end(function, *args):
  """Returns the code and the message with which a call ends the process."""
  with pytest.raises(Ended) as raised:
    function(*args)
  return raised.value.args


def test_hosts_that_live_are_neither_silent_nor_behind():
  hosts = make()
  for _ in range(3 * watchdog._MISSES):
    exchange(hosts)
    assert [one.find_silent() for one in hosts] == [None] * 3
  assert [one.behind for one in hosts] == [''] * 3


def test_silent_hosts_are_named_by_host_0_and_by_all_others():
  hosts = make(4)
  first, _, _, last = hosts
  for _ in range(watchdog._MISSES):
    assert first.find_silent() is last.find_silent() is None
    exchange([first, last])

  def look_twice(one):
    look(one)
    exchange([first, last])  # when the first has told why it ends
    look(one)

  for one in (first, last):
    code, message = end(look_twice, one)
    assert code == 75
    assert message.startswith('host 1 (') and ', host 2 (' in message
    assert ') gave no sign of life for 16 s. Start the same' in message


def test_a_host_that_goes_on_is_not_silent():
  first, second = make(2)
  for _ in range(watchdog._MISSES - 1):
    first.exchange()
  second.exchange()
  first.exchange()
  assert first.find_silent() is None


def test_a_store_that_does_not_answer_is_host_0():
  _, second = make(2)
  looks = [second.find_silent() for _ in range(1 + watchdog._MISSES)]
  assert looks[:-1] == [None] * watchdog._MISSES
  assert looks[-1].startswith('host 0 (')


def test_who_was_stopped_blames_nobody():
  """It neither told nor looked meanwhile."""
  first, second = make(2)
  for _ in range(watchdog._MISSES):
    first.exchange()
  assert second.find_silent() is None
  exchange([first, second])
  assert second.find_silent() is None


def test_all_end_for_the_reason_of_the_first():
  hosts = make()
  hosts[2].fail(1, 'host 2: the disk is full')
  hosts[2].exchange()
  hosts[0].fail(75, 'host 0: lost host 2')
  exchange(hosts)
  for one in hosts:
    assert end(look, one) == (1, 'host 2: the disk is full')


@pytest.fixture
def client():
  """Yields a client of jax's own service for one process."""
  from jax._src.lib import _jax

  with socket.create_server(('localhost', 0)) as found:
    address = f'localhost:{found.getsockname()[1]}'
  service = _jax.get_distributed_runtime_service(address, 1)
  found = _jax.get_distributed_runtime_client(address, 0)
  found.connect()
  yield found
  found.shutdown()
  service.shutdown()


def test_a_reason_keeps_its_lines_its_code_and_a_name_that_is_no_text(client):
  hosts = make(2, client)
  reason = 143, 'was sent SIGTERM;\nresume with \udcff.txt'
  hosts[1].fail(*reason)
  hosts[1].exchange()
  hosts[0].fail(75, 'host 0: lost host 1')
  exchange(hosts)
  for one in hosts:
    assert end(one.end) == reason
    assert one.find_silent() is None


@pytest.mark.parametrize('count', [64, 1024])
def test_what_hosts_tell_and_ask_grows_with_their_number(count):
  hosts = make(count)
  client = hosts[0]._client
  before, client.bytes = set(client.texts), 0
  exchange(hosts)
  assert client.bytes < 400 * count
  assert set(client.texts) == before and len(before) == count


def test_a_main_thread_that_hangs_ends_all_and_names_who_is_behind():
  hosts = make()
  for k, one in enumerate(hosts):
    one._pulse.updates = 56 if k == 1 else 57
    one._pulse.watched = k != 2
  exchange(hosts)
  watch = pulse.Watch(hosts[0]._pulse, watchdog._PERIOD)

  def wait():
    for _ in range(400):
      exchange(hosts)
      watchdog._look(watch, hosts[0])

  wait()  # host 2 saves, and the others wait for it
  hosts[2]._pulse.watched = True
  code, message = end(wait)
  assert code == 75 and message.startswith('no training step')
  head = message.partition('\n')[0]
  assert 'furthest behind: host 1 (' in head and 'host 2' not in head


def test_an_error_of_the_service_is_no_failure(monkeypatch):
  first, _ = make(2)

  def fail():
    raise jax.errors.JaxRuntimeError('UNAVAILABLE: Socket closed')

  monkeypatch.setattr(first, 'exchange', fail)
  first.done.set()
  watchdog._exchange(first)
  assert not first.failed


def test_a_watchdog_that_fails_ends_the_run_and_names_its_host(
  monkeypatch, capsys
):
  first, second = make(2)
  monkeypatch.setattr(first, '_compare', lambda signs: 1 / 0)
  monkeypatch.setattr(watchdog, '_PERIOD', 0)
  watchdog._exchange(first)
  assert capsys.readouterr().err.count('Traceback') == 1
  second.exchange()
  for one in (first, second):
    with pytest.raises(Ended, match='host 0: its watchdog failed: ZeroDiv'):
      one.end()


def test_a_look_that_fails_ends_the_run(monkeypatch, capsys):
  first, _ = make(2)
  monkeypatch.setattr(first, 'find_silent', lambda: 1 / 0)
  with pytest.raises(Ended, match='host 0: its watchdog failed: ZeroDiv'):
    look(first)
  assert 'Traceback' in capsys.readouterr().err


@pytest.mark.parametrize(
  'error, code, said',
  [
    (errors.UserError('no disk'), 1, 'host 0: no disk'),
    (KeyError('x'), 70, "host 0: KeyError: 'x'"),
  ],
)
def test_an_error_is_told_to_all_and_ends_this_process(error, code, said):
  first, second = make(2)
  assert end(watchdog._leave_after, error, first) == (code, said)
  exchange([first, second])
  assert end(look, second) == (code, said)


def test_an_error_that_a_dead_host_may_cause_waits_until_it_is_named(
  monkeypatch,
):
  slept, (first, _) = [], make(2)
  monkeypatch.setattr(watchdog.time, 'sleep', slept.append)
  with pytest.raises(Ended):
    watchdog._leave_after(jax.errors.JaxRuntimeError('Gloo: closed'), first)
  assert slept[0] > watchdog._MISSES * watchdog._PERIOD


@pytest.fixture
def waits(monkeypatch):
  """Returns the list of the times that processes wait before they leave."""
  found = []
  monkeypatch.setattr(
    distributed, 'barrier', lambda name, seconds: found.append(seconds)
  )
  return found


def test_who_ends_like_all_hosts_waits_while_host_0_tries_a_bucket(waits):
  first, _ = make(2)
  stopped = errors.Interrupted(15, everywhere=True)
  watchdog._leave_after(stopped, first)
  distributed.leave()  # of a run that is finished
  # Log, status and lock, one after the other.
  assert min(waits) > 10 * bucket.PATIENCE and not first.failed


def test_who_stops_alone_ends_the_others(waits, monkeypatch):
  first, second = make(2)

  def wait(name, seconds):
    waits.append(seconds)
    raise jax.errors.JaxRuntimeError('DEADLINE_EXCEEDED')

  monkeypatch.setattr(distributed, 'barrier', wait)
  stopped = errors.Interrupted(15)
  said = 'host 0 was sent SIGTERM; resume with the same command.'
  assert end(watchdog._leave_after, stopped, first) == (143, said)
  assert waits == [20]
  exchange([first, second])
  assert end(look, second) == (143, said)


def test_one_process_passes_errors_on():
  with pytest.raises(KeyError):
    with watchdog.watch_hosts():
      raise KeyError


HANGING = """
import time
from bert_jax.parallel import watchdog
from bert_jax.runtime import pulse

watchdog._PERIOD, pulse._FIRST_SECONDS = 0.01, 0.1

def wait_for_ever():
  time.sleep(60)

with watchdog.watch_hosts() as beat, beat.watching():
  wait_for_ever()
"""


def test_one_process_that_hangs_ends_with_its_stacks():
  found = processes.run_code(HANGING)
  assert found.returncode == 75
  assert (
    'error: no training step or evaluation batch for 0 s. Run the same command '
    'to resume.\n'
  ) in found.stderr
  assert 'in wait_for_ever\n' in found.stderr


def test_no_thread_stays_behind():
  before = set(threading.enumerate())
  with watchdog.watch_hosts():
    assert len(threading.enumerate()) == len(before) + 1
  assert set(threading.enumerate()) == before
