"""Pre-training: masked tokens and next sentence, or left to right."""

import functools
import math
import os

import jax.numpy as jnp
import numpy as np

from bert_jax import config as config_lib
from bert_jax import errors, heads, losses, task, tokenizer
from bert_jax.data import hashing, loader, masking, prepare, shards
from bert_jax.data import recipe as recipe_lib

# What a seed is for: two uses must not share random numbers.
_ORDER, _MASK, _EVAL_MASK = 1, 2, 3


def make(config, directory: str) -> task.Task:
  """Returns the pre-training task.

  Args:
    config: the experiment.
    directory: output of `prepare`, for the lengths of the config's phases.
  """
  bert = config_lib.model_config(config)
  module = heads.PretrainingModel(bert, config.objective.nsp)
  data = _Data(config, directory)
  manifest = prepare.read_manifest(directory)
  nsp_loss = math.log(2) if config.objective.nsp else 0.0
  return task.Task(
    init=functools.partial(init, module),
    counts=functools.partial(counts, with_nsp=config.objective.nsp),
    sums=functools.partial(sums, module),
    train_batch=data.train_batch,
    eval_batch=data.eval_batch,
    eval_batches=data.eval_batches,
    flops=lambda phase: (
      phase.batch_size
      * bert.flops_per_sequence(phase.seq_length, predictions(config, phase))
    ),
    expected_loss=math.log(bert.vocab_size) + nsp_loss,
    describe=functools.partial(describe, manifest['unigram_entropy']),
    facts={
      'unigram_entropy': manifest['unigram_entropy'],
      'vocab_sha256': manifest['vocab_sha256'],
      'data_sha256': shards.sha256(os.path.join(directory, 'manifest.json')),
    },
  )


def prepare_data(config, workdir: str) -> str:
  """Makes the data that the config asks for; returns its directory."""
  c = config.data
  directory = c.dir or os.path.join(workdir, 'data')
  if c.dir and not os.path.exists(c.dir):
    raise errors.UserError(
      f'data.dir={c.dir} does not exist; make it with bert_jax.data.prepare, '
      'or leave data.dir empty.'
    )
  if not c.dir:
    recipe = recipe_lib.Recipe(
      inputs=tuple(c.input.split(',')),
      layout=c.layout,
      language=c.language,
      max_documents=c.max_documents,
      vocab=c.vocab,
      vocab_size=c.vocab_size,
      lowercase=c.lowercase,
      lengths=tuple(sorted(set(config.phases.seq_length))),
      passes=c.passes,
      short_seq_prob=c.short_seq_prob,
      heldout=c.heldout,
      shards=c.shards,
      seed=config.seed,
    )
    prepare.prepare(recipe, directory, c.workers)
  manifest = prepare.read_manifest(directory)
  for name in ('vocab_size', 'lowercase'):
    if manifest['recipe'][name] != c[name]:
      raise errors.UserError(
        f'{directory} has {name}={manifest["recipe"][name]}, the config '
        f'data.{name}={c[name]}; they must agree.'
      )
  vocab_path = os.path.join(directory, 'vocab.txt')
  if shards.sha256(vocab_path) != manifest['vocab_sha256']:
    raise errors.UserError(
      f'{vocab_path} is not the vocabulary that the data was made with; put '
      'that one back, or prepare the data again.'
    )
  found = manifest['documents']
  print(
    f'data: {found["train"]:,} documents, {manifest["tokens"]:,} tokens '
    f'({manifest["unknown_share"]:.2%} unknown), {found["heldout"]:,} '
    'documents held out'
  )
  for length, row in manifest['lengths'].items():
    print(
      f'length {length}: {row["pairs"]:,} pairs, '
      f'{row["padding_share"]:.1%} padding, {row["random_share"]:.1%} random'
    )
  return directory


def predictions(config, phase: task.Phase) -> int:
  """Returns P, how many predictions a row has room for."""
  if config.objective.kind == 'ltr':
    return phase.seq_length - 1
  return phase.max_predictions


def init(module: heads.PretrainingModel, key):
  """Returns new parameters."""
  one = jnp.ones((1, 8), jnp.int32)
  batch = {
    'input_ids': one,
    'input_mask': one,
    'segment_ids': one,
    'masked_lm_positions': one[:, :1],
  }
  return module.init(key, batch)['params']


def counts(batch, *, with_nsp: bool) -> dict:
  """Returns how many predictions of each objective a batch holds."""
  found = {'mlm': jnp.sum(batch['masked_lm_weights'])}
  if with_nsp:
    found['nsp'] = jnp.sum(batch['next_sentence_weights'])
  return found


def sums(module: heads.PretrainingModel, params, batch, key) -> dict:
  """Returns {'mlm': (loss, hits), 'nsp': (loss, hits)}, sums over a batch."""
  mlm, nsp = module.apply(
    {'params': params},
    batch,
    deterministic=key is None,
    rngs=None if key is None else {'dropout': key},
  )
  found = {
    'mlm': losses.token_sums(
      mlm, batch['masked_lm_ids'], batch['masked_lm_weights']
    )
  }
  if nsp is not None:
    found['nsp'] = losses.token_sums(
      nsp, batch['next_sentence_labels'], batch['next_sentence_weights']
    )
  return found


def describe(entropy: float, batch) -> list[str]:
  """Returns what to look at before training: shares, and a loss to beat."""
  tokens = batch['input_mask'].sum()
  return [
    f'first batch: {1 - tokens / batch["input_mask"].size:.1%} padding, '
    f'{batch["masked_lm_weights"].sum() / tokens:.1%} of tokens to predict, '
    f'{np.mean(batch["next_sentence_labels"]):.1%} random second texts, '
    f'largest id {batch["input_ids"].max():,}',
    f'unigram entropy of the corpus: {entropy:.3f} nats; an MLM loss that '
    'stays near it has learnt word frequencies and nothing else',
  ]


class _Data:
  """Batches as functions of (phase, step)."""

  def __init__(self, config, directory):
    self._config = config
    words = tokenizer.Tokenizer.load(
      os.path.join(directory, 'vocab.txt'), config.data.lowercase
    )
    self._words = words
    self._special = np.array([words.cls_id, words.sep_id])
    lengths = set(config.phases.seq_length)
    self._splits = {
      (split, n): loader.open_split(directory, split, n)
      for split in ('train', 'heldout')
      for n in lengths
    }

  def train_batch(self, phase: task.Phase, step: int) -> task.Batch:
    split = self._splits['train', phase.seq_length]
    start = (step - phase.first) * phase.batch_size
    seed = self._config.seed
    record, epoch = loader.order(
      int(hashing.mix(seed, _ORDER, phase.number)[0] >> np.uint64(1)),
      np.arange(start, start + phase.batch_size),
      len(split.reader),
    )
    keys = hashing.mix(seed, _MASK, phase.number, epoch, record)
    return self._features(split, phase, record, keys)

  def eval_batches(self, phase: task.Phase) -> int:
    return -(-self._eval_size(phase) // phase.eval_batch_size)

  def eval_batch(self, phase: task.Phase, i: int) -> task.Batch:
    split = self._splits['heldout', phase.seq_length]
    size = self._eval_size(phase)
    n = phase.eval_batch_size
    row = np.arange(i * n, (i + 1) * n)
    # Evenly through the split: its beginning alone would be a few documents.
    record = np.minimum(row, size - 1) * len(split.reader) // size
    keys = hashing.mix(self._config.seed, _EVAL_MASK, record)
    batch = self._features(split, phase, record, keys)
    batch['masked_lm_weights'] *= (row < size)[:, None]
    batch['next_sentence_weights'] *= row < size
    return batch

  def _eval_size(self, phase):
    split = self._splits['heldout', phase.seq_length]
    return min(len(split.reader), self._config.eval.sequences)

  def _features(self, split, phase, record, keys) -> task.Batch:
    c, words = self._config, self._words
    batch = split.reader.rows(record, split.length, words.cls_id, words.sep_id)
    batch['next_sentence_weights'] = np.ones(len(record), np.float32)
    if c.objective.kind == 'ltr':
      return masking.next_tokens(batch)
    return masking.mask_tokens(
      batch,
      keys,
      rate=c.objective.mask_rate,
      mix=c.objective.mask_mix,
      max_predictions=phase.max_predictions,
      vocab_size=words.size,
      mask_id=words.mask_id,
      special=self._special,
    )
