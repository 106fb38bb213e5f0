"""`status.json`: how a run is doing, for programs that watch it."""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable

from bert_jax import errors
from bert_jax.runtime import files, workers
from bert_jax.workdir import paths

_SECONDS = 20.0  # between writes of changes


class Status:
  """Keeps `status.json` of a working directory up to date.

  It is written at once when the state is noted, otherwise by a thread. On exit,
  the state is `done`, `interrupted` or `failed`, by the exception. Its fields
  are explained in docs/buckets.md.

  Without a workdir, as of processes other than the first, it writes nothing.
  `known` is the step of a complete checkpoint of an earlier process, if any.
  """

  def __init__(
    self, workdir: str | None = None, steps: int = 0, phases: int = 0
  ):
    self._path = workdir and paths.status(workdir)
    before = read(workdir) if workdir else {}
    kept = 'loss', 'held_out', 'checkpoint'
    unknown = 'steps_per_second', 'seconds_left', 'message', 'exit_code'
    self._fields = {
      'state': 'starting',
      'step': before.get('step', 0),
      'steps': steps,
      'phase': before.get('phase', 0),
      'phases': phases,
      'host': socket.gethostname(),
      **{name: before.get(name) for name in kept},
      **dict.fromkeys(unknown),
    }
    known = before.get('checkpoint')
    self.known = known if isinstance(known, int) else None
    self._newest: Callable[[], int | None] | None = None
    self._seen: tuple[int, float] | None = None  # step, and when
    self._lock = threading.Lock()
    self._thread = contextlib.ExitStack()

  def note(self, **fields):
    """Sets fields, which are written at once if the state is among them."""
    self._fields.update(fields)
    if 'state' in fields:
      self._write()

  def follow(self, newest: Callable[[], int | None]):
    """Asks `newest` for the newest checkpoint whenever this is written."""
    self._newest = newest

  def _write(self):
    if self._path is None:
      return
    with self._lock:
      self._measure()
      try:
        newest = self._newest and self._newest()
        if newest is not None:
          self._fields['checkpoint'] = newest
        files.write_json(self._path, {**self._fields, 'time': time.time()})
      except (OSError, errors.UserError) as error:
        # A watcher sees an old time; the run itself does not need the file.
        print(f'warning: no status: {error}', file=sys.stderr, flush=True)

  def _measure(self):
    fields, now = self._fields, time.monotonic()
    step = fields['step']
    if fields['state'] != 'running':
      fields['steps_per_second'] = fields['seconds_left'] = None
    elif self._seen is None:
      self._seen = step, now
    elif step > self._seen[0]:
      speed = (step - self._seen[0]) / max(now - self._seen[1], 1e-9)
      fields['steps_per_second'] = speed
      fields['seconds_left'] = (fields['steps'] - step) / speed
      self._seen = step, now

  def __enter__(self):
    self._write()
    self._thread.enter_context(workers.calling(self._write, _SECONDS))
    return self

  def __exit__(self, kind, error, traceback):
    self._thread.close()
    self.note(**_judge(error))


def _judge(error: BaseException | None) -> dict:
  if error is None:
    return {'state': 'done', 'exit_code': 0}
  stopped, text = isinstance(error, errors.Interrupted), str(error)
  if not stopped and not isinstance(error, errors.UserError):
    text = f'{type(error).__name__}: {errors.first_line(error)}'
  return {
    'state': 'interrupted' if stopped else 'failed',
    'exit_code': errors.get_exit_code(error),
    'message': text,
  }


def read(workdir: str) -> dict:
  """Returns the fields that a run last wrote; {} without a sound file."""
  try:
    found = files.load_json(paths.status(workdir))
  except (FileNotFoundError, ValueError):
    return {}
  return found if isinstance(found, dict) else {}
