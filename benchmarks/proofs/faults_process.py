"""Faults of the process: kills, signals, the clock, memory, workers."""

import collections
import contextlib
import dataclasses
import functools
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time

import small_run
from fault import Fault, expect, expect_error, expect_same

from bert_jax import errors
from bert_jax.workdir import checkpoint_reader, log

_PROOFS = os.path.dirname(os.path.abspath(__file__))
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


def _list_moments(number, rng):
  """Returns a `Send` for each moment, some of them twice."""
  found = []
  for moment in MOMENTS:
    counts = (1, 2) if moment in ('a step', 'a save', 'the log') else (1,)
    for count in counts:
      delay = 0.0 if moment == 'the export' else rng.uniform(0, 0.01)
      found.append(Send(moment, (number,), count, delay))
  return found


def _interrupt_everywhere(base, folder, number):
  """Ends a run at every moment, and resumes it; returns their texts."""
  texts = {}
  for k, send in enumerate(_list_moments(number, random.Random(0))):
    workdir = os.path.join(folder, str(k))
    started = small_run.start(workdir, f'input={base.text}', prepare=send)
    code, text = started.wait(), started.say()
    expected = -number if number == signal.SIGKILL else 128 + number
    expect(code == expected, f'{send}: exit code {code}:\n{text[-2000:]}')
    texts[f'{send.moment} {send.count}'] = text
    small_run.train(workdir, f'input={base.text}')
    expect_same(small_run.describe(workdir), base.result)
  return texts


def kill_moments(base, folder):
  """Kills a run at every moment."""
  texts = _interrupt_everywhere(base, folder, signal.SIGKILL)
  return f'{len(texts)} kills; bits, losses and export equal'


def sigterm_moments(base, folder):
  """Sends SIGTERM at every moment."""
  texts = _interrupt_everywhere(base, folder, signal.SIGTERM)
  for moment, text in texts.items():
    line = 'stopped: resume with the same command.'
    expect(text.rstrip().endswith(line), f'{moment}: {text[-2000:]}')
    expect('Traceback' not in text, text[-3000:])
  return f'{len(texts)} signals, each exit code 143; bits and export equal'


def second_signal(base, folder):
  """Sends SIGTERM, SIGTERM and SIGINT within a save and within a step."""
  for moment in ('a save', 'a step', 'compilation'):
    workdir = os.path.join(folder, moment.replace(' ', '_'))
    numbers = signal.SIGTERM, signal.SIGTERM, signal.SIGINT
    send = Send(moment, numbers, 1)
    started = small_run.start(workdir, f'input={base.text}', prepare=send)
    code, text = started.wait(), started.say()
    expect(code == 143, f'{moment}: exit code {code}:\n{text[-2000:]}')
    expect('Traceback' not in text, text[-3000:])
    _, facts = checkpoint_reader.read(f'{workdir}/checkpoints')
    steps = [int(x) for x in os.listdir(f'{workdir}/checkpoints')]
    expect(facts['step'] == max(steps), f'{steps}, sound: {facts["step"]}')
    small_run.train(workdir, f'input={base.text}')
    expect_same(small_run.describe(workdir), base.result)
  return '3 times: exit code 143, the checkpoint sound, the result equal'


# Each write of a save.

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS = 'os.mkdir', 'os.rename', 'os.remove', 'os.rmdir', 'shutil.rmtree'


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
            json.dump(seen, file)
        return found

      return wrapped

    def look(event, args):
      if not active or not args or '/checkpoints' not in str(args[0]):
        return
      opens = event == 'open' and bool((args[2] or 0) & _WRITING)
      if event in _EVENTS or opens:
        seen.append(f'{event} {args[0]}')
        if len(seen) == self.number:
          os.kill(os.getpid(), signal.SIGKILL)

    replace('workdir.checkpoint', 'Checkpoints.save', wrap)
    sys.addaudithook(look)


@dataclasses.dataclass(frozen=True)
class KillInWrite:
  """Ends the process when a file that it writes reaches a size, as SIGXFSZ does.

  Attributes:
    step: files may be written until the save of this step.
    size: bytes.
  """

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

    replace('workdir.checkpoint', 'Checkpoints.save', wrap)


def kill_each_write(base, folder):
  """Kills before each write of a save, and within writes of the arrays."""
  half, arguments = os.path.join(folder, 'half'), f'input={base.text},keep=2'
  # Two checkpoints, so that the third save deletes one.
  stop = Send('a step', (signal.SIGTERM,), 4)
  expect(small_run.start(half, arguments, prepare=stop).wait() == 143, 'half')
  [first, last] = sorted(map(int, os.listdir(f'{half}/checkpoints')))
  step = last + 2 - last % 2
  report = os.path.join(folder, 'report')

  def run(prepare):
    workdir = os.path.join(folder, 'run')
    shutil.rmtree(workdir, ignore_errors=True)
    shutil.copytree(half, workdir)
    code = small_run.start(workdir, arguments, prepare=prepare).wait()
    if code:
      found = checkpoint_reader.read(f'{workdir}/checkpoints')[1]['step']
      kept[found] += 1
      expect(found in (last, step), f'after {prepare}: step {found}')
      small_run.train(workdir, arguments)
      left = sorted(os.listdir(f'{workdir}/checkpoints'))
      expect(left == ['6', '8'], f'after {prepare} there is {left}')
    expect_same(small_run.describe(workdir), base.result)
    return code

  kept: collections.Counter[int] = collections.Counter()
  expect(run(KillBeforeWrite(step, 0, report)) == 0, 'the run that counts')
  with open(report) as file:
    total = len(json.load(file))
  expect(total > 5, f'only {total} writes')
  for number in range(1, total + 1):
    code = run(KillBeforeWrite(step, number, report))
    expect(code == -signal.SIGKILL, f'write {number}: {code}')
  sizes = 6_000, 11_000, 20_000, 25_000, 32_000
  for size in sizes:
    code = run(KillInWrite(step, size))
    expect(code == -signal.SIGXFSZ, f'size {size}: {code}')
  return (
    f'{total} kills before a write, {len(sizes)} within one; resumed at step '
    f'{last} {kept[last]} times, at {step} {kept[step]} times; bits equal'
  )


# 200 signals.


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
  from bert_jax.train import meter

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
      sender = Sender(rng.uniform(0, 0.4 if in_steps else start), in_steps)
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
      # The step that was under way is finished, at most one more begun.
      expect(step >= begun, f'step {begun} begun, {step} saved:\n{text}')
      expect(step <= max(before, begun + 2), f'{begun} begun, {step} saved')
      places.append('in the steps' if begun else 'before the steps')
  finally:
    meter.Meter.add = add
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
  return places, step


def sigterm_200(base, folder):
  """Sends 200 signals; then compares with a run that got one."""
  workdir, alone = (os.path.join(folder, x) for x in ('often', 'once'))
  places, step = interrupt_often(base, workdir, 200)
  rows = log.read(f'{workdir}/metrics.jsonl')
  steps = [r['step'] for r in rows if r['kind'] == 'train']
  expect(steps == list(range(1, step + 1)), 'a step is missing in the log')
  from bert_jax.train import meter

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


# The rest.


def clock_jumps(base, folder):
  """Lets the clock jump while a run trains."""
  real, jumps = time.time, {2: 86_400, 3: -3e8, 5: 4e9, 6: -1.5e9}
  offset = [0.0]
  from bert_jax.train import meter

  add = meter.Meter.add

  def jump(self, number, metrics, costs):
    offset[0] = jumps.get(number, offset[0])
    return add(self, number, metrics, costs)

  meter.Meter.add = jump
  time.time = lambda: real() + offset[0]
  workdir = os.path.join(folder, 'run')
  small_run.train(workdir, f'input={base.text}')
  expect_same(small_run.describe(workdir), base.result)
  rows = log.read(f'{workdir}/metrics.jsonl')
  speeds = [r['sequences_per_second'] for r in rows if r['kind'] == 'train']
  expect(min(speeds) > 0, f'speeds {speeds}')
  return f'{len(jumps)} jumps of a day to 127 years; bits and export equal'


def memory(base, folder):
  """Measures the memory of a process over 2,000 steps."""
  write, sizes, first = log.Log.write, {}, 600

  def look(self, kind, step, values):
    if kind == 'train':
      with open('/proc/self/statm') as file:
        sizes[step] = int(file.read().split()[1]) * resource.getpagesize()
    return write(self, kind, step, values)

  log.Log.write = look
  small_run.train(
    os.path.join(folder, 'run'),
    f'dir={base.data},steps={first + 2000},log.every=100,eval.every=200,'
    'checkpoint.every=200',
  )
  growth = sizes[first + 2000] - sizes[first]
  expect(growth < 8e6, f'{growth / 1e6:.1f} MB more: {sorted(sizes.items())}')
  return (
    f'{sizes[first] / 1e6:.0f} MB after {first} steps, '
    f'{growth / 1e6:+.1f} MB after 2,000 more, with 10 saves'
  )


def workers(base, folder):
  """Kills worker processes of a run."""
  # They begin with this process's main module.
  sys.modules['__main__'].__spec__ = None
  write, workdir = log.Log.write, os.path.join(folder, 'run')

  def kill_one(self, kind, step, values):
    found = multiprocessing.active_children()
    if (kind, step) == ('train', 3) and found:
      found[0].kill()
    return write(self, kind, step, values)

  log.Log.write = kill_one
  arguments = f'input={base.text},'
  loading = expect_error(
    lambda: small_run.train(
      workdir, f'{arguments}loader_workers=1,steps=400,checkpoint.every=100'
    ),
    'a process that makes batches died',
  )
  log.Log.write = write
  workdir = os.path.join(folder, 'prepared')

  def kill_soon():
    while not (found := multiprocessing.active_children()):
      time.sleep(0.01)
    time.sleep(0.3)
    found[0].kill()

  thread = threading.Thread(target=kill_soon)
  thread.start()
  expect_error(
    lambda: small_run.train(workdir, f'{arguments}workers=2'),
    'a worker process died',
  )
  thread.join()
  small_run.train(workdir, arguments)
  expect_same(small_run.describe(workdir), base.result)
  return f'one line each ("{loading[:33]} ..."); then the result is equal'


FAULTS = (
  Fault(
    'kill_moments',
    'SIGKILL while starting, preparing data, restoring, compiling, in a step, '
    'logging, evaluating, saving, exporting',
    'the same command ends with the bits of an uninterrupted run',
    kill_moments,
  ),
  Fault(
    'kill_each_write',
    'SIGKILL before each write of a save that Python makes; end by SIGXFSZ in '
    "the middle of TensorStore's writes",
    'the newest complete checkpoint is used, nothing is left of the other one',
    kill_each_write,
  ),
  Fault(
    'sigterm_moments',
    'SIGTERM at the same moments',
    'one line, exit code 143, no traceback; the same command ends with the '
    'same bits',
    sigterm_moments,
  ),
  Fault(
    'sigterm_200',
    'SIGTERM at 200 random moments, in a process that runs again and again',
    'no step that was begun is lost',
    sigterm_200,
  ),
  Fault(
    'second_signal',
    'SIGTERM, SIGTERM again and SIGINT within 20 ms, in a save, a step, a '
    'compilation',
    'the later ones change nothing: the checkpoint is finished, exit code 143',
    second_signal,
  ),
  Fault(
    'workers',
    'SIGKILL of a process that makes batches, and of one that prepares data',
    'one line that says so; the same command ends with the same bits',
    workers,
  ),
  Fault(
    'clock',
    'the clock jumps forwards and back while training (simulated: `time.time` '
    'is replaced)',
    'nothing but the times in files is different',
    clock_jumps,
  ),
  Fault(
    'memory',
    '2,000 steps with evaluations and saves',
    'memory grows by less than 8 MB',
    memory,
  ),
)
