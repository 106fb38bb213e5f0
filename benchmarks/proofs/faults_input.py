"""Faults of input and numbers: NaN, spikes, odd batches, other configs."""

import json
import math
import os
import shutil

import numpy as np
import small_config
import small_run
from fault import Fault, expect, expect_error, quote

from bert_jax import replay
from bert_jax.data import dataset, manifest, records, rows
from bert_jax.pretraining import batches
from bert_jax.workdir import checkpoint_reader, log


def train_with(change, workdir, arguments) -> str:
  """Trains on batches that change(batch, step) has changed in place."""
  make = batches.Batches.train_batch

  def changed(self, phase, step, rows=None):
    batch = make(self, phase, step, rows)
    change(batch, step)
    return batch

  batches.Batches.train_batch = changed
  try:
    return small_run.train(workdir, arguments)
  finally:
    batches.Batches.train_batch = make


def list_rows(workdir, kind) -> list[dict]:
  found = log.read(f'{workdir}/metrics.jsonl')
  return [row for row in found if row['kind'] == kind]


def nan(base, folder):
  """Puts NaN into one batch, then into all from a step on."""

  def once(batch, step):
    if step == 3:
      batch['masked_lm_weights'][0, 0] = math.nan

  one, use = f'{folder}/one', f'dir={base.data}'
  text = train_with(once, one, use)
  [row] = list_rows(one, 'skipped')
  expect(row['step'] == 4 and 'bert_jax.replay' in text, f'{row}\n{text}')
  last = list_rows(one, 'train')[-1]
  expect(last['step'] == 8 and math.isfinite(last['loss']), f'{last}')

  def from_then_on(batch, step):
    if step >= 5:
      batch['masked_lm_weights'][:] = math.nan

  all_, many = f'{folder}/all', f'{use},steps=60,checkpoint.every=4'
  line = expect_error(
    lambda: train_with(from_then_on, all_, many), '20 updates in a row'
  )
  _, facts = checkpoint_reader.read(f'{all_}/checkpoints')
  expect(facts['step'] == 4, f'the newest checkpoint is {facts["step"]}')
  return f'step 4 skipped, the rest trained; then {quote(line)}'


def spike(base, folder):
  """Trains on batches whose words are always one; then on one of another."""
  at = 70

  def change(batch, step):
    batch['masked_lm_ids'][:] = 110 if step == at else 20
    batch['next_sentence_labels'][:] = 0

  workdir = f'{folder}/run'
  text = train_with(
    change,
    workdir,
    f'dir={base.data},steps=90,learning_rate=0.02,dropout=0,'
    'attention_dropout=0,checkpoint.every=50,eval.every=0',
  )
  found = list_rows(workdir, 'spike')
  expect([row['step'] for row in found] == [at + 1], f'{found}')
  command = f'python -m {replay.__name__} --workdir={workdir} --step={at + 1}'
  expect(command in text, text)
  row = found[0]
  return (
    f'loss {row["loss"]:.2f} after a median of {row["median"]:.2f}: logged at '
    'its step, with the command to see why; the run went on'
  )


def no_masks(base, folder):
  """Trains on a batch without tokens to predict."""

  def change(batch, step):
    if step == 3:
      batch['masked_lm_weights'][:] = 0

  workdir = f'{folder}/run'
  train_with(change, workdir, f'dir={base.data}')
  found = list_rows(workdir, 'train')
  losses = [row['mlm_loss'] for row in found]
  expect(losses[3] == 0 and len(losses) == 8, f'{losses}')
  expect(np.isfinite([row['loss'] for row in found]).all(), f'{found}')
  expect(not list_rows(workdir, 'skipped'), 'an update was skipped')
  return 'its MLM loss counts as 0, its NSP loss is learnt; all losses finite'


def large_ids(base, folder):
  """Writes a record with an id that the vocabulary does not have."""
  data = f'{folder}/data'
  shutil.copytree(base.data, data)
  found = manifest.read(data)
  shard = next(s for s in found['shards'] if s['split'] == 'train')
  file = shard['files'][str(small_config.LENGTH)]
  path, size = f'{data}/{file["name"]}', found['recipe']['vocab_size']
  ids = np.array([7, size, 9, 10], '<u2')
  [bad] = rows.encode(
    *(ids, np.array([[[0, 2], [2, 4]]]), np.array([False])),
    *(np.arange(1), np.array([1])),
  )
  records.write(path, [bad] * file['records'])
  expect(os.path.getsize(path) == file['bytes'], 'the size has changed')
  line = expect_error(
    lambda: small_run.train(f'{folder}/run', f'dir={data}'),
    f'token id {size}',
    file['name'],
  )
  expect_error(lambda: dataset.verify(data), 'is not as it was made')
  return quote(line, 'holds')


def other_config(base, folder):
  """Resumes with other values, shapes, vocabularies, versions."""
  workdir, use = f'{folder}/run', f'input={base.text}'
  shutil.copytree(base.workdir, workdir)
  changes = {
    'learning_rate=0.5': ('learning_rate', 'use another --workdir'),
    'hidden_size=16': ('model.hidden_size was 8, is 16',),
    'seq_length=32': ('phases.seq_length was [16], is [32]',),
    'vocab_size=130': ('data.vocab_size was 120, is 130',),
    'seed=3': ('seed was 0, is 3',),
  }
  for change, words in changes.items():
    expect_error(
      lambda change=change: small_run.train(workdir, f'{use},{change}'), *words
    )
  # Nothing of this is known from the config.
  data = f'{folder}/data'
  shutil.copytree(base.data, data)
  with open(f'{data}/vocab.txt', encoding='utf-8') as file:
    words = file.read().splitlines()
  with open(f'{data}/vocab.txt', 'w', encoding='utf-8') as file:
    file.write('\n'.join([*words[:-2], words[-1], words[-2]]) + '\n')
  expect_error(
    lambda: small_run.train(f'{folder}/new', f'dir={data}'),
    'is not the vocabulary that the data was made with',
  )
  other = f'{folder}/other'
  small_run.train(other, f'{use},seed=3')
  expect_error(
    lambda: small_run.train(workdir, f'{use},dir={other}/data'),
    'was trained on other data',
  )
  path = f'{workdir}/config.json'
  with open(path, encoding='utf-8') as file:
    fields = json.load(file)
  with open(path, 'w', encoding='utf-8') as file:
    json.dump({**fields, 'model.of_a_later_version': 3}, file)
  expect_error(
    lambda: small_run.train(workdir, use), 'model.of_a_later_version was 3'
  )
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(fields, file)
  text = small_run.train(workdir, use)
  expect('resumed at step 8' in text, text)
  return f'{len(changes) + 3} changes refused, each named; the run is intact'


FAULTS = (
  Fault(
    'nan',
    'NaN in one batch, and in all batches from a step on',
    'that update is skipped and logged; after 20 in a row the run stops, the '
    'newest checkpoint is from before them',
    nan,
  ),
  Fault(
    'spike',
    'a batch of words that were never to be predicted before',
    'the jump of the loss is logged with its step and the command to replay it',
    spike,
  ),
  Fault(
    'no_masks',
    'a batch without a masked token',
    'no division by 0: the other loss is learnt, all losses stay finite',
    no_masks,
  ),
  Fault(
    'large_ids',
    'a record with a token id that the vocabulary does not have',
    'one line that names the record and the id',
    large_ids,
  ),
  Fault(
    'other_config',
    'a run is resumed with another learning rate, width, length, vocabulary, '
    'seed, data, vocabulary file, or the config of a later version',
    'one line that names what differs; nothing is changed',
    other_config,
  ),
)
