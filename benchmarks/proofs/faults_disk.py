"""Faults of the disk: full, read-only, failing, slow."""

import contextlib
import errno
import functools
import os
import shutil
import subprocess
import time

import damage
import emulator
import small_run
from fault import Fault, Skipped, expect, expect_error, expect_same
from faults_process import replace

from bert_jax.data import local_data
from bert_jax.runtime import copies
from bert_jax.workdir import checkpoint, checkpoint_reader, log

_NO_MOUNT = 'mounting a tmpfs needs the rights of root'


@contextlib.contextmanager
def small_disk(folder: str, kilobytes: int):
  """Yields the path of a disk of a given size."""
  path = os.path.join(folder, 'disk')
  os.makedirs(path, exist_ok=True)
  command = ['mount', '-t', 'tmpfs', '-o', f'size={kilobytes}k', 'tmpfs', path]
  if subprocess.run(command, capture_output=True).returncode:
    raise Skipped(_NO_MOUNT)
  try:
    yield path
  finally:
    subprocess.run(['umount', '-l', path], check=False)


def remount(path: str, option: str):
  subprocess.run(['mount', '-o', f'remount,{option}', path], check=True)


def fill(disk: str, left: int = 0):
  """Fills a disk but for some bytes."""
  with open(os.path.join(disk, 'junk'), 'ab', buffering=0) as file:
    with contextlib.suppress(OSError):
      while file.write(bytes(1 << 16)):
        pass
    with contextlib.suppress(OSError):
      while file.write(bytes(1 << 10)):
        pass
  size = os.path.getsize(os.path.join(disk, 'junk'))
  os.truncate(os.path.join(disk, 'junk'), size - left)


def clear(disk: str):
  os.remove(os.path.join(disk, 'junk'))


@contextlib.contextmanager
def before_row(kind: str, step: int, act):
  """Calls act() before a run logs a row."""
  write = log.Log.write

  def acting(self, found, number, values):
    if (found, number) == (kind, step):
      act()
    return write(self, found, number, values)

  log.Log.write = acting
  try:
    yield
  finally:
    log.Log.write = write


def full_predicted(base, folder):
  """Starts runs on disks that are too small."""
  use = f'dir={base.data}'
  with small_disk(folder, 200) as disk:
    line = expect_error(
      lambda: small_run.train(f'{disk}/run', use),
      'GB free',
      'more checkpoint(s) need',
    )
    left = damage.list_files(f'{disk}/run')
    expect(not [x for x in left if 'checkpoints' in x], f'{left}')
  return f'before the first step: "... {line[-49:]}"'


def full_data(base, folder):
  """Prepares data on a disk that becomes full."""
  with small_disk(folder, 300) as disk:
    workdir = f'{disk}/run'
    line = expect_error(
      lambda: small_run.train(workdir, f'input={base.text}'), 'make room'
    )
    expect(not os.path.exists(f'{workdir}/data'), 'unfinished data')
    remount(disk, 'size=16m')
    small_run.train(workdir, f'input={base.text}')
    expect_same(small_run.describe(workdir), base.result)
  return f'"... {line[line.index("No space") :][:52]} ..."; then bits equal'


def full_checkpoint(base, folder):
  """Fills the disk before a save."""
  use = f'dir={base.data}'
  with small_disk(folder, 8_000) as disk:
    workdir = f'{disk}/run'
    # Room for the log, none for a checkpoint.
    with before_row('train', 3, lambda: fill(disk, 48 << 10)):
      line = expect_error(
        lambda: small_run.train(workdir, use),
        'cannot save a checkpoint',
        'step 2 is kept',
      )
    saved = f'{workdir}/checkpoints'
    expect(os.listdir(saved) == ['2'], f'{os.listdir(saved)}')
    clear(disk)
    text = small_run.train(workdir, use)
    expect('resumed at step 2' in text, text)
    expect_same(small_run.describe(workdir), base.result)
  return f'"... {line[line.index("(step") :][:19]}..."; then bits equal'


def full_log(base, folder):
  """Fills the disk before a row of the log."""
  use = f'dir={base.data},checkpoint.every=3'
  with small_disk(folder, 8_000) as disk:
    workdir = f'{disk}/run'
    with before_row('train', 5, lambda: fill(disk)):
      line = expect_error(
        lambda: small_run.train(workdir, use), 'cannot write the log'
      )
    clear(disk)
    text = small_run.train(workdir, use)
    expect('resumed at step 3' in text, text)
    found, wanted = small_run.describe(workdir), dict(base.result)
    # The config in its card has another checkpoint.every.
    wanted['export'] = {**wanted['export']}
    expect_same(found, wanted)
  return f'"... {line[line.index("No space") :]}" Then bits equal'


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
    lambda: small_run.train(workdir, use), 'cannot write the log'
  )
  log.Log._write_event = write
  small_run.train(workdir, use)
  expect_same(small_run.describe(workdir), base.result)
  return f'"... {line[line.index("Input") :]}" Then bits equal'


def full_export(base, folder):
  """Fills the disk before the model is exported, again."""
  use = f'dir={base.data}'
  with small_disk(folder, 8_000) as disk:
    workdir = f'{disk}/run'
    small_run.train(workdir, use)
    shutil.rmtree(f'{workdir}/checkpoints/8')  # so that it is done again
    with before_row('checkpoint', 8, lambda: fill(disk, 160 << 10)):
      line = expect_error(
        lambda: small_run.train(workdir, use), 'cannot write', '/export'
      )
    expect_same(small_run.describe(workdir), base.result)  # the old one
    left = os.listdir(workdir)
    expect('.export.new' not in left, f'{left}')
    clear(disk)
    small_run.train(workdir, use)
    expect_same(small_run.describe(workdir), base.result)
  return f'"{line[:12]} ..."; the export before is whole; then bits equal'


def full_copies(base, folder):
  """Copies data from a bucket to disks that are or become too small."""
  if not emulator.find_binary():
    raise Skipped("the emulator of a bucket is in the extra 'test'")
  with emulator.running() as url:
    os.environ.update(emulator.environment(url))
    there = emulator.upload(base.data, f'gs://{emulator.BUCKET}/data')
    with small_disk(folder, 300) as disk:
      os.environ['XDG_CACHE_HOME'] = disk
      line = expect_error(
        lambda: local_data.fetch(there, (16,)), 'a copy needs', 'GB free'
      )
      check, copies.check_room = copies.check_room, lambda *_: None
      met = expect_error(lambda: local_data.fetch(there, (16,)), 'No space')
      copies.check_room = check
      remount(disk, 'size=8m')
      found = local_data.fetch(there, (16,))
      for name in os.listdir(base.data):
        if name.endswith(('16.arrayrecord', 'manifest.json')):
          with open(f'{base.data}/{name}', 'rb') as a:
            with open(f'{found}/{name}', 'rb') as b:
              expect(a.read() == b.read(), name)
  return f'predicted: "{line[:12]} ..."; met: "{met[:11]} ..."; then equal'


def full_cache(base, folder):
  """Gives compiled programs a disk that is too small, and a read-only one."""
  with small_disk(folder, 64) as disk:
    use = small_run.UseCache(disk)
    for option in ('size=64k', 'ro'):
      remount(disk, option)
      workdir = f'{folder}/{option[:2]}'
      started = small_run.start(workdir, f'dir={base.data}', prepare=use)
      code = started.wait()
      expect(code == 0, f'{option}: {code}\n{started.say()[-3000:]}')
      expect_same(small_run.describe(workdir), base.result)
  return 'both runs ended; bits and export equal'


def read_only(base, folder):
  """Trains from and in folders of a disk that cannot be written."""
  with small_disk(folder, 16_000) as disk:
    shutil.copytree(base.workdir, f'{disk}/run')
    shutil.rmtree(f'{disk}/run/checkpoints/8')
    remount(disk, 'ro')
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
  workdir, use = f'{folder}/run', f'dir={folder}/data'
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
    expect_error(lambda: small_run.train(workdir, use), 'Input/output error')
    os.remove(name)
    os.rename(f'{folder}/kept', name)
  stat = os.stat

  def fail(path, *args, **options):
    if str(path).endswith('checkpoints/8/state'):
      raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    return stat(path, *args, **options)

  os.stat = fail
  expect_error(
    lambda: small_run.train(workdir, use), 'Input/output', 'nothing was moved'
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
  from bert_jax.train import meter

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
    'full_predicted',
    'a disk without room for the checkpoints',
    'one line before the first step, with what is needed and what is free',
    full_predicted,
  ),
  Fault(
    'full_data',
    'a disk that fills up while data are prepared',
    'one line; with more room the same command goes on',
    full_data,
  ),
  Fault(
    'full_checkpoint',
    'a disk that fills up before a save',
    'one line, the checkpoint before is kept, no half one is left; with room '
    'the same command goes on',
    full_checkpoint,
  ),
  Fault(
    'full_log',
    'a disk that fills up before a row of the log',
    'one line; with room the same command goes on',
    full_log,
  ),
  Fault(
    'failing_log',
    'the writer of TensorBoard events fails (simulated: it raises EIO)',
    'one line; then the same command goes on',
    failing_log,
  ),
  Fault(
    'full_export',
    'a disk that fills up before the export',
    'one line, the export before stays whole; with room the same command '
    'writes it',
    full_export,
  ),
  Fault(
    'full_copies',
    'a disk that is too small for copies of data from a bucket, and one that '
    'fills up meanwhile',
    'one line each; with room all is copied',
    full_copies,
  ),
  Fault(
    'full_cache',
    'a full and a read-only disk for compiled programs',
    'the run does without',
    full_cache,
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
