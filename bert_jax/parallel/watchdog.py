"""Ends all processes of a run when one of them dies, stops, hangs or fails.

One thread per process, `_exchange`, tells the others through jax's key-value
store, which process 0 keeps in its memory, that this process lives and why it
fails. Process 0 sums up all signs of life for the others, so that the traffic
grows with the number of processes and not with its square. Calls may hang if
process 0 does. A second thread runs `_look`, which does not communicate: it
decides by what the first has recorded whether to end this process.
"""

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import jax

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.runtime import periodic
from bert_jax.runtime.pulse import Pulse, Watch

_PERIOD = 2.0  # seconds between signs of life
_MISSES = 8  # periods without one after which a process counts as dead
# Time for the others to read why the run failed.
_FAREWELL = 1.5 * _PERIOD  # seconds
_FOLDER = 'bert_jax'  # in the store


class _Hosts:
  """What this process tells the others, and what it knows of them.

  Args:
    client: the client of `jax.distributed`. Each of its calls waits for process
      0, without limit if its host hangs, and raises
      jax.errors.JaxRuntimeError if it cannot be reached.

  Attributes:
    waits: whether a process that is not watched may delay the others.
    behind: '; furthest behind: …' if some have done less than others.
    done: set if this process fails, or no longer needs to be watched.
  """

  def __init__(self, client: Any, pulse: Pulse, process: int):
    self._client, self._pulse, self._process = client, pulse, process
    # {process: (its last sign, how often in a row it has not changed)}
    self._signs: dict[int, tuple[str, int]] = {}
    self._rounds = self._seen_rounds = self._unanswered = 0
    self.waits, self.behind = False, ''
    # (exit code, message) of the first process to fail, and of this one.
    self._first: tuple[int, str] | None = None
    self._own: tuple[int, str] | None = None
    self.done = threading.Event()
    self._ending = threading.Lock()

  def exchange(self):
    """Tells the others about this process, and reads what they report."""
    if self._own:
      with contextlib.suppress(jax.errors.JaxRuntimeError):  # not the first
        key = f'{_FOLDER}/failure/first'
        self._client.key_value_set(key, json.dumps(self._own))
    pulse, host = self._pulse, f'{socket.gethostname()}, process {os.getpid()}'
    done = pulse.updates, pulse.evaluated
    own = json.dumps([self._rounds, host, done, pulse.watched])
    if self._process == 0:
      self._compare({**self._read('signs'), '0': own})
      signs = {k: json.loads(sign) for k, (sign, _) in self._signs.items()}
      self.waits = not all(watched for *_, watched in signs.values())
      self.behind = self._find_last({k: x[2] for k, x in signs.items()})
      told = json.dumps([own, self.waits, self.behind])
      self._write('summary/0', told)
    else:
      self._write(f'signs/{self._process}', own)
      if told := self._read('summary').get('0'):
        sign, self.waits, self.behind = json.loads(told)
        self._compare({'0': sign})
    if failure := self._read('failure').get('first'):
      self._first = json.loads(failure)
    self._rounds += 1

  def _write(self, key, text):
    self._client.key_value_set(f'{_FOLDER}/{key}', text, allow_overwrite=True)

  def _read(self, folder) -> dict[str, str]:
    prefix = f'{_FOLDER}/{folder}/'
    found = self._client.key_value_dir_get(prefix)
    return {key.removeprefix(prefix): text for key, text in found}

  def _compare(self, signs):
    """Counts for each process how often in a row its sign has not changed."""
    before = self._signs
    self._signs = {}
    for key, sign in signs.items():
      last, misses = before.get(int(key), ('', 0))
      self._signs[int(key)] = sign, misses + 1 if sign == last else 0

  def find_silent(self) -> str | None:
    """Looks once per period; returns an error message if processes seem dead.

    Process 0 looks at all processes, the others at process 0.

    Counts looks, not seconds, so that a process that was suspended itself does
    not blame another.
    """
    moved, self._seen_rounds = self._seen_rounds != self._rounds, self._rounds
    self._unanswered = 0 if moved else self._unanswered + 1
    silent = [k for k, (_, n) in sorted(self._signs.items()) if n >= _MISSES]
    if self._unanswered >= _MISSES:
      silent = [0]  # holds the store
    if not silent:
      return None
    names = errors.listing([self._name(k) for k in silent])
    return f'{names} gave no sign of life for {_MISSES * _PERIOD:.0f} s'

  def _name(self, k) -> str:
    if k not in self._signs:
      return f'host {k}'
    return f'host {k} ({json.loads(self._signs[k][0])[1]})'

  def _find_last(self, done) -> str:
    last = min(done.values())
    behind = [self._name(k) for k, x in sorted(done.items()) if x == last]
    if len(behind) == len(done):
      return ''
    return f'; furthest behind: {errors.listing(behind)}'

  def fail(self, code: int, message: str):
    """Lets all processes end with an exit code and a message."""
    self._own = self._own or (code, message)
    self.done.set()

  @property
  def failed(self) -> bool:
    return bool(self._own or self._first)

  def end(self):
    """Ends this process, if the run has failed."""
    self._ending.acquire()  # and never release it: only one thread prints
    if self._own or self._process == 0:
      # The others must have time to read why, from process 0.
      time.sleep(_FAREWELL)
    code, message = self._first or self._own
    _end(message, code)


@contextlib.contextmanager
def watch_hosts() -> Iterator[Pulse]:
  """Ends this process if another fails, and the others if this one does.

  Yields a pulse for the training loop: a main thread that hangs is a failure,
  also of a single process.
  """
  pulse = Pulse()
  watch = Watch(pulse, _PERIOD)
  if jax.process_count() == 1:
    with periodic.calling(lambda: _look_alone(watch), _PERIOD):
      yield pulse
    return
  from jax._src.distributed import global_state  # there is no public API

  hosts = _Hosts(global_state.client, pulse, jax.process_index())
  hosts.exchange()
  distributed.barrier('hosts')
  with (
    _exchanging(hosts),
    periodic.calling(lambda: _look(watch, hosts), _PERIOD),
  ):
    try:
      yield pulse
      distributed.leave()
    except BaseException as error:
      _leave_after(error, hosts)
      raise


@contextlib.contextmanager
def _exchanging(hosts: _Hosts):
  """Runs `_exchange` in a thread, until `hosts.done`, set after the body."""
  thread = threading.Thread(target=_exchange, args=(hosts,), daemon=True)
  thread.start()
  try:
    yield
  finally:
    hosts.done.set()
    thread.join(_FAREWELL)  # it may be waiting for process 0


def _exchange(hosts: _Hosts):
  """Calls `exchange` once per period, and once more if this process fails."""
  finished = False
  while not finished:
    finished = hosts.done.wait(_PERIOD)
    try:
      hosts.exchange()
      if hosts.failed:
        hosts.end()
    except jax.errors.JaxRuntimeError:
      pass  # `_look` notices that there is no answer
    except Exception as error:
      if not finished:
        _fail_oneself(error, hosts)


def _look(watch: Watch, hosts: _Hosts):
  """Ends this process if it or another one failed."""
  try:
    message = hosts.find_silent()
    if not message and (hang := watch.find_hang(excused=hosts.waits)):
      message = f'{hang}{hosts.behind}'
  except Exception as error:
    _fail_oneself(error, hosts)
  else:
    if message:
      hosts.fail(
        errors.MAY_PASS,
        f'{message}. Start the same command on every host to resume.',
      )
  if hosts.failed:
    hosts.end()


def _look_alone(watch: Watch):
  if hang := watch.find_hang():
    _end(f'{hang}. Run the same command to resume.', errors.MAY_PASS)


def _fail_oneself(error: Exception, hosts: _Hosts):
  # A thread that ends silently would look like a dead host.
  traceback.print_exception(error)
  hosts.fail(
    errors.BUG,
    f'host {jax.process_index()}: its watchdog failed: '
    f'{type(error).__name__}: {str(error)[:300]}',
  )


def _end(message: str, code: int):
  # Not sys.exit: the main thread waits for a process that is dead, and so would
  # jax's shutdown.
  sys.stdout.flush()
  print(f'error: {message}', file=sys.stderr, flush=True)
  if code == errors.MAY_PASS:
    faulthandler.dump_traceback()  # what each thread was waiting for
  os._exit(code)


def _leave_after(error: BaseException, hosts: _Hosts):
  """Ends all processes, unless all of them ended for the same reason."""
  here = f'host {jax.process_index()}'
  if isinstance(error, errors.Interrupted):
    name = signal.Signals(error.signum).name
    try:
      distributed.leave(error.everywhere)
    except jax.errors.JaxRuntimeError:  # the others did not stop
      hosts.fail(
        errors.get_exit_code(error), f'{here} was sent {name}; {error}'
      )
      hosts.end()
    return
  if isinstance(error, errors.UserError):
    message = f'{here}: {error}'
  else:
    traceback.print_exception(error)
    message = f'{here}: {type(error).__name__}: {str(error)[:300]}'
    if isinstance(error, jax.errors.JaxRuntimeError) or 'Gloo' in message:
      # The cause may be another process, which `_look` then finds and names.
      time.sleep((_MISSES + 2) * _PERIOD)
  hosts.fail(errors.get_exit_code(error), message)
  hosts.end()
