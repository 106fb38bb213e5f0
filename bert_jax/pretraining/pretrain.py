"""The pre-training task: masked tokens and next sentence, or left to right."""

import dataclasses
import functools
import math
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from bert_jax.corpus import text_files
from bert_jax.data import manifest_file
from bert_jax.model import heads, losses, parameters
from bert_jax.ops import tied_decoder
from bert_jax.pretraining import batches, init_from, sampled_words
from bert_jax.train import task, tuning

_BELOW = 1.0  # nats below the unigram entropy, where the plateau ends


def make_objective(
  config: config_dict.ConfigDict, word_shares: np.ndarray | None = None
) -> task.Objective:
  """Returns the pre-training task's part that runs on devices.

  Args:
    word_shares: the words' shares of the text, float [V], for
      `objective.unigram_bias` and `objective.sampled_words`. Without data, they
      are not known; shapes do not depend on them.
  """
  module = make_module(config)
  bert = module.config
  nsp, size = config.objective.nsp, bert.vocab_size
  nsp_loss = math.log(2) if nsp else 0.0
  word_loss, bias = math.log(size), None
  if config.objective.unigram_bias and word_shares is not None:
    word_loss = float(-np.sum(word_shares * np.log(word_shares)))
    bias = np.log(word_shares).astype(np.float32)
  init = functools.partial(parameters.init, module, decoder_bias=bias)
  asked = config.objective.sampled_words
  groups = sampled_words.group(asked, size, word_shares)
  computed = dataclasses.replace(bert, vocab_size=asked) if groups else bert
  if config.init_from:
    init = parameters.skip_layers(init)
  return task.Objective(
    init=init,
    losses=('mlm_loss', 'nsp_loss') if nsp else ('mlm_loss',),
    counts=functools.partial(count_targets, with_nsp=nsp),
    compute=functools.partial(compute_sums, module, groups=groups),
    batch_shapes=functools.partial(batch_shapes, config),
    evaluate_as=functools.partial(batches.evaluate_as, config),
    flops=lambda phase: (
      phase.batch_size
      * computed.flops_per_sequence(
        phase.seq_length,
        batches.count_predictions(config, phase),
        config.data.pack,
      )
    ),
    # A trained model is evaluated instead.
    expected_loss=None if config.init_from else word_loss + nsp_loss,
  )


def make_module(config: config_dict.ConfigDict) -> heads.PretrainingModel:
  """Returns the model of a config from `tuning.resolve`, as in training."""
  bert = tuning.model_config(config)
  return heads.PretrainingModel(bert, config.objective.nsp)


def batch_shapes(
  config: config_dict.ConfigDict, phase: task.Phase, rows: int
) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a batch of `rows` rows."""
  pack = config.data.pack
  tokens = (rows, phase.seq_length)  # [B, S]
  predicted = (rows, batches.count_predictions(config, phase))  # [B, P]
  pairs = (rows,) if pack == 1 else (rows, pack)  # [B] or [B, N]
  integers = {
    'input_ids': tokens,
    'input_mask': tokens,
    'segment_ids': tokens,
    'masked_lm_positions': predicted,
    'masked_lm_ids': predicted,
    'next_sentence_labels': pairs,
  }
  if pack > 1:
    integers |= {
      'sequence_ids': tokens,
      'position_ids': tokens,
      'cls_positions': pairs,
    }
  weights = {'masked_lm_weights': predicted, 'next_sentence_weights': pairs}
  return {
    name: jax.ShapeDtypeStruct(shape, dtype)
    for shapes, dtype in ((integers, jnp.int32), (weights, jnp.float32))
    for name, shape in shapes.items()
  }


def make_task(config: config_dict.ConfigDict, directory: str) -> task.Task:
  """Returns the pre-training task, on data of `prepare` in a directory."""
  data = batches.Batches(config, directory)
  manifest, new = manifest_file.read(directory), not config.init_from
  entropy, word_shares = manifest['unigram_entropy'], None
  if config.objective.unigram_bias or config.objective.sampled_words:
    counts = data.count_labels() + 1  # none is 0
    word_shares = counts / counts.sum()
  return task.Task(
    objective=functools.partial(make_objective, word_shares=word_shares),
    train_batch=data.train_batch,
    eval_batch=data.eval_batch,
    eval_batches=data.eval_batches,
    name_eval_part=data.name_eval_part,
    describe=functools.partial(describe, entropy),
    derive=derive,
    word=word,
    start=init_from.find_start(config, directory),
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
  found = {'mlm_loss': tokens, 'mlm_accuracy': tokens}
  if with_nsp:
    pairs = jnp.sum(batch['next_sentence_weights'])
    found |= {'nsp_loss': pairs, 'nsp_accuracy': pairs}
  return found


def compute_sums(
  module: heads.PretrainingModel,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array | None,
  groups: sampled_words.Groups | None = None,
):
  """Returns ({metric: sum over a batch}, no predictions).

  Args:
    key: of the rows, for training; None in evaluation.
    groups: in training, words are drawn from these and compared; None is all.
  """
  training, sample = key is not None, None
  if training and groups:
    sample = sampled_words.draw(groups, key)
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
  found = {'mlm_loss': loss, 'mlm_accuracy': hits}
  if nsp is not None:
    loss, hits = losses.sum_tokens(
      nsp, batch['next_sentence_labels'], batch['next_sentence_weights']
    )
    found |= {'nsp_loss': loss, 'nsp_accuracy': hits}
  return found, {}


def derive(means: dict) -> dict:
  """Returns the perplexity of masked tokens."""
  return {'mlm_perplexity': math.exp(min(means['mlm_loss'], 700))}


def word(means: dict) -> str:
  """Returns 'mlm 5.120 ppl 167 acc 21.3% | nsp 0.610 acc 66.0%'.

  A line follows for each input that was evaluated alone.
  """
  lines = []
  for of in (x[len('mlm_loss') :] for x in means if x.startswith('mlm_loss')):
    found = []
    for name in ('mlm', 'nsp'):
      if f'{name}_loss{of}' in means:
        perplexity = means.get(f'{name}_perplexity{of}')
        found.append(
          f'{name} {means[f"{name}_loss{of}"]:.3f} '
          + (f'ppl {perplexity:,.0f} ' if perplexity else '')
          + f'acc {means[f"{name}_accuracy{of}"]:.1%}'
        )
    lines.append((f'  {of[1:]}: ' if of else '') + ' | '.join(found))
  return '\n'.join(lines)


def describe(entropy: float, batch: dict[str, jax.Array]) -> list[str]:
  """Describes the first batch and the corpus's entropy, as lines to print."""
  tokens = batch['input_mask'].sum()
  pairs = batch['next_sentence_weights']
  random = (batch['next_sentence_labels'] * pairs).sum() / pairs.sum()
  count = pairs.sum() / len(pairs)  # of a row
  return [
    f'first batch: {1 - tokens / batch["input_mask"].size:.1%} padding, '
    f'{batch["masked_lm_weights"].sum() / tokens:.1%} of tokens to predict, '
    + (f'{count:.3g} pairs per row, ' if count > 1 else '')
    + f'{random:.1%} random second texts',
    f'unigram entropy of the corpus: {entropy:.3f} nats; a model whose MLM loss '
    'stays near it has learnt word frequencies and nothing else',
  ]
