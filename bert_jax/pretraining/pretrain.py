"""The pre-training task: masked tokens and next sentence, or left to right."""

import dataclasses
import functools
import math
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from bert_jax.config import fields
from bert_jax.corpus import text_files
from bert_jax.data import manifest_file
from bert_jax.model import heads, parameters
from bert_jax.ops import tied_decoder
from bert_jax.parallel import row_keys
from bert_jax.pretraining import batches, init_from, word_vectors
from bert_jax.trainer import task, tuning

_BELOW = 1.0  # nats below the unigram entropy, where the plateau ends
_WORDS = 0x776F7264  # tag of random keys


class Groups(NamedTuple):
  """How a sample of words is drawn, among which the masked one is found.

  A sampled softmax (Jean et al., 2015, arXiv 1412.2007) computes the logits of the
  most frequent words, which have most of the probability, and that of one random
  word of each of several groups of words of similar frequency, which counts once
  for each word of its group: so softmax's denominator is estimated without bias.
  docs/plateau.md has what it gains; evaluation always compares all words.
  """

  order: np.ndarray  # int32 [V], words by falling frequency
  firsts: np.ndarray  # int32 [C], where the groups begin in it
  sizes: np.ndarray  # int32 [C], their words


def group_words(
  count: int, vocab_size: int, word_shares: np.ndarray | None
) -> Groups | None:
  """Makes C groups, half of them of one frequent word; None for 0, or V and more.

  Where the shares of the text, [V], are unknown, only the sizes matter.
  """
  if not 0 < count < vocab_size:
    return None
  order = np.arange(vocab_size)
  if word_shares is not None:
    order = np.argsort(-word_shares, kind='stable')
  common = count // 2
  ends = np.linspace(common, vocab_size, count - common + 1).astype(np.int32)
  ends = np.concatenate([np.arange(common, dtype=np.int32), ends])
  return Groups(order.astype(np.int32), ends[:-1], np.diff(ends))


def draw_words(groups: Groups, key: jax.Array) -> tied_decoder.Sample:
  """Draws the sample of a micro-batch, by a key from `row_keys.for_rows`.

  With threefry, all devices draw the same; with rbg, each draws its own.
  """
  key = jax.random.fold_in(row_keys.for_batch(key), _WORDS)
  sizes = jnp.asarray(groups.sizes)
  chosen = jax.random.bits(key, sizes.shape) % sizes.astype(jnp.uint32)
  words = jnp.asarray(groups.order)[groups.firsts + chosen.astype(jnp.int32)]
  return tied_decoder.Sample(words, jnp.log(sizes.astype(jnp.float32)))


def make_objective(
  config: config_dict.ConfigDict,
  word_shares: np.ndarray | None = None,
  how: task.Compute | None = None,
  phase: task.Phase | None = None,
) -> task.Objective:
  """Returns the pre-training task's part that runs on devices.

  `word_shares` of the text, float [V], are for `objective.unigram_bias` and
  `objective.sampled_words`. Without data they are not known; shapes do not depend
  on them. Without `how`, it is computed as the config says. A phase may have a
  `rope_theta` of its own.
  """
  how, pack = how or tuning.read(config), config.data.pack
  module = make_module(config, how)
  o, bert = config.objective, module.config
  if phase:
    bert = dataclasses.replace(bert, rope_theta=phase.rope_theta)
    module = module.clone(config=bert)
  loss, bias = math.log(bert.vocab_size), None
  if o.unigram_bias and word_shares is not None:
    loss = float(-np.sum(word_shares * np.log(word_shares)))
    bias = np.log(word_shares).astype(np.float32)
  init = functools.partial(parameters.init, module, decoder_bias=bias)
  groups = group_words(o.sampled_words, bert.vocab_size, word_shares)
  compared = o.sampled_words if groups else bert.vocab_size
  computed = dataclasses.replace(bert, vocab_size=compared)

  def count_flops(phase):
    predicted = batches.count_predictions(o, pack, phase)
    flops = computed.flops_per_sequence(phase.seq_length, predicted, pack)
    return phase.batch_size * flops

  return task.Objective(
    bert=bert,
    how=how,
    computed_as=functools.partial(make_objective, config, word_shares),
    init=parameters.skip_layers(init) if config.init_from else init,
    losses=('mlm_loss', 'nsp_loss') if o.nsp else ('mlm_loss',),
    counts=functools.partial(count_targets, with_nsp=o.nsp),
    compute=functools.partial(compute_sums, module, groups=groups),
    batch_shapes=functools.partial(batch_shapes, config),
    evaluate_as=functools.partial(batches.evaluate_as, o, pack),
    flops=count_flops,
    # A trained model is evaluated instead.
    expected_loss=None if config.init_from else loss + math.log(2) * o.nsp,
  )


def make_module(
  config: config_dict.ConfigDict, how: task.Compute | None = None
) -> heads.PretrainingModel:
  """Returns the model of a config, as in training; args as `make_objective`."""
  how = how or tuning.read(config)
  bert = tuning.apply(how, fields.model_config(config))
  return heads.PretrainingModel(bert, config.objective.nsp)


def batch_shapes(
  config: config_dict.ConfigDict, phase: task.Phase, rows: int
) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a batch of `rows` rows."""
  tokens, pack = (rows, phase.seq_length), config.data.pack  # [B, S]
  count = batches.count_predictions(config.objective, pack, phase)
  pairs = (rows,) if pack == 1 else (rows, pack)  # [B] or [B, N]
  integers = dict.fromkeys(('input_ids', 'input_mask', 'segment_ids'), tokens)
  # [B, P]
  predicted = dict.fromkeys(
    ('masked_lm_positions', 'masked_lm_ids'), (rows, count)
  )
  integers |= predicted
  floats = {'masked_lm_weights': (rows, count)}
  if pack > 1 or config.data.rows == 'full_sentences':
    integers |= {'sequence_ids': tokens, 'position_ids': tokens}
  if config.data.rows == 'pairs':
    integers['next_sentence_labels'] = floats['next_sentence_weights'] = pairs
    integers |= {'cls_positions': pairs} if pack > 1 else {}
  return {
    name: jax.ShapeDtypeStruct(shape, dtype)
    for shapes, dtype in ((integers, jnp.int32), (floats, jnp.float32))
    for name, shape in shapes.items()
  }


def make_task(config: config_dict.ConfigDict, directory: str) -> task.Task:
  """Returns the pre-training task, on data of `prepare` in a directory."""
  data, o = batches.Batches(config, directory), config.objective
  manifest, new = manifest_file.read(directory), not config.init_from
  entropy, word_shares, start = manifest['unigram_entropy'], None, None
  if o.unigram_bias or o.sampled_words:
    counts = data.count_labels() + 1  # none is 0
    word_shares = counts / counts.sum()
  if config.init_from:
    start = functools.partial(init_from.start, config, directory)
  elif o.word_vectors:
    bert = fields.model_config(config)
    start = functools.partial(word_vectors.start, data, bert)
  return task.Task(
    objective=make_objective(config, word_shares),
    train_batch=data.train_batch,
    eval_batch=data.eval_batch,
    eval_batches=data.eval_batches,
    name_eval_part=data.name_eval_part,
    describe=functools.partial(describe, entropy, config.model.body),
    derive=derive,
    word=word,
    start=start,
    evaluate_first=not new,
    # A model that was trained before has no plateau to leave.
    plateau=entropy - _BELOW if new else None,
    facts={
      # First the facts whose differences are readable, then the hashes.
      'data': {
        name: manifest[name]
        for name in ('recipe', 'documents', 'sentences', 'tokens', 'lengths')
      },
      'unigram_entropy': entropy,
      'vocab_sha256': manifest['vocab_sha256'],
      'data_sha256': text_files.compute_sha256(
        os.path.join(directory, manifest_file.NAME)
      ),
    },
  )


def count_targets(batch: dict[str, jax.Array], *, with_nsp: bool) -> dict:
  """Returns {metric: count} of a batch: predicted tokens, and pairs."""
  tokens = jnp.sum(batch['masked_lm_weights'])
  counts = {'mlm_loss': tokens, 'mlm_accuracy': tokens}
  if with_nsp:
    pairs = jnp.sum(batch['next_sentence_weights'])
    counts |= {'nsp_loss': pairs, 'nsp_accuracy': pairs}
  return counts


def compute_sums(
  module: heads.PretrainingModel,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array | None,
  groups: Groups | None = None,
):
  """Returns ({metric: sum over a batch}, no predictions).

  In evaluation there is no key; in training, words are drawn from the groups, if
  there are any, and compared.
  """
  training = key is not None
  sample = draw_words(groups, key) if training and groups else None
  inputs, nsp = module.apply(
    {'params': params},
    batch,
    deterministic=not training,
    compared=sample and sample.words,
    rngs={'dropout': key} if training else None,
    method='before_decoder',
  )
  loss, hits = tied_decoder.sum_losses(
    *inputs,
    module.config.vocab_size,
    batch['masked_lm_ids'],
    batch['masked_lm_weights'],
    sample,
  )
  sums = {'mlm_loss': loss, 'mlm_accuracy': hits}
  if nsp is not None:
    labels, weights = (
      batch[f'next_sentence_{x}'] for x in ('labels', 'weights')
    )
    loss, hits = tied_decoder.sum_tokens(nsp, labels, weights)
    sums |= {'nsp_loss': loss, 'nsp_accuracy': hits}
  return sums, {}


def derive(means: dict) -> dict:
  """Returns the perplexity of masked tokens, also of each input."""
  return {
    name.replace('loss', 'perplexity', 1): math.exp(min(loss, 700))
    for name, loss in means.items()
    if name.startswith('mlm_loss')
  }


def word(means: dict) -> str:
  """Returns 'mlm 5.120 ppl 167 acc 21.3% | nsp 0.610 acc 66.0%'.

  A line follows for each input that was evaluated alone.
  """
  lines = []
  for of in (x[len('mlm_loss') :] for x in means if x.startswith('mlm_loss')):
    parts = []
    for name in (x for x in ('mlm', 'nsp') if f'{x}_loss{of}' in means):
      perplexity = means.get(f'{name}_perplexity{of}')
      shown = f'ppl {perplexity:,.0f} ' if perplexity else ''
      loss, hits = (means[f'{name}_{x}{of}'] for x in ('loss', 'accuracy'))
      parts.append(f'{name} {loss:.3f} {shown}acc {hits:.1%}')
    lines.append((f'  {of[1:]}: ' if of else '') + ' | '.join(parts))
  return '\n'.join(lines)


def describe(
  entropy: float, body: str, batch: dict[str, jax.Array]
) -> list[str]:
  """Describes the first batch and the corpus's entropy, as lines to print."""
  tokens, pairs = batch['input_mask'].sum(), batch.get('next_sentence_weights')
  more = ''
  if 'sequence_ids' in batch:
    count = batch['sequence_ids'].max(1).mean()
    more = f', {count:.3g} {"documents" if pairs is None else "pairs"} per row'
  if pairs is not None:
    random = (batch['next_sentence_labels'] * pairs).sum() / pairs.sum()
    more += f', {random:.1%} random second texts'
  lines = [
    f'first batch: {1 - tokens / batch["input_mask"].size:.1%} padding, '
    f'{batch["masked_lm_weights"].sum() / tokens:.1%} of tokens to predict{more}',
    f'unigram entropy of the corpus: {entropy:.3f} nats; a model whose MLM loss '
    'stays near it has learnt word frequencies and nothing else',
  ]
  if body == 'modern' and pairs is not None:
    lines.append(
      'WARNING: rows hold pairs of texts, which this body cannot tell apart; '
      'data.rows=full_sentences makes none'
    )
  return lines
