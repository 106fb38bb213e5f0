"""Calls a function again and again, from a thread."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

from bert_jax import errors


@contextlib.contextmanager
def calling(function: Callable[[], object], seconds: float) -> Iterator[None]:
  """Calls `function` every so many seconds while the body runs.

  An error of a disk or a bucket is a warning, since the next call may succeed.
  """
  done = threading.Event()

  def work():
    while not done.wait(seconds):
      try:
        function()
      except (OSError, errors.UserError) as error:
        print(f'warning: {error}', file=sys.stderr, flush=True)

  thread = threading.Thread(target=work, name='periodic', daemon=True)
  thread.start()
  try:
    yield
  finally:
    done.set()
    thread.join()
