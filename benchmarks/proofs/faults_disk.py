"""Faults of the disk: read-only, failing, slow."""

import errno
import functools
import os
import shutil
import time

import damage
import small_disk
import small_run
from fault import Fault, expect, expect_error, expect_same
from moments import replace

from bert_jax.train import meter
from bert_jax.workdir import checkpoint, checkpoint_reader, log


def failing_log(base, folder):
  """Lets writes of the log fail."""
  workdir, use = f'{folder}/run', f'dir={base.data}'

  def fail():
    raise OSError(errno.EIO, os.strerror(errno.EIO))

  def flush(write):
    def failing(self, step, **content):
      return fail() if step == 5 else write(self, step, **content)

    return failing

  write = log.Log._write_event
  replace('workdir.log', 'Log._write_event', flush)
  line = expect_error(
    lambda: small_run.train(workdir, use), 'cannot write the log', code=75
  )
  log.Log._write_event = write
  small_run.train(workdir, use)
  expect_same(small_run.describe(workdir), base.result)
  return f'"... {line[line.index("Input") :]}" Then bits equal'


def read_only(base, folder):
  """Trains from and in folders of a disk that cannot be written."""
  with small_disk.mount(folder, 16_000) as disk:
    shutil.copytree(base.workdir, f'{disk}/run')
    shutil.rmtree(f'{disk}/run/checkpoints/8')
    small_disk.remount(disk, 'ro')
    before = damage.list_files(disk)
    lines = [
      expect_error(
        functools.partial(small_run.train, f'{disk}/{name}', use), 'Read-only'
      )
      for name, use in (
        ('run', f'input={base.text}'),
        ('new', f'input={base.text}'),
      )
    ]
    expect(damage.list_files(disk) == before, 'something was written')
    small_run.train(f'{folder}/run', f'dir={disk}/run/data')
    expect_same(small_run.describe(f'{folder}/run'), base.result)
  return f'"{lines[0][:12]} ... Read-only file system ..."; data may be there'


def failing_disk(base, folder):
  """Lets reads fail: /proc/self/mem answers EIO to whoever reads its start."""
  workdir, use = f'{folder}/run', f'input={base.text},dir={folder}/data'
  shutil.copytree(base.workdir, workdir)
  shutil.copytree(base.data, f'{folder}/data')
  names = (
    *(f'{workdir}/config.json', f'{workdir}/metrics.jsonl'),
    f'{workdir}/checkpoints/8/facts/metadata',
    *(f'{folder}/data/manifest.json', f'{folder}/data/vocab.txt'),
  )
  for name in names:
    os.rename(name, f'{folder}/kept')
    os.symlink('/proc/self/mem', name)
    expect_error(
      lambda: small_run.train(workdir, use), 'Input/output error', code=75
    )
    os.remove(name)
    os.rename(f'{folder}/kept', name)
  stat = os.stat

  def fail(path, *args, **options):
    if str(path).endswith('checkpoints/8/state'):
      raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    return stat(path, *args, **options)

  os.stat = fail
  expect_error(
    lambda: small_run.train(workdir, use),
    *('Input/output', 'nothing was moved'),
    code=75,
  )
  os.stat = stat
  expect(not os.path.exists(f'{workdir}/checkpoints_bad'), 'moved')
  text = small_run.train(workdir, use)
  expect('resumed at step 8' in text, text)
  expect_same(small_run.describe(workdir), base.result)
  return (
    f'{len(names) + 1} files: one line each; nothing moved; then bits equal'
  )


def slow_disk(base, folder):
  """Measures how long a save keeps a run waiting on a slow disk."""
  seconds, slept = 0.3, []
  names = 'mkdir', 'rename', 'replace', 'fsync'
  real = {name: getattr(os, name) for name in names}

  def make_slow(function):
    def slow(*args, **options):
      if 'checkpoints' in str(args[0]):
        slept.append(seconds)
        time.sleep(seconds)
      return function(*args, **options)

    return slow

  for name, function in real.items():
    setattr(os, name, make_slow(function))
  save, add, waits, steps = checkpoint.Checkpoints.save, None, {}, []
  add = meter.Meter.add

  def timed(self, step, *args):
    begin = time.monotonic()
    try:
      return save(self, step, *args)
    finally:
      waits[step] = time.monotonic() - begin

  def stepped(self, *args):
    steps.append(time.monotonic())
    return add(self, *args)

  checkpoint.Checkpoints.save, meter.Meter.add = timed, stepped
  workdir = f'{folder}/run'
  # A step of about half a second, so that saves have time to finish.
  size = 'num_layers=2,hidden_size=256,mlp_size=1024,num_heads=4,batch_size=192'
  small_run.train(
    workdir,
    f'dir={base.data},{size},steps=25,checkpoint.every=12,eval.every=0',
  )
  usual = sorted(b - a for a, b in zip(steps, steps[1:], strict=False))
  usual = usual[len(usual) // 2]
  _, facts = checkpoint_reader.read(f'{workdir}/checkpoints')
  expect(facts['step'] == 25, f'{facts["step"]}')
  longest = max(waits[step] for step in (12, 24))
  in_all = sum(slept) / len(waits)
  expect(in_all > 4 * seconds, f'only {in_all:.1f} s of waiting per save')
  expect(
    longest < usual, f'a save {longest:.2f} s, a step {usual:.2f} s: {waits}'
  )
  return (
    f'saves took {in_all:.1f} s more each and kept training waiting for '
    f'{longest:.2f} s at most; a step takes {usual:.2f} s'
  )


FAULTS = (
  Fault(
    'failing_log',
    'the writer of TensorBoard events fails (simulated: it raises EIO)',
    'one line; then the same command goes on',
    failing_log,
  ),
  Fault(
    'read_only',
    "a read-only disk with a run's directory, with a new one, with data",
    'one line; data may be read-only',
    read_only,
  ),
  Fault(
    'failing_disk',
    'EIO from each file of a run that is read (symbolic links to '
    '/proc/self/mem; for the arrays simulated: `os.stat` raises it)',
    'one line, nothing is taken for damaged or moved; then the same command '
    'goes on',
    failing_disk,
  ),
  Fault(
    'slow_disk',
    'a disk on which each call that makes, renames or syncs takes 0.3 s '
    "(simulated: Python's calls sleep)",
    'training waits for a save no longer than a step takes',
    slow_disk,
  ),
)
