"""The fault matrix: does to a run what can happen to it, and measures what follows.

  python benchmarks/proofs/faults.py
  python benchmarks/proofs/faults.py --only=kill_moments,full_log

The rows, what is done and what is promised, are in docs/faults.md. Those that no
test checks are measured here; a small model is trained on made-up text. Most
compare with an uninterrupted run: last fingerprint, every loss, every byte of the
export. The rows of full and read-only disks need permission to mount a tmpfs,
those of buckets the extra `test`. The exit code is 1 unless every row is ok. Takes
about fifteen minutes on two idle cores.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from functools import partial

import emulator
import jax
import numpy as np
import small_config
import small_run
from small_run import expect, expect_error, expect_same

from bert_jax.data import manifest_file, shards
from bert_jax.interop import hugging_face
from bert_jax.pretraining import batches, training_data
from bert_jax.trainer import meter, task
from bert_jax.workdir import checkpoint_reader, log

sys.path.insert(0, small_run.ROOT)

from tests.workdir import checkpoints

_BUCKET = f'gs://{emulator.BUCKET}'
TWICE = 'a step', 'a save', 'the log'
_AGAIN = signal.SIGTERM, signal.SIGTERM, signal.SIGINT
# Kinds of damage that change bytes, as functions of the bytes, a place, and rng.
_BYTES = {
  'flip': lambda raw, at, rng: (
    raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]
  ),
  'zero': lambda raw, at, rng: (
    raw[:at] + bytes(len(raw[at : at + 64])) + raw[at + 64 :]
  ),
  'truncate': lambda raw, at, rng: raw[:at],
  'empty': lambda raw, at, rng: b'',
  'append': lambda raw, at, rng: raw + rng.randbytes(64),
  'duplicate': lambda raw, at, rng: raw[: at + 64] + raw[at:],
}
KINDS = *_BYTES, 'delete', 'swap', 'make_folder', 'odd_value'
_ODD = 'x', None, -5, 10**30, True, 1.5, [], {}, [1, [2]]


class Skipped(Exception):
  """Something is missing here that the row needs."""


def damage(path: pathlib.Path, kind: str, rng: random.Random):
  """Damages a file in one of the KINDS."""
  raw = path.read_bytes()
  others = [x for x in sorted(path.parent.iterdir()) if x.is_file()]
  others = [x for x in others if x != path]
  if kind == 'delete':
    path.unlink()
  elif kind == 'make_folder':
    path.unlink()
    path.mkdir()
  elif kind == 'swap' and others:
    other = rng.choice(others)
    path.write_bytes(other.read_bytes())
    other.write_bytes(raw)
  elif kind == 'swap':
    path.write_bytes(rng.randbytes(len(raw)))
  elif kind == 'odd_value' and (places := list_places(raw)):
    content, inner, name = rng.choice(places)
    if rng.random() < 0.3:
      del inner[name]
    else:
      inner[name] = rng.choice(_ODD)
    path.write_text(json.dumps(content))
  elif raw:
    # The padding of files, which is 0, is rarely chosen.
    places = [rng.randrange(len(raw)) for _ in range(8)]
    at = next((x for x in places if raw[x]), places[0])
    path.write_bytes(_BYTES.get(kind, _BYTES['flip'])(raw, at, rng))


def list_places(raw: bytes) -> list[tuple]:
  """Lists (content, a list or dict in it, index or name) of a JSON file's values."""
  try:
    content = json.loads(raw)
  except ValueError:
    return []

  def walk(value):
    if isinstance(value, dict | list):
      for name in value if isinstance(value, dict) else range(len(value)):
        yield content, value, name
        yield from walk(value[name])

  return list(walk(content))


def list_files(folder) -> list[str]:
  """Lists the files below a folder, relative to it."""
  root = pathlib.Path(folder)
  return sorted(
    str(x.relative_to(root)) for x in root.rglob('*') if x.is_file()
  )


def damage_copies(sound, copy, cases, judge, rng) -> str:
  """Damages copies of a folder.

  Args:
    sound: the folder.
    copy: path of the copies; what is there, and in COPY_bad, is removed.
    cases: (name of a file, kind of damage) of each copy.
    judge: (copy) -> how it went; raises `Broken` if a promise was not kept.
    rng: for the places of the damage.

  Returns:
    How often each happened.
  """
  counts = collections.Counter()
  for name, kind in cases:
    for path in (copy, f'{copy}_bad'):
      shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(sound, copy)
    damage(pathlib.Path(copy, name), kind, rng)
    try:
      counts[judge(copy)] += 1
    except Exception as error:
      error.add_note(f'{kind} {name}')
      raise
  listed = ', '.join(f'{n} {how}' for how, n in sorted(counts.items()))
  return f'{counts.total()}: {listed}, 0 wrong'


def judge_checkpoint(folder: str) -> str:
  """Restores from a folder whose newest checkpoint, step 2, is damaged.

  Returns:
    'harmless' if step 2 was restored bit for bit, 'set aside' if step 1 was,
    'refused' if the run would have stopped with one line and nothing moved.
  """
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      found = checkpoints.restore_params(folder)
  except small_run.ENDS as error:
    expect('\n' not in str(error), str(error))
    names = sorted(os.listdir(folder))
    expect(names == ['1', '2'], f'{names} after {error}')
    expect(not os.path.exists(f'{folder}_bad'), f'moved after {error}')
    return 'refused'
  expect(found is not None, 'it would have started over')
  state, facts = found
  step = facts['step']
  same = jax.tree.map(
    np.array_equal, state, checkpoints.make_params_state(step)
  )
  expect(step in (1, 2) and all(jax.tree.leaves(same)), f'step {step}: {same}')
  if step == 2:
    return 'harmless'
  expect(os.listdir(f'{folder}_bad') == ['2'], 'step 2 was not moved aside')
  return 'set aside'


def damage_checkpoints(base, folder, count=0, seed=0):
  """Does each kind of damage to each file, or many at random."""
  del base
  sound, copy = (os.path.join(folder, x) for x in ('sound', 'copy'))
  checkpoints.write_params(sound)
  rng = random.Random(seed)
  names = [f'2/{x}' for x in list_files(f'{sound}/2')]
  cases = [(name, kind) for name in names for kind in KINDS]
  if count:
    cases = [(rng.choice(names), rng.choice(KINDS)) for _ in range(count)]
  return damage_copies(sound, copy, cases, judge_checkpoint, rng)


def damage_newest(base, folder):
  """Flips bits of all arrays of a run's newest checkpoint, and resumes."""
  workdir, rng = os.path.join(folder, 'run'), random.Random(0)
  shutil.copytree(base.workdir, workdir)
  for name in list_files(f'{workdir}/checkpoints/8'):
    if '/d/' in name:
      damage(pathlib.Path(workdir, 'checkpoints/8', name), 'flip', rng)
  text = small_run.train(workdir, f'input={base.text}')
  expect('resumed at step 6' in text, text)
  expect_same(small_run.describe(workdir), base.result)
  return 'resumed at step 6; bits, losses and export equal'


def read_batches(data: str) -> list[dict]:
  """Returns all batches of a run on prepared data, as a run reads them."""
  c = small_config.get_config(f'dir={data}')
  with contextlib.redirect_stdout(io.StringIO()):
    made = batches.Batches(c, training_data.check_data(c, ''))
  [phase] = task.list_phases(c)
  return [
    *(made.train_batch(phase, t) for t in range(3 * phase.steps)),
    *(made.eval_batch(phase, i) for i in range(made.eval_batches(phase))),
  ]


def damage_data(base, folder):
  """Does each kind of damage to each file of prepared data, many times."""
  expected = read_batches(base.data)

  def judge(copy):
    try:
      found = read_batches(copy)
    except small_run.ENDS as error:
      expect('\n' not in str(error), str(error))
      return 'refused'
    for a, b in zip(found, expected, strict=True):
      same = all(np.array_equal(a[name], b[name]) for name in b)
      expect(same, 'other batches, without an error')
    return 'harmless'

  cases = [
    (name, kind)
    for name in list_files(base.data)
    for kind in KINDS
    for _ in range(10 if name == manifest_file.NAME else 3)
  ]
  return damage_copies(
    base.data, f'{folder}/data', cases, judge, random.Random(0)
  )


def damage_claim(base, folder):
  """Damages the files by which a run knows its directory, and resumes."""
  use, half = f'input={base.text}', os.path.join(folder, 'half')
  # Half way, so that there is something left to do.
  expect(small_run.start(half, use, stop_at('a step', 4)).wait() == 143, 'half')

  def judge(copy):
    try:
      small_run.train(copy, use)
    except small_run.ENDS as error:
      expect('\n' not in str(error) and copy in str(error), str(error))
      return 'refused'
    # Of a damaged log, rows may be lost, and the card of the export has them.
    mark = small_run.describe(copy)['fingerprint']
    expect(mark == base.result['fingerprint'], mark)
    return 'equal'

  names = '.lock', 'config.json', 'status.json', 'metrics.jsonl'
  cases = [
    (name, kind)
    for name in names
    for kind in KINDS
    # The lock is empty anyway.
    if name != '.lock' or kind not in ('flip', 'zero', 'truncate', 'empty')
  ]
  run = os.path.join(folder, 'run')
  return damage_copies(half, run, cases, judge, random.Random(0))


def stop_at(moment, count=1, numbers=(signal.SIGTERM,), delay=0.0):
  """Returns what sends signals at a moment, see `small_run.send`."""
  return partial(small_run.send, moment, numbers, count, delay)


def list_stops(number: int) -> list:
  """Lists such for each moment, some of them twice."""
  rng = random.Random(0)
  return [
    stop_at(m, n, (number,), 0.0 if m == 'the export' else rng.uniform(0, 0.01))
    for m in small_run.MOMENTS
    for n in ((1, 2) if m in TWICE else (1,))
  ]


def interrupt(stops, code, base, folder):
  """Ends runs as each of `stops` says, and resumes them."""
  for k, act in enumerate(stops):
    workdir, use = os.path.join(folder, str(k)), f'input={base.text}'
    started = small_run.start(workdir, use, act)
    found, text = started.wait(), started.say()
    said = f'{act}: exit code {found}:\n{text[-3000:]}'
    expect(found == code and 'Traceback' not in text, said)
    if code == 128 + signal.SIGTERM:
      line = 'stopped: resume with the same command.'
      expect(text.rstrip().endswith(line), said)
    saved = f'{workdir}/checkpoints'
    if len(act.args[1]) > 1 and os.path.exists(saved) and os.listdir(saved):
      # The save that was under way is finished.
      last = max(map(int, os.listdir(saved)))
      sound = checkpoint_reader.read(saved)[1]['step']
      expect(sound == last, f'of {last} steps, {sound} are sound')
    small_run.train(workdir, use)
    expect_same(small_run.describe(workdir), base.result)
  return f'{len(stops)} times exit code {code}; bits, losses and export equal'


def kill_each_write(base, folder):
  """Kills before each write of a save, and within writes of the arrays."""
  half, arguments = os.path.join(folder, 'half'), f'input={base.text},keep=2'
  # Two checkpoints, so that the third save deletes one.
  code = small_run.start(half, arguments, stop_at('a step', 4)).wait()
  expect(code == 143, f'half: {code}')
  [_, last] = sorted(map(int, os.listdir(f'{half}/checkpoints')))
  step, report = last + 2 - last % 2, os.path.join(folder, 'report')
  kept: collections.Counter[int] = collections.Counter()

  def run(act, expected):
    workdir = os.path.join(folder, 'run')
    shutil.rmtree(workdir, ignore_errors=True)
    shutil.copytree(half, workdir)
    code = small_run.start(workdir, arguments, act).wait()
    expect(code == expected, f'{act}: {code}')
    if code:
      found = checkpoint_reader.read(f'{workdir}/checkpoints')[1]['step']
      kept[found] += 1
      expect(found in (last, step), f'after {act}: step {found}')
      small_run.train(workdir, arguments)
      left = sorted(os.listdir(f'{workdir}/checkpoints'))
      expect(left == ['6', '8'], f'after {act} there is {left}')
    expect_same(small_run.describe(workdir), base.result)

  before = partial(small_run.kill_before_write, step, report=report)
  run(partial(before, 0), 0)
  total = json.loads(pathlib.Path(report).read_text())
  expect(total > 5, f'only {total} writes')
  for number in range(1, total + 1):
    run(partial(before, number), -signal.SIGKILL)
  sizes = 6_000, 11_000, 20_000, 25_000
  for size in sizes:
    act = partial(small_run.kill_in_write, step, size)
    run(act, -signal.SIGXFSZ)
  return (
    f'{total} kills before a write, {len(sizes)} within one; resumed at step '
    f'{last} {kept[last]} times, at {step} {kept[step]} times; bits equal'
  )


def measure_growth(base, folder, steps=6000, every=200):
  """Measures the memory of a process over many steps, without and with saves."""
  first, grown = 600, []
  for name, save_every in (('alone', 1_000_000), ('saving', every)):
    sizes = {}

    def look(self, step, *args, sizes=sizes):
      if step in (first, first + steps):
        pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
        sizes[step] = pages * resource.getpagesize()

    with before_call(meter.Meter, 'add', look):
      small_run.train(
        f'{folder}/{name}',
        f'dir={base.data},steps={first + steps},log.every=100,eval.every=200,'
        f'checkpoint.every={save_every}',
      )
    grown.append((sizes[first + steps] - sizes[first]) / 1e6)
  # What the allocator keeps goes up and down by some MB.
  alone, saving = grown
  expect(alone < 4, f'{alone:.1f} MB more without saves')
  expect(saving < steps // every, f'{saving:.1f} MB more with saves')
  return (
    f'{alone:+.1f} MB in {steps:,} steps with 30 evaluations, '
    f'{saving:+.1f} MB with 30 saves, too'
  )


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
  return before_call(hugging_face, 'export', lambda *_, **__: act())


def before_data(act):
  return before_call(shards, 'make', lambda *_: act())


def start_on_small(base, folder):
  """Starts a run on a disk that is too small for its checkpoints."""
  with mount(folder, 200) as disk:
    workdir, use = f'{disk}/run', f'dir={base.data}'
    expect_error(lambda: small_run.train(workdir, use), 'MB free')
    left = list_files(workdir)
    expect(not [x for x in left if 'checkpoints' in x], f'{left}')
  return 'one line before the first step'


def fill_disk(when, left, words, arguments, kept, base, folder):
  """Fills the disk of a run, which must stop, and go on when there is room.

  Args:
    when: (act) -> context in which the run calls act().
    left: KiB that are left free.
    words, arguments: of its line, and more of the config.
    kept: the checkpoints that must be there when it has stopped.
    base, folder: the run to compare with; where this one is.
  """
  use = f'dir={base.data}{arguments}'
  if when is before_data:
    use = f'input={base.text}'
  expected = base.result
  if arguments:
    small_run.train(f'{folder}/whole', use)
    expected = small_run.describe(f'{folder}/whole')
  with mount(folder, 16_000 if when is before_data else 8_000) as disk:
    workdir = f'{disk}/run'
    if when is before_export:
      small_run.train(workdir, use)
    with when(lambda: fill(disk, left << 10)):
      expect_error(lambda: small_run.train(workdir, use), *words)
    names = set(os.listdir(workdir))
    expect(not names & {'.export.new', 'data'}, f'half is left: {names}')
    if kept:
      saved = sorted(os.listdir(f'{workdir}/checkpoints'), key=int)
      expect(saved == kept, f'{saved}')
    if when is before_export:  # the one before is whole
      expect_same(small_run.describe(workdir), expected)
    os.remove(f'{disk}/junk')
    text = small_run.train(workdir, use)
    expect(not kept or f'resumed at step {kept[-1]}' in text, text)
    expect_same(small_run.describe(workdir), expected)
  return 'one line; then bits equal'


def fill_cache(base, folder):
  """Gives compiled programs a disk that is too small, and a read-only one."""
  with mount(folder, 64) as disk:
    act = partial(small_run.use_cache, disk)
    for option in ('size=64k', 'ro'):
      remount(disk, option)
      workdir = f'{folder}/{option[:2]}'
      started = small_run.start(workdir, f'dir={base.data}', act)
      code = started.wait()
      expect(code == 0, f'{option}: {code}\n{started.say()[-3000:]}')
      expect_same(small_run.describe(workdir), base.result)
  return 'both runs ended; bits and export equal'


def forbid_writing(base, folder):
  """Trains from and in folders of a disk that cannot be written."""
  with mount(folder, 16_000) as disk:
    shutil.copytree(base.workdir, f'{disk}/run')
    shutil.rmtree(f'{disk}/run/checkpoints/8')
    remount(disk, 'ro')
    before, use = list_files(disk), f'input={base.text}'
    for name in ('run', 'new'):
      train = partial(small_run.train, f'{disk}/{name}', use)
      expect_error(train, 'Read-only')
    expect(list_files(disk) == before, 'something was written')
    small_run.train(f'{folder}/run', f'dir={disk}/run/data')
    expect_same(small_run.describe(f'{folder}/run'), base.result)
  return 'one line; data may be there'


@contextlib.contextmanager
def refusing(base, status, only='', act=None):
  """Yields a run in a bucket that refuses from its first save on, and the proxy.

  Args:
    base: the run whose data are used.
    status: of the answers.
    only: text in the paths of the requests that are refused.
    act: see `small_run.start`.
  """
  if not emulator.find_binary():
    raise Skipped("the emulator of a bucket is in the extra 'test'")
  with emulator.running() as url, emulator.Proxy(url) as ill:
    env = {**os.environ, **emulator.environment(ill.url)}
    env['XDG_CACHE_HOME'] = os.path.join(os.getcwd(), f'cache{status}')
    start = partial(
      small_run.start, f'{_BUCKET}/run', f'dir={base.data}', env=env
    )
    started = start(act=act)
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


def refuse_for_a_minute(base, folder):
  """Lets the bucket refuse for a minute, in two ways at a time."""
  del folder
  failures = []

  def run(status):
    try:
      with refusing(base, status) as (started, ill, _):
        time.sleep(60)
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


def refuse_for_good(base, folder):
  """Lets the bucket refuse for good from the first save on."""
  del folder
  said = []
  for status, only, codes, word in (
    # A right is missing: 1 where the log meets it first, 70 where a save does.
    (403, '', (1, 70), 'HTTP 403'),
    (412, '', (70,), 'FileExistsError'),
    # Not the arrays, for which TensorStore tries for many minutes.
    (429, 'metrics.jsonl', (70,), '429'),
    (503, 'metrics.jsonl', (70,), '503'),
    (-1, 'metrics.jsonl', (70,), 'Timeout'),
  ):
    act = partial(small_run.limit_patience, 2.0)
    with refusing(base, status, only, act) as (started, ill, start):
      found, text = started.wait(), started.say()
      ill.status = 0
      lines = [x for x in text.splitlines() if x.startswith('error: ')]
      good = found in codes and len(lines) == 1 and word in lines[0]
      expect(good and 'Traceback' not in text, f'exit {found}\n{text[-3000:]}')
      expect_result(start(), base)
      said.append(f'{"silence" if status < 0 else status}: {found}')
  return f'exit codes {", ".join(said)}; then the same bits each time'


# {name of a row: (base, empty folder) -> what was measured}
ROWS = {
  'memory': measure_growth,
  'kill_moments': partial(
    interrupt, list_stops(signal.SIGKILL), -signal.SIGKILL
  ),
  'kill_each_write': kill_each_write,
  'sigterm_moments': partial(interrupt, list_stops(signal.SIGTERM), 143),
  'sighup_moments': partial(interrupt, list_stops(signal.SIGHUP), 129),
  'second_signal': partial(
    interrupt, [stop_at(x, 1, _AGAIN) for x in (*TWICE[:2], 'compilation')], 143
  ),
  'checkpoint_files': damage_checkpoints,
  'checkpoints_1000': partial(damage_checkpoints, count=1000, seed=1),
  'newest_checkpoint': damage_newest,
  'data_files': damage_data,
  'claim': damage_claim,
  'full_predicted': start_on_small,
  'full_data': partial(fill_disk, before_data, 0, ['No space left'], '', []),
  'full_checkpoint': partial(
    fill_disk, partial(before_row, 3), 48, ['No space left'], '', ['2']
  ),
  'full_log': partial(
    *(fill_disk, partial(before_row, 21), 0, ['cannot write the log']),
    *(',steps=60,checkpoint.every=20', ['20']),
  ),
  'full_export': partial(
    *(fill_disk, before_export, 0, ['cannot write', '/export']),
    *('', ['4', '6', '8']),
  ),
  'full_cache': fill_cache,
  'read_only': forbid_writing,
  'bucket_minute': refuse_for_a_minute,
  'bucket_refuses': refuse_for_good,
}


def run_row(name, scratch, base) -> tuple[str, str]:
  """Measures a row; returns (ok, skipped or BROKEN, what was measured)."""
  folder = os.path.join(scratch, name)
  os.mkdir(folder)
  os.chdir(folder)
  try:
    return 'ok', ROWS[name](base, folder)
  except Skipped as error:
    return 'skipped', str(error)
  except Exception:
    return 'BROKEN', traceback.format_exc()


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', help='names of rows, separated by commas')
  names = parser.parse_args().only
  names = names.split(',') if names else list(ROWS)
  if unknown := set(names) - set(ROWS):
    parser.error(f'no row is called {", ".join(unknown)}: {", ".join(ROWS)}')
  begin, bad = time.monotonic(), []
  with tempfile.TemporaryDirectory() as scratch:
    small_run.set_environment(os.path.join(scratch, 'xla'))
    base = small_run.make_base(scratch)
    for name in names:
      state, text = run_row(name, scratch, base)
      seconds = time.monotonic() - begin
      print(f'{seconds:4.0f} s {state:7} {name}: {text}', flush=True)
      bad += [name] * (state != 'ok')
    os.chdir('/')
  print(
    f'verdict: {"FAILED " + ", ".join(bad) if bad else "ok"}, {len(names)} rows '
    f'in {time.monotonic() - begin:.0f} s'
  )
  return 1 if bad else 0


if __name__ == '__main__':
  sys.exit(main())
