"""Faults of the process: kills and signals, anywhere; memory that grows."""

import collections
import contextlib
import dataclasses
import functools
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time

import small_run
from small_run import expect, expect_same

from bert_jax.train import meter
from bert_jax.workdir import checkpoint_reader

# Where a run is, and the function of bert_jax that is called there.
MOMENTS = {
  'starting': ('config_check', 'check'),
  'data preparation': ('data.shards', 'make'),
  'restoring': ('workdir.checkpoint', 'Checkpoints.restore'),
  'compilation': ('train.programs', 'compile_all'),
  'a step': ('train.meter', 'Meter.add'),
  'the log': ('workdir.log', 'Log.write'),
  'evaluation': ('train.evaluate', 'evaluate'),
  'a save': ('workdir.checkpoint', 'Checkpoints.save'),
  'the export': ('interop.hugging_face', 'export'),
}
TWICE = 'a step', 'a save', 'the log'
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS = 'os.mkdir', 'os.rename', 'os.remove', 'os.rmdir', 'shutil.rmtree'


def replace(moment: str, make):
  """Replaces the function of a moment by make(function)."""
  module, name = MOMENTS[moment]
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
    count: at which call of the moment's function, from 1.
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

    replace(self.moment, wrap)

  def _send(self):
    time.sleep(self.delay)
    for number in self.signals:
      os.kill(os.getpid(), number)
      time.sleep(0.01)


def list_sends(number: int) -> list[Send]:
  """Returns a `Send` of a signal for each moment, some of them twice."""
  rng = random.Random(0)
  return [
    Send(m, (number,), n, 0.0 if m == 'the export' else rng.uniform(0, 0.01))
    for m in MOMENTS
    for n in ((1, 2) if m in TWICE else (1,))
  ]


def interrupt(sends, code, base, folder):
  """Ends runs as each of `sends` says, and resumes them.

  Unless they are killed, they must end with an exit code and its one line.
  """
  for k, send in enumerate(sends):
    workdir = os.path.join(folder, str(k))
    started = small_run.start(workdir, f'input={base.text}', prepare=send)
    found, text = started.wait(), started.say()
    expect(found == code, f'{send}: exit code {found}:\n{text[-2000:]}')
    if code == 128 + signal.SIGTERM:
      line = 'stopped: resume with the same command.'
      expect(text.rstrip().endswith(line), f'{send}: {text[-2000:]}')
    expect('Traceback' not in text, f'{send}: {text[-3000:]}')
    saved = f'{workdir}/checkpoints'
    if len(send.signals) > 1:  # the save that was under way is finished
      steps = [int(x) for x in os.listdir(saved)]
      _, facts = checkpoint_reader.read(saved)
      expect(facts['step'] == max(steps), f'{steps}, sound: {facts["step"]}')
    small_run.train(workdir, f'input={base.text}')
    expect_same(small_run.describe(workdir), base.result)
  return f'{len(sends)} times exit code {code}; bits, losses and export equal'


@dataclasses.dataclass(frozen=True)
class KillBeforeWrite:
  """Kills the process before the n-th change to the folder of checkpoints.

  Python reports changes that it makes itself, in all threads. TensorStore's
  are not among them.

  Attributes:
    step: changes count from the save of this step on.
    number: that of the change, from 1; 0 counts all.
    report: path of a file for their number.
  """

  step: int
  number: int
  report: str

  def __call__(self):
    seen, active = [], []

    def wrap(save):
      def wrapped(checkpoints, step, *args):
        active.extend([1] * (step == self.step))
        found = save(checkpoints, step, *args)
        if step == self.step:
          checkpoints._manager.wait_until_finished()
          active.clear()
          with open(self.report, 'w') as file:
            json.dump(len(seen), file)
        return found

      return wrapped

    def look(event, args):
      if not active or not args or '/checkpoints' not in str(args[0]):
        return
      opens = event == 'open' and bool((args[2] or 0) & _WRITING)
      if event in _EVENTS or opens:
        seen.append(event)
        if len(seen) == self.number:
          os.kill(os.getpid(), signal.SIGKILL)

    replace('a save', wrap)
    sys.addaudithook(look)


@dataclasses.dataclass(frozen=True)
class KillInWrite:
  """Ends the process by SIGXFSZ when a file of the save of a step has a size."""

  step: int
  size: int

  def __call__(self):
    def wrap(save):
      def wrapped(checkpoints, step, *args):
        if step == self.step:
          signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
          limits = self.size, resource.RLIM_INFINITY
          resource.setrlimit(resource.RLIMIT_FSIZE, limits)
          resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        return save(checkpoints, step, *args)

      return wrapped

    replace('a save', wrap)


def kill_each_write(base, folder):
  """Kills before each write of a save, and within writes of the arrays."""
  half, arguments = os.path.join(folder, 'half'), f'input={base.text},keep=2'
  # Two checkpoints, so that the third save deletes one.
  stop = Send('a step', (signal.SIGTERM,), 4)
  expect(small_run.start(half, arguments, prepare=stop).wait() == 143, 'half')
  [_, last] = sorted(map(int, os.listdir(f'{half}/checkpoints')))
  step, report = last + 2 - last % 2, os.path.join(folder, 'report')
  kept: collections.Counter[int] = collections.Counter()

  def run(prepare, expected):
    workdir = os.path.join(folder, 'run')
    shutil.rmtree(workdir, ignore_errors=True)
    shutil.copytree(half, workdir)
    code = small_run.start(workdir, arguments, prepare=prepare).wait()
    expect(code == expected, f'{prepare}: {code}')
    if code:
      found = checkpoint_reader.read(f'{workdir}/checkpoints')[1]['step']
      kept[found] += 1
      expect(found in (last, step), f'after {prepare}: step {found}')
      small_run.train(workdir, arguments)
      left = sorted(os.listdir(f'{workdir}/checkpoints'))
      expect(left == ['6', '8'], f'after {prepare} there is {left}')
    expect_same(small_run.describe(workdir), base.result)

  run(KillBeforeWrite(step, 0, report), 0)
  with open(report) as file:
    total = json.load(file)
  expect(total > 5, f'only {total} writes')
  for number in range(1, total + 1):
    run(KillBeforeWrite(step, number, report), -signal.SIGKILL)
  sizes = 6_000, 11_000, 20_000, 25_000
  for size in sizes:
    run(KillInWrite(step, size), -signal.SIGXFSZ)
  return (
    f'{total} kills before a write, {len(sizes)} within one; resumed at step '
    f'{last} {kept[last]} times, at {step} {kept[step]} times; bits equal'
  )


@contextlib.contextmanager
def watching_steps(note):
  """Calls note(number) when a run in this process begins a step."""
  add = meter.Meter.add

  def noting(self, number, metrics, costs):
    note(number)
    return add(self, number, metrics, costs)

  meter.Meter.add = noting
  try:
    yield
  finally:
    meter.Meter.add = add


def memory(base, folder, steps=6000, every=200):
  """Measures the memory of a process over many steps, without and with saves."""
  alone = _measure_growth(base, f'{folder}/alone', steps, 1_000_000)
  saving = _measure_growth(base, f'{folder}/saving', steps, every)
  # What the allocator keeps goes up and down by some MB.
  expect(alone < 4e6, f'{alone / 1e6:.1f} MB more without saves')
  each = saving / (steps // every)
  expect(each < 1e6, f'{each / 1e6:.1f} MB more for each save')
  return (
    f'{alone / 1e6:+.1f} MB in {steps:,} steps with 30 evaluations, '
    f'{saving / 1e6:+.1f} MB with 30 saves, too'
  )


def _measure_growth(base, workdir, steps, save_every):
  """Returns the bytes that a run's process has grown by after 600 steps."""
  sizes, first = {}, 600

  def look(step):
    if step in (first, first + steps):
      with open('/proc/self/statm') as file:
        sizes[step] = int(file.read().split()[1]) * resource.getpagesize()

  with watching_steps(look):
    small_run.train(
      workdir,
      f'dir={base.data},steps={first + steps},log.every=100,eval.every=200,'
      f'checkpoint.every={save_every}',
    )
  return sizes[first + steps] - sizes[first]


_AGAIN = signal.SIGTERM, signal.SIGTERM, signal.SIGINT
_BUSY = [Send(moment, _AGAIN) for moment in ('a save', 'a step', 'compilation')]
ROWS = {
  'kill_moments': functools.partial(
    interrupt, list_sends(signal.SIGKILL), -signal.SIGKILL
  ),
  'kill_each_write': kill_each_write,
  **{
    f'{name}_moments': functools.partial(
      interrupt, list_sends(number), 128 + number
    )
    for name, number in (('sigterm', signal.SIGTERM), ('sighup', signal.SIGHUP))
  },
  'second_signal': functools.partial(interrupt, _BUSY, 143),
  'memory': memory,
}
