"""Sends SIGTERM to runs at random moments, and looks for lost steps."""

import collections
import contextlib
import os
import random
import signal
import threading
import time

import small_run
from fault import expect

from bert_jax import errors
from bert_jax.train import meter
from bert_jax.workdir import checkpoint_reader, log


class Sender:
  """Sends this process SIGTERM after a while, and notes where it was.

  Attributes:
    number: the last step that was begun; 0 before the first.
    begun: the same when the signal was sent.
    first: when the first step was begun, a time of `time.monotonic`.
  """

  def __init__(self, seconds: float, in_steps: bool):
    """Begins to wait; `in_steps` begins with the first step."""
    self.begun = self.number = 0
    self.first: float | None = None
    self._seconds, self._in_steps = seconds, in_steps
    if not in_steps:
      self.wait(seconds)

  def note(self, number: int):
    """Is told that a step was begun."""
    self.number = number
    if self.first is None:
      self.first = time.monotonic()
      if self._in_steps:
        self.wait(self._seconds)

  def wait(self, seconds: float):
    timer = threading.Timer(seconds, self._send)
    timer.daemon = True
    timer.start()

  def _send(self):
    self.begun = self.number
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt_often(base, workdir: str, count: int, seed: int = 0):
  """Sends SIGTERM to runs of one working directory at random moments.

  Each run goes on where the one before was stopped.

  Args:
    base: an uninterrupted run, whose data are used.
    workdir: that of the runs.
    count: how many signals.
    seed: of the moments.

  Returns:
    ([where each signal came], the last step); where is 'before the steps' or
    'in the steps'.
  """
  arguments = (
    f'dir={base.data},steps=1000000,log.every=1,checkpoint.every=50,'
    'eval.every=100'
  )
  rng, add, sender = random.Random(seed), meter.Meter.add, None
  step, places, start = 0, [], 0.0

  def note(self, number, metrics, costs):
    sender.note(number)
    return add(self, number, metrics, costs)

  # What arrives before a run handles signals is sent again.
  signal.signal(signal.SIGTERM, lambda *_: sender.wait(0.05))
  meter.Meter.add = note
  try:
    while len(places) < count:
      begin, in_steps = time.monotonic(), not places or rng.random() < 0.6
      sender = Sender(rng.uniform(0, 0.15 if in_steps else start), in_steps)
      try:
        small_run.train(workdir, arguments)
        raise RuntimeError('the run ended by itself')
      except errors.Interrupted as error:
        text = '\n'.join(error.__notes__)
      if sender.first:
        start = sender.first - begin
      # A run that was stopped before it had a checkpoint made has none.
      before, begun = step, sender.begun
      found = checkpoint_reader.list_steps(f'{workdir}/checkpoints')
      step = max(found, default=0)
      expect(step >= before, f'step {step} after {before}:\n{text}')
      # The step that was under way is finished, at most one more begun; so
      # may be the first ones of a run that was about to begin them.
      expect(step >= begun, f'step {begun} begun, {step} saved:\n{text}')
      most = max(before, begun) + 2
      expect(step <= most, f'{before} before, {begun} begun, {step} saved')
      places.append('in the steps' if begun else 'before the steps')
  finally:
    meter.Meter.add = add
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
  return places, step


def sigterm_200(base, folder, count=200):
  """Sends many signals; then compares with a run that got one."""
  workdir, alone = (os.path.join(folder, x) for x in ('often', 'once'))
  places, step = interrupt_often(base, workdir, count)
  rows = log.read(f'{workdir}/metrics.jsonl')
  steps = [r['step'] for r in rows if r['kind'] == 'train']
  expect(steps == list(range(1, step + 1)), 'a step is missing in the log')
  add = meter.Meter.add

  def stop(self, number, metrics, costs):
    if number == step:
      os.kill(os.getpid(), signal.SIGTERM)
    return add(self, number, metrics, costs)

  meter.Meter.add = stop
  arguments = (
    f'dir={base.data},steps=1000000,log.every=1,checkpoint.every=1000,'
    'eval.every=100'
  )
  with contextlib.suppress(errors.Interrupted):
    small_run.train(alone, arguments)
  once = checkpoint_reader.read(f'{alone}/checkpoints')[1]
  often = checkpoint_reader.read(f'{workdir}/checkpoints', once['step'])[1]
  expect(
    once['fingerprint'] == often['fingerprint'],
    f'{once["fingerprint"]} and {often["fingerprint"]} at {once["step"]}',
  )
  found = collections.Counter(places)
  return (
    f'{len(places)} signals ({found["before the steps"]} before the steps, '
    f'{found["in the steps"]} in them), 0 steps lost; after {step:,} steps the '
    'bits of a run that was not stopped'
  )
