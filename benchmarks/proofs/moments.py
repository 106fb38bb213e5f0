"""Where a run is, and how a process sends itself signals there."""

import dataclasses
import functools
import importlib
import os
import threading
import time

# Where a run is, and the function of bert_jax that is called there.
MOMENTS = {
  'starting': ('config_check', 'check'),
  'data preparation': ('data.shards', 'make'),
  'restoring': ('workdir.checkpoint', 'Checkpoints.restore'),
  'compilation': ('train.compilation', 'compile_all'),
  'a step': ('train.meter', 'Meter.add'),
  'the log': ('workdir.log', 'Log.write'),
  'evaluation': ('train.evaluate', 'evaluate'),
  'a save': ('workdir.checkpoint', 'Checkpoints.save'),
  'the export': ('interop.hf_export', 'export'),
}


def replace(module: str, name: str, make):
  """Replaces a function of bert_jax by make(function)."""
  owner = importlib.import_module(f'bert_jax.{module}')
  *classes, last = name.split('.')
  for x in classes:
    owner = getattr(owner, x)
  setattr(owner, last, make(getattr(owner, last)))


@dataclasses.dataclass(frozen=True)
class Send:
  """Makes a process send itself signals when a run is at a moment.

  Attributes:
    moment: one of `MOMENTS`.
    signals: what is sent, one after the other.
    count: the how manyth call of the moment's function.
    delay: seconds from then to the first signal.
  """

  moment: str
  signals: tuple[int, ...]
  count: int = 1
  delay: float = 0.0

  def __call__(self):
    calls = []

    def wrap(function):
      @functools.wraps(function)
      def wrapped(*args, **kwargs):
        calls.append(1)
        if len(calls) == self.count:
          threading.Thread(target=self._send, daemon=True).start()
          time.sleep(0.001)
        return function(*args, **kwargs)

      return wrapped

    replace(*MOMENTS[self.moment], wrap)

  def _send(self):
    time.sleep(self.delay)
    for number in self.signals:
      os.kill(os.getpid(), number)
      time.sleep(0.01)
