"""Kills a run at each write of a save."""

import collections
import dataclasses
import json
import os
import resource
import shutil
import signal
import sys

import small_run
from fault import expect, expect_same
from moments import Send, replace

from bert_jax.workdir import checkpoint_reader

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
  sizes = 6_000, 11_000, 20_000, 25_000
  for size in sizes:
    code = run(KillInWrite(step, size))
    expect(code == -signal.SIGXFSZ, f'size {size}: {code}')
  return (
    f'{total} kills before a write, {len(sizes)} within one; resumed at step '
    f'{last} {kept[last]} times, at {step} {kept[step]} times; bits equal'
  )
