"""Faults of the bucket, which an emulator and a proxy before it stand for."""

import contextlib
import dataclasses
import os
import random
import threading
import time

import damage
import emulator
import small_run
from fault import (
  Fault,
  Skipped,
  expect,
  expect_error,
  expect_line,
  expect_same,
  quote,
)
from moments import Send

from bert_jax.runtime import bucket, files, globs, lease, storage

_MINUTE = 60.0
_BUCKET = f'gs://{emulator.BUCKET}'


@contextlib.contextmanager
def proxy():
  """Yields a proxy before an empty bucket, used by this process."""
  if not emulator.find_binary():
    raise Skipped("the emulator of a bucket is in the extra 'test'")
  with emulator.running() as url, emulator.Proxy(url) as found:
    os.environ.update(emulator.environment(found.url))
    os.environ['XDG_CACHE_HOME'] = os.path.join(os.getcwd(), 'cache')
    yield found


@dataclasses.dataclass(frozen=True)
class Impatient:
  """Lets a process try requests for so many seconds, and wait for one."""

  seconds: float

  def __call__(self):
    bucket.PATIENCE = self.seconds
    bucket._SILENCE = max(1, round(self.seconds))


def start(workdir, base, prepare=None):
  return small_run.start(
    workdir, f'dir={base.data}', prepare=prepare, env=dict(os.environ)
  )


def wait_for(ill, started, word: str):
  """Waits until a request for a path with `word` was seen."""
  while not any(word in request for request in list(ill.seen)):
    expect(started.process.is_alive(), started.say()[-3000:])
    time.sleep(0.01)


def outage(base, folder):
  """Lets the bucket refuse for a minute, in two ways at a time."""
  del folder

  def run(status, failures):
    with emulator.running() as url, emulator.Proxy(url) as ill:
      env = {**os.environ, **emulator.environment(ill.url)}
      workdir = f'{_BUCKET}/run'
      started = small_run.start(workdir, f'dir={base.data}', env=env)
      try:
        wait_for(ill, started, 'checkpoints/2')
        ill.status = status
        time.sleep(_MINUTE)
        refused = len(ill.seen)
        ill.status = 0
        code = started.wait()
        expect(code == 0, f'{status}: exit {code}\n{started.say()[-3000:]}')
        text = started.say()
        mark = f'step 8, fingerprint={base.result["fingerprint"]}'
        expect(mark in text, text[-3000:])
        failures[status] = refused
      except Exception as error:
        failures[status] = error

  if not emulator.find_binary():
    raise Skipped("the emulator of a bucket is in the extra 'test'")
  found: dict = {}
  threads = [
    threading.Thread(target=run, args=(status, found)) for status in (503, 429)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for result in found.values():
    if isinstance(result, Exception):
      raise result
  return 'both runs went on after it and ended with the same bits'


def refusals(base, folder):
  """Lets the bucket refuse for good from the second save on."""
  said = []
  with proxy() as ill:
    cases = (
      (403, '', 1, 'HTTP 403'),
      (412, '', 1, '412'),
      # Not the arrays, for which TensorStore tries for many minutes.
      (429, 'metrics.jsonl', 75, 'HTTP 429'),
      (503, 'metrics.jsonl', 75, 'HTTP 503'),
      (-1, 'metrics.jsonl', 75, 'no answer'),
    )
    for k, (status, only, code, word) in enumerate(cases):
      workdir = f'{_BUCKET}/run{k}'
      ill.seen.clear()
      started = start(workdir, base, Impatient(2.0))
      wait_for(ill, started, 'checkpoints/2')
      ill.status, ill.only = status, only
      found = started.wait()
      ill.status, ill.only = 0, ''
      expect_line(found, started.say(), word, expected=code)
      again = start(workdir, base)
      expect(again.wait() == 0, again.say()[-3000:])
      expect_same(small_run.describe(workdir), base.result)
      said.append(f'{"silence" if status < 0 else status}: {code}')
  return f'exit codes {", ".join(said)}; then the same bits each time'


def lost_listing(base, folder):
  """Lets the bucket list nothing where there are checkpoints."""
  with proxy() as ill:
    workdir = f'{_BUCKET}/run'
    started = start(workdir, base, Send('a step', (15,), 4))
    expect(started.wait() == 143, started.say()[-3000:])
    before = storage.list_names(f'{workdir}/checkpoints')
    ill.content = b'{"kind": "storage#objects"}'
    ill.status, ill.only = 200, 'prefix=run/checkpoints/'
    again = start(workdir, base)
    line = expect_line(again.wait(), again.say(), 'lists no checkpoint')
    ill.status, ill.only, ill.content = 0, '', None
    after = storage.list_names(f'{workdir}/checkpoints')
    expect(before == after, f'{before}, {after}')
    again = start(workdir, base)
    expect(again.wait() == 0, again.say()[-3000:])
    expect_same(small_run.describe(workdir), base.result)
  return f'{quote(line, "lists")}; then the same bits'


def half_written(base, folder):
  """Leaves objects of a save without the mark that it is complete."""
  with proxy():
    workdir = f'{_BUCKET}/run'
    started = start(workdir, base, Send('a step', (15,), 4))
    expect(started.wait() == 143, started.say()[-3000:])
    names = storage.list_names(f'{workdir}/checkpoints')
    newest = max(names, key=int)
    storage.delete(f'{workdir}/checkpoints/{newest}/commit_success.txt')
    again = start(workdir, base)
    expect(again.wait() == 0, again.say()[-3000:])
    text = again.say()
    older = min(names, key=int)
    expect(f'resumed at step {older}' in text, text)
    expect_same(small_run.describe(workdir), base.result)
  return f'step {older} used instead of {newest}; the same bits'


def writers(base, folder):
  """Starts a second run in a directory where one trains; kills the first."""
  with proxy():
    workdir = f'{_BUCKET}/run'
    lease._RENEW = 2.0
    first = small_run.start(
      workdir,
      f'dir={base.data},steps=100000,checkpoint.every=50',
      prepare=Renewing(2.0),
      env=dict(os.environ),
    )
    while 'compiled ' not in first.say():
      expect(first.process.is_alive(), first.say()[-3000:])
      time.sleep(0.05)
    line = expect_error(
      lambda: small_run.train(workdir, f'dir={base.data}'),
      'it is writing there',
    )
    first.process.kill()
    first.wait()
    storage.delete(workdir + '/checkpoints')
    storage.delete(workdir + '/status.json')
    # Its lock stays, and is damaged now.
    (number,) = storage.list_names(f'{workdir}/.lock')
    lease._GONE = 3.0
    for content in ('', '{', '{"host": 3}'):
      files.write_text(f'{workdir}/.lock/{number}', content)
      with lease.hold(f'{workdir}/.lock'):
        (number,) = storage.list_names(f'{workdir}/.lock')
    text = small_run.train(workdir, f'dir={base.data}')
    expect('Traceback' not in text, text)
    expect_same(small_run.describe(workdir), base.result)
  return f'{quote(line, "it is writing")}; taken over when its holder was gone'


@dataclasses.dataclass(frozen=True)
class Renewing:
  """Lets a process renew its lock more often."""

  seconds: float

  def __call__(self):
    lease._RENEW = self.seconds


def damaged(base, folder):
  """Damages objects of the newest checkpoint."""
  del folder
  rng, workdir = random.Random(0), f'{_BUCKET}/run'
  with proxy():
    expect(start(workdir, base).wait() == 0, 'the run')
    for path in globs.expand(f'{workdir}/checkpoints/8'):
      if '/d/' in path:
        with storage.replacing(path) as new:
          with open(new, 'wb') as file:
            file.write(storage.read(path))
          damage.flip(new, rng)
    again = start(workdir, base)
    expect(again.wait() == 0, again.say()[-3000:])
    expect('checkpoint 8 is bad' in again.say(), again.say())
    moved = storage.list_names(f'{workdir}/checkpoints_bad')
    expect(moved == ['8'], f'moved {moved}')
    expect_same(small_run.describe(workdir), base.result)
  return 'set aside, step 6 used; the same bits'


FAULTS = (
  Fault(
    'bucket_minute',
    'the bucket answers 503, or 429, to all requests for a minute',
    'the run waits, then goes on',
    outage,
  ),
  Fault(
    'bucket_refuses',
    'from a save on, the bucket answers 403 or 412 to all requests, 429 or 503 '
    'to the log, or never (patience 2 s instead of 120)',
    'one line; exit code 75 where the same command may succeed later, otherwise '
    '1; with the bucket well, the same command goes on',
    refusals,
  ),
  Fault(
    'bucket_listing',
    'the bucket lists none of the checkpoints that are there',
    'one line; the run does not start over',
    lost_listing,
  ),
  Fault(
    'bucket_half',
    'the newest checkpoint in a bucket lacks its mark',
    'the one before is used',
    half_written,
  ),
  Fault(
    'bucket_damage',
    'a bit is flipped in each array object of the newest checkpoint',
    'it is set aside, and the one before is used',
    damaged,
  ),
  Fault(
    'bucket_writers',
    'a second run in the same directory of a bucket; the first one is killed, '
    'and its lock damaged',
    'one line that names who writes; the lock is taken over when its holder is '
    'gone',
    writers,
  ),
)
