"""Faults of the process: kills, signals, the clock, memory, workers."""

import multiprocessing
import os
import random
import resource
import signal
import sys
import threading
import time

import interrupted_saves
import random_signals
import small_run
from fault import Fault, expect, expect_error, expect_same
from moments import MOMENTS, Send

from bert_jax.train import meter
from bert_jax.workdir import checkpoint_reader, log


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


def sighup_moments(base, folder):
  """Sends SIGHUP at every moment."""
  texts = _interrupt_everywhere(base, folder, signal.SIGHUP)
  for moment, text in texts.items():
    expect('Traceback' not in text, f'{moment}: {text[-3000:]}')
  return f'{len(texts)} signals, each exit code 129; bits and export equal'


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


def clock_jumps(base, folder):
  """Lets the clock jump while a run trains."""
  real, jumps = time.time, {2: 86_400, 3: -3e8, 5: 4e9, 6: -1.5e9}
  offset = [0.0]
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
  """Measures the memory of a process over 6,000 steps, without and with saves."""
  steps, every = 6000, 200
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
  write, sizes, first = log.Log.write, {}, 600

  def look(self, kind, step, values):
    if kind == 'train':
      with open('/proc/self/statm') as file:
        sizes[step] = int(file.read().split()[1]) * resource.getpagesize()
    return write(self, kind, step, values)

  log.Log.write = look
  try:
    small_run.train(
      workdir,
      f'dir={base.data},steps={first + steps},log.every=100,eval.every=200,'
      f'checkpoint.every={save_every}',
    )
  finally:
    log.Log.write = write
  return sizes[first + steps] - sizes[first]


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
    code=75,
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
    code=75,
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
    interrupted_saves.kill_each_write,
  ),
  Fault(
    'sigterm_moments',
    'SIGTERM at the same moments',
    'one line, exit code 143, no traceback; the same command ends with the '
    'same bits',
    sigterm_moments,
  ),
  Fault(
    'sighup_moments',
    'SIGHUP, which a terminal that is closed sends, at the same moments',
    'one line, exit code 129, no traceback; the same command ends with the '
    'same bits',
    sighup_moments,
  ),
  Fault(
    'sigterm_200',
    'SIGTERM at 200 random moments, in a process that runs again and again',
    'no step that was begun is lost',
    random_signals.sigterm_200,
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
    '6,000 steps with 30 evaluations, without and with 30 saves',
    'memory grows by less than 4 MB, and by less than 1 MB for each save',
    memory,
  ),
)
