"""The rows of real text that step.py trains on."""

import sys

import numpy as np

BATCHES = 4  # used in turns


def prepare_docs(directory, workers, of_one=0):
  """Prepares python-docs, of both lengths, with a vocabulary of BERT's size.

  With a length `of_one`, the rows are of one document.
  """
  from bert_jax.config import recipes
  from bert_jax.data import prepare, recipe

  c = recipes.pretraining('base')
  c.data.passes = 1
  if of_one:
    c.data.rows = 'doc_sentences'
    c.objective.nsp, c.phases.seq_length = False, (of_one,)
  print('preparing python-docs ...', flush=True)
  prepare.prepare(
    recipe.make_recipe(c), directory, prepare.local_runner(workers)
  )


def use_data(c, directory):
  """Sets the fields that the model and the reader take from the data."""
  from bert_jax.data import manifest_file

  found = manifest_file.read(directory)
  recipe, lengths = found['recipe'], found['lengths']
  pack = c.data.pack
  if recipe['pack'] != pack or str(c.phases.seq_length[0]) not in lengths:
    sys.exit(
      f'error: {directory} has pack={recipe["pack"]} and lengths '
      f'{", ".join(lengths)}; prepare it with --pack={pack} '
      f'--max_seq_length={c.phases.seq_length[0]}.'
    )
  c.data.vocab_size = recipe['vocab_size']
  c.data.lowercase = recipe['lowercase']


def read(c, directory, full):
  """Returns BATCHES batches of training rows, arrays [BATCHES, B, ...].

  Args:
    c: the config.
    directory: prepared data.
    full: take only rows without padding.
  """
  from bert_jax.data import manifest_file
  from bert_jax.pretraining import batches
  from bert_jax.trainer import task

  (phase,) = task.list_phases(c)
  source = batches.Batches(c, directory)
  wanted = BATCHES * phase.batch_size
  found = manifest_file.read(directory)['lengths'][str(phase.seq_length)]
  parts, have = [], 0
  for step in range(max(BATCHES, found['rows'] // phase.batch_size)):
    batch = source.train_batch(phase, step)
    kept = batch['input_mask'].all(1) if full else slice(None)
    parts.append({name: x[kept] for name, x in batch.items()})
    have += len(parts[-1]['input_ids'])
    if have >= wanted:
      break
  else:
    sys.exit(
      f'error: {directory} has {have} rows full of {phase.seq_length} tokens, '
      f'{wanted} are needed; prepare longer documents.'
    )
  joined = {n: np.concatenate([p[n] for p in parts])[:wanted] for n in parts[0]}
  return {
    name: x.reshape(BATCHES, phase.batch_size, *x.shape[1:])
    for name, x in joined.items()
  }


def split(stacked):
  """Returns a list of batches [B, ...] of arrays [n, B, ...]."""
  count = len(stacked['input_ids'])
  return [{k: x[i] for k, x in stacked.items()} for i in range(count)]


def labels_of(batches):
  """Returns the ids to predict, -100 elsewhere, int [BATCHES, B, S]."""
  labels = np.full(batches['input_ids'].shape, -100)
  real = batches['masked_lm_weights'] == 1  # [BATCHES, B, P]
  i, row, _ = np.nonzero(real)
  labels[i, row, batches['masked_lm_positions'][real]] = batches[
    'masked_lm_ids'
  ][real]
  return labels
