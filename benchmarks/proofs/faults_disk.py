"""Faults of disks and buckets: too small, full, read-only, or they refuse."""

import contextlib
import dataclasses
import functools
import os
import shutil
import subprocess
import threading
import time

import damage
import emulator
import small_run
from small_run import Skipped, expect, expect_error, expect_line, expect_same

from bert_jax.data import shards
from bert_jax.interop import hugging_face
from bert_jax.runtime import bucket
from bert_jax.workdir import log

_MINUTE = 60.0
_BUCKET = f'gs://{emulator.BUCKET}'


@contextlib.contextmanager
def mount(folder: str, kilobytes: int):
  """Yields the path of a disk of a given size."""
  path = os.path.join(folder, 'disk')
  os.makedirs(path, exist_ok=True)
  command = ['mount', '-t', 'tmpfs', '-o', f'size={kilobytes}k', 'tmpfs', path]
  if subprocess.run(command, capture_output=True).returncode:
    raise Skipped('mounting a tmpfs needs the rights of root')
  try:
    yield path
  finally:
    subprocess.run(['umount', '-l', path], check=False)


def remount(path: str, option: str):
  subprocess.run(['mount', '-o', f'remount,{option}', path], check=True)


def fill(disk: str, left: int = 0):
  """Fills a disk but for some bytes."""
  path = os.path.join(disk, 'junk')
  with open(path, 'ab', buffering=0) as file:
    for size in (1 << 16, 1 << 10):
      with contextlib.suppress(OSError):
        while file.write(bytes(size)):
          pass
  os.truncate(path, os.path.getsize(path) - left)


@contextlib.contextmanager
def before_call(owner, name, act):
  """Calls act, with the arguments, before each call of a function."""
  function = getattr(owner, name)

  def acting(*args, **options):
    act(*args, **options)
    return function(*args, **options)

  setattr(owner, name, acting)
  try:
    yield
  finally:
    setattr(owner, name, function)


def before_row(step: int, act):
  """Calls act() before a run logs a step, when the save before is finished."""

  def act_at(self, kind, number, values):
    if (kind, number) == ('train', step):
      time.sleep(1.5)
      act()

  return before_call(log.Log, 'write', act_at)


def before_export(act):
  """Calls act() before a run exports its model."""
  return before_call(hugging_face, 'export', lambda *_, **__: act())


def full_predicted(base, folder):
  """Starts a run on a disk that is too small for its checkpoints."""
  with mount(folder, 200) as disk:
    workdir, use = f'{disk}/run', f'dir={base.data}'
    line = expect_error(lambda: small_run.train(workdir, use), 'MB free')
    left = damage.list_files(workdir)
    expect(not [x for x in left if 'checkpoints' in x], f'{left}')
  return f'before the first step: {small_run.quote(line, "more checkpoint")}'


def full_data(base, folder):
  """Prepares data on a disk that becomes full."""
  use = f'input={base.text}'
  with mount(folder, 16_000) as disk:
    workdir = f'{disk}/run'
    with before_call(shards, 'make', lambda *_: fill(disk)):
      line = expect_error(lambda: small_run.train(workdir, use), 'make room')
    expect(not os.path.exists(f'{workdir}/data'), 'unfinished data')
    os.remove(f'{disk}/junk')
    small_run.train(workdir, use)
    expect_same(small_run.describe(workdir), base.result)
  return f'{small_run.quote(line, "No space")}; then bits equal'


def full(when, words, arguments, kept, base, folder):
  """Fills the disk of a run, which must stop, and go on when there is room.

  Args:
    when: (act) -> context in which the run calls act().
    words, arguments: of its line, and more of the config.
    kept: the checkpoints that must be there when it has stopped.
    base, folder: see `faults.measure`.
  """
  use, left = f'dir={base.data}{arguments}', 0 if 'cannot' in words[0] else 48
  expected = base.result
  if arguments:
    small_run.train(f'{folder}/whole', use)
    expected = small_run.describe(f'{folder}/whole')
  with mount(folder, 8_000) as disk:
    workdir = f'{disk}/run'
    if when is before_export:
      small_run.train(workdir, use)
    with when(lambda: fill(disk, left << 10)):
      line = expect_error(lambda: small_run.train(workdir, use), *words)
    saved = sorted(os.listdir(f'{workdir}/checkpoints'), key=int)
    expect(saved == kept, f'{saved}')
    expect('.export.new' not in os.listdir(workdir), 'half an export')
    if when is before_export:  # the one before is whole
      expect_same(small_run.describe(workdir), expected)
    os.remove(f'{disk}/junk')
    text = small_run.train(workdir, use)
    expect(f'resumed at step {kept[-1]}' in text, text)
    expect_same(small_run.describe(workdir), expected)
  line = line.replace(disk, 'DISK')
  return f'{small_run.quote(line)}; then bits equal'


def full_cache(base, folder):
  """Gives compiled programs a disk that is too small, and a read-only one."""
  with mount(folder, 64) as disk:
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
  with mount(folder, 16_000) as disk:
    shutil.copytree(base.workdir, f'{disk}/run')
    shutil.rmtree(f'{disk}/run/checkpoints/8')
    remount(disk, 'ro')
    before, use = damage.list_files(disk), f'input={base.text}'
    for name in ('run', 'new'):
      train = functools.partial(small_run.train, f'{disk}/{name}', use)
      expect_error(train, 'Read-only')
    expect(damage.list_files(disk) == before, 'something was written')
    small_run.train(f'{folder}/run', f'dir={disk}/run/data')
    expect_same(small_run.describe(f'{folder}/run'), base.result)
  return '"... Read-only file system ..."; data may be there'


@dataclasses.dataclass(frozen=True)
class Impatient:
  """Limits the seconds that a process repeats requests, and waits for one."""

  seconds: float

  def __call__(self):
    bucket.PATIENCE = self.seconds
    bucket._SILENCE = max(1, round(self.seconds))


@contextlib.contextmanager
def refusing(base, status, only='', prepare=None):
  """Yields a run in a bucket that refuses from its first save on, and the proxy.

  Args:
    base: the run whose data are used.
    status: of the answers.
    only: text in the paths of the requests that are refused.
    prepare: see `small_run.start`.
  """
  if not emulator.find_binary():
    raise Skipped("the emulator of a bucket is in the extra 'test'")
  with emulator.running() as url, emulator.Proxy(url) as ill:
    env = {**os.environ, **emulator.environment(ill.url)}
    env['XDG_CACHE_HOME'] = os.path.join(os.getcwd(), f'cache{status}')
    start = functools.partial(
      small_run.start, f'{_BUCKET}/run', f'dir={base.data}', env=env
    )
    started = start(prepare=prepare)
    while not any('checkpoints/2' in request for request in list(ill.seen)):
      expect(started.process.is_alive(), started.say()[-3000:])
      time.sleep(0.01)
    ill.status, ill.only = status, only
    yield started, ill, start


def expect_result(started, base):
  """Waits for a run in a bucket, which must end with the bits of the base."""
  code, text = started.wait(), started.say()
  expect(code == 0, f'exit {code}\n{text[-3000:]}')
  mark = f'step 8, fingerprint={base.result["fingerprint"]}'
  expect(mark in text, text[-3000:])


def bucket_minute(base, folder):
  """Lets the bucket refuse for a minute, in two ways at a time."""
  del folder
  failures = []

  def run(status):
    try:
      with refusing(base, status) as (started, ill, _):
        time.sleep(_MINUTE)
        ill.status = 0
        expect_result(started, base)
    except Exception as error:
      failures.append(error)

  threads = [threading.Thread(target=run, args=(x,)) for x in (503, 429)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  if failures:
    raise failures[0]
  return 'both runs went on after it and ended with the same bits'


def bucket_refuses(base, folder):
  """Lets the bucket refuse for good from the first save on."""
  del folder
  said = []
  for status, only, code, word in (
    (403, '', 1, 'HTTP 403'),
    (412, '', 1, '412'),
    # Not the arrays, for which TensorStore tries for many minutes.
    (429, 'metrics.jsonl', 70, '429'),
    (503, 'metrics.jsonl', 70, '503'),
    (-1, 'metrics.jsonl', 70, 'Timeout'),
  ):
    with refusing(base, status, only, Impatient(2.0)) as (started, ill, start):
      found = started.wait()
      ill.status = 0
      expect_line(found, started.say(), word, expected=code)
      expect_result(start(), base)
      said.append(f'{"silence" if status < 0 else status}: {code}')
  return f'exit codes {", ".join(said)}; then the same bits each time'


ROWS = {
  'full_predicted': full_predicted,
  'full_data': full_data,
  **{
    name: functools.partial(full, when, words, arguments, kept)
    for name, when, words, arguments, kept in (
      (
        'full_checkpoint',
        functools.partial(before_row, 3),
        ('No space left',),
        '',
        ['2'],
      ),
      (
        'full_log',
        functools.partial(before_row, 21),
        ('cannot write the log',),
        ',steps=60,checkpoint.every=20',
        ['20'],
      ),
      (
        'full_export',
        before_export,
        ('cannot write', '/export'),
        '',
        ['4', '6', '8'],
      ),
    )
  },
  'full_cache': full_cache,
  'read_only': read_only,
  'bucket_minute': bucket_minute,
  'bucket_refuses': bucket_refuses,
}
