"""Faults of the disk: it is, or becomes, too small."""

import os

import damage
import emulator
import small_disk
import small_run
from fault import Fault, Skipped, expect, expect_error, expect_same, quote

from bert_jax.data import local_data
from bert_jax.interop import hf_export
from bert_jax.runtime import copies


def full_predicted(base, folder):
  """Starts runs on disks that are too small."""
  use = f'dir={base.data}'
  with small_disk.mount(folder, 200) as disk:
    line = expect_error(
      lambda: small_run.train(f'{disk}/run', use),
      'MB free',
      'more checkpoint(s) need',
    )
    left = damage.list_files(f'{disk}/run')
    expect(not [x for x in left if 'checkpoints' in x], f'{left}')
  return f'before the first step: {quote(line, "more checkpoint")}'


def full_data(base, folder):
  """Prepares data on a disk that becomes full."""
  with small_disk.mount(folder, 300) as disk:
    workdir = f'{disk}/run'
    line = expect_error(
      lambda: small_run.train(workdir, f'input={base.text}'), 'make room'
    )
    expect(not os.path.exists(f'{workdir}/data'), 'unfinished data')
    small_disk.remount(disk, 'size=16m')
    small_run.train(workdir, f'input={base.text}')
    expect_same(small_run.describe(workdir), base.result)
  return f'{quote(line, "No space")}; then bits equal'


def full_checkpoint(base, folder):
  """Fills the disk before a save."""
  use = f'dir={base.data}'
  with small_disk.mount(folder, 8_000) as disk:
    workdir = f'{disk}/run'
    # Room for the log, none for a checkpoint.
    with small_disk.before_row(
      'train', 3, lambda: small_disk.fill(disk, 48 << 10)
    ):
      line = expect_error(
        lambda: small_run.train(workdir, use), 'No space left'
      )
    saved = f'{workdir}/checkpoints'
    expect(os.listdir(saved) == ['2'], f'{os.listdir(saved)}')
    small_disk.clear(disk)
    text = small_run.train(workdir, use)
    expect('resumed at step 2' in text, text)
    expect_same(small_run.describe(workdir), base.result)
  what = 'the save' if 'cannot save' in line else 'the log'
  return f'{what} failed: "... No space left ..."; then bits equal'


def full_log(base, folder):
  """Fills the disk before a row of the log."""
  use = f'dir={base.data},steps=60,checkpoint.every=20'
  small_run.train(f'{folder}/whole', use)
  with small_disk.mount(folder, 8_000) as disk:
    workdir = f'{disk}/run'
    with small_disk.before_row('train', 21, lambda: small_disk.fill(disk)):
      line = expect_error(
        lambda: small_run.train(workdir, use), 'cannot write the log'
      )
    small_disk.clear(disk)
    text = small_run.train(workdir, use)
    expect('resumed at step 20' in text, text)
    expect_same(
      small_run.describe(workdir), small_run.describe(f'{folder}/whole')
    )
  return f'"... {line[line.index("No space") :]}" Then bits equal'


def full_export(base, folder):
  """Fills the disk before the model is exported, again."""
  use, export = f'dir={base.data}', hf_export.export
  with small_disk.mount(folder, 8_000) as disk:
    workdir = f'{disk}/run'
    small_run.train(workdir, use)

    def fill_first(*args, **options):
      small_disk.fill(disk)
      return export(*args, **options)

    hf_export.export = fill_first
    line = expect_error(
      lambda: small_run.train(workdir, use), 'cannot write', '/export'
    )
    hf_export.export = export
    expect_same(small_run.describe(workdir), base.result)  # the old one
    left = os.listdir(workdir)
    expect('.export.new' not in left, f'{left}')
    small_disk.clear(disk)
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
    with small_disk.mount(folder, 300) as disk:
      os.environ['XDG_CACHE_HOME'] = disk
      line = expect_error(
        lambda: local_data.fetch(there, (16,)), 'a copy needs', 'GB free'
      )
      check, copies.check_room = copies.check_room, lambda *_: None
      met = expect_error(lambda: local_data.fetch(there, (16,)), 'No space')
      copies.check_room = check
      small_disk.remount(disk, 'size=8m')
      found = local_data.fetch(there, (16,))
      for name in os.listdir(base.data):
        if name.endswith(('16.arrayrecord', 'manifest.json')):
          with open(f'{base.data}/{name}', 'rb') as a:
            with open(f'{found}/{name}', 'rb') as b:
              expect(a.read() == b.read(), name)
  return f'predicted: "{line[:12]} ..."; met: "{met[:11]} ..."; then equal'


def full_cache(base, folder):
  """Gives compiled programs a disk that is too small, and a read-only one."""
  with small_disk.mount(folder, 64) as disk:
    use = small_run.UseCache(disk)
    for option in ('size=64k', 'ro'):
      small_disk.remount(disk, option)
      workdir = f'{folder}/{option[:2]}'
      started = small_run.start(workdir, f'dir={base.data}', prepare=use)
      code = started.wait()
      expect(code == 0, f'{option}: {code}\n{started.say()[-3000:]}')
      expect_same(small_run.describe(workdir), base.result)
  return 'both runs ended; bits and export equal'


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
)
