"""Faults of prepared data, the cache of programs, and small files of a run."""

import collections
import os
import random
import shutil

import damage
import numpy as np
import small_config
import small_run
from fault import Fault, expect, expect_error, expect_same, quote
from moments import Send

from bert_jax import errors
from bert_jax.data import manifest, records
from bert_jax.pretraining import batches, training_data
from bert_jax.train import task


def read_batches(data: str) -> list[dict]:
  """Returns all batches of a run on prepared data, as a run reads them."""
  c = small_config.get_config(f'dir={data}')
  made = batches.Batches(c, training_data.check_data(c, ''))
  [phase] = task.list_phases(c)
  found = [made.train_batch(phase, t) for t in range(3 * phase.steps)]
  return found + [
    made.eval_batch(phase, i) for i in range(made.eval_batches(phase))
  ]


def judge(data: str, expected: list[dict]) -> str:
  """Returns 'harmless' if the batches are equal, 'refused' if there are none.

  Raises:
    Broken: if they differ, or an error is not one clear line.
  """
  try:
    found = read_batches(data)
  except errors.UserError as error:
    expect('\n' not in str(error), str(error))
    return 'refused'
  for a, b in zip(found, expected, strict=True):
    same = all(np.array_equal(a[name], b[name]) for name in b)
    expect(same, 'other batches, without an error')
  return 'harmless'


def damage_data(base, folder):
  """Does every kind of damage to every file of prepared data, many times."""
  copy, rng = os.path.join(folder, 'data'), random.Random(0)
  expected, found = read_batches(base.data), collections.Counter()
  names = damage.list_files(base.data)
  for name in names:
    for kind in damage.KINDS:
      for _ in range(10 if name == manifest.NAME else 3):
        damage.copy_damaged(base.data, copy, name, kind, rng)
        try:
          found[judge(copy, expected)] += 1
        except Exception as error:
          error.add_note(f'{kind} {name}')
          shutil.copytree(copy, f'{folder}/bad', dirs_exist_ok=True)
          raise
  return (
    f'{found.total()} damages, of {len(names)} files in {len(damage.KINDS)} '
    f'ways: {found["refused"]} refused, {found["harmless"]} harmless, 0 wrong'
  )


def damage_shards(base, folder, count=1000, seed=2):
  """Damages files of records at random places, and reads all records."""
  found = manifest.read(base.data)
  length, size = small_config.LENGTH, found['recipe']['vocab_size']
  files_ = [s['files'][str(length)] for s in found['shards']]
  words = manifest.load_tokenizer(base.data)
  rng, seen = random.Random(seed), collections.Counter()
  kinds = [k for k in damage.KINDS if k not in ('delete', 'make_folder')]

  def read(path, file, **options):
    reader = records.Reader([path], size, [file['records']], **options)
    everything = np.arange(file['records'])
    return reader, reader.rows(everything, length, words.cls_id, words.sep_id)

  sound = [read(f'{base.data}/{x["name"]}', x)[1] for x in files_]
  path = os.path.join(folder, 'shard')
  for _ in range(count):
    number, kind = rng.randrange(len(files_)), rng.choice(kinds)
    file, good = files_[number], sound[number]
    shutil.copyfile(f'{base.data}/{file["name"]}', path)
    damage.KINDS[kind](path, rng)
    try:
      _, rows = read(path, file)
    except errors.UserError:
      seen['named'] += 1
      try:
        reader, rows = read(path, file, skip_corrupt=True)
      except errors.UserError:
        continue
      bad = rows['next_sentence_weights'] == 0
      expect(reader.skipped == bad.sum() > 0, f'{kind}: {reader.skipped}')
      expect((rows['input_ids'][~bad] == good['input_ids'][~bad]).all(), kind)
      seen['skipped records'] += int(bad.sum())
      continue
    same = all(np.array_equal(rows[name], good[name]) for name in good)
    expect(same, f'{kind}: other tokens, without an error')
    seen['harmless'] += 1
  return (
    f'{count}: {seen["named"]} named, {seen["harmless"]} harmless, 0 wrong; '
    f'with `data.skip_corrupt` {seen["skipped records"]:,} records left out'
  )


def damage_cache(base, folder):
  """Damages every compiled program of the cache, in different ways."""
  cache, rng = os.path.join(folder, 'xla'), random.Random(0)
  use = small_run.UseCache(cache)
  kinds = [k for k in damage.KINDS if k != 'make_folder']
  count = 0
  for n in range(4):
    workdir = f'{folder}/run{n}'
    started = small_run.start(workdir, f'input={base.text}', prepare=use)
    code = started.wait()
    expect(code == 0, f'exit code {code}:\n{started.say()[-3000:]}')
    expect_same(small_run.describe(workdir), base.result)
    names = damage.list_files(cache)
    expect(len(names) > 5, f'{names}')
    for k, name in enumerate(names):
      if os.path.exists(f'{cache}/{name}'):
        kind = 'flip' if n == 0 else kinds[(k + 3 * n) % len(kinds)]
        damage.KINDS[kind](f'{cache}/{name}', rng)
        count += n < 3
  return f'{count} entries damaged in 3 runs; bits and export equal'


def damage_claim(base, folder):
  """Damages the files by which a run knows its directory, and resumes."""
  workdir, use = os.path.join(folder, 'run'), f'input={base.text}'
  rng, found = random.Random(0), collections.Counter()
  # Half way, so that there is something left to do.
  half, stop = os.path.join(folder, 'half'), Send('a step', (15,), 4)
  expect(small_run.start(half, use, prepare=stop).wait() == 143, 'half')
  names = '.lock', 'config.json', 'status.json', 'metrics.jsonl'
  for name in names:
    for kind in damage.KINDS:
      if name == '.lock' and kind in ('flip', 'zero', 'truncate', 'empty'):
        continue  # it is empty
      shutil.rmtree(workdir, ignore_errors=True)
      shutil.copytree(half, workdir)
      damage.KINDS[kind](f'{workdir}/{name}', rng)
      try:
        small_run.train(workdir, use)
      except errors.UserError as error:
        expect('\n' not in str(error) and workdir in str(error), str(error))
        found[f'{name} refused'] += 1
        continue
      except Exception as error:
        error.add_note(f'{kind} {name}')
        raise
      # Of a damaged log, rows may be lost, and the card of the export has them.
      mark = small_run.describe(workdir)['fingerprint']
      expect(mark == base.result['fingerprint'], f'{kind} {name}: {mark}')
      found['equal'] += 1
  refused = {k: v for k, v in found.items() if v and k != 'equal'}
  words = ', '.join(f'{n} times {name}' for name, n in refused.items())
  return f'{found["equal"]} times equal bits, {words}; never a traceback'


def _says(path, word) -> bool:
  if not os.path.exists(path):
    return False
  with open(path) as file:
    return word in file.read()


def writers(base, folder):
  """Starts a second run in a directory where one trains."""
  workdir, use = os.path.join(folder, 'run'), f'input={base.text}'
  started = small_run.start(workdir, f'{use},steps=4000,checkpoint.every=50')
  path = f'{workdir}/status.json'
  while not _says(path, 'running'):
    expect(started.process.is_alive(), started.say())
  line = expect_error(
    lambda: small_run.train(workdir, use), 'another process is writing there'
  )
  started.process.kill()
  started.wait()
  small_run.train(
    workdir,
    f'{use},steps=4000,checkpoint.every=50,eval.every=1000,log.every=500',
  )
  return f'{quote(line, "is writing")}; after its death the next one gets it'


FAULTS = (
  Fault(
    'data_files',
    'each file of prepared data, damaged in the same ways as a checkpoint',
    'one line, or the same batches; never other ones',
    damage_data,
  ),
  Fault(
    'shards_1000',
    '1,000 files of records, each damaged in a random way at a random place',
    'one line that names the record, or the same rows; with '
    '`data.skip_corrupt` all rows but the damaged ones',
    damage_shards,
  ),
  Fault(
    'compile_cache',
    'each compiled program in the cache, damaged in the same ways',
    'it is compiled again',
    damage_cache,
  ),
  Fault(
    'claim',
    "the lock, `config.json`, `status.json` and `metrics.jsonl` of a run's "
    'directory, damaged in the same ways',
    'the run goes on with the same bits, or one line says which file it is',
    damage_claim,
  ),
  Fault(
    'writers',
    'a second run in the same directory',
    'one line; when the first one is dead, it gets the directory',
    writers,
  ),
)
