"""Measures that tell whether a model is on the plateau of word frequencies.

There it knows which words are frequent, but not yet which go together:
shuffling the context does not raise its loss, and attention prefers no
neighbour.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import config_dict

from bert_jax.model import heads

OFFSETS = (-2, -1, 0, 1, 2)  # of the token attended to, in tokens
_BELOW = 1.0  # nats below the unigram entropy
# BERT-Tiny and -Mini whose heads start by looking at their neighbours have
# 1.4 to 2.3 nats from context by 1,000 updates and 2M tokens; twice that is
# late. Nothing larger was measured, and no losses are compared: they depend on
# the text and on how far the learning rate has fallen.
_LATE_UPDATES, _LATE_TOKENS = 2_000, 4_000_000
_NO_GAIN = 0.1  # nats


def has_left(entropy: float, new: bool, means: dict) -> dict[str, bool]:
  """Returns whether a new model's loss is over a nat below the unigram entropy.

  A model that was trained before has no plateau to leave.
  """
  return {'plateau_exit': new and means['mlm_loss'] < entropy - _BELOW}


def compare(means: dict[bool, dict]) -> dict[str, float]:
  """Returns the gain from the context's order, in nats per masked token."""
  if not means:
    return {}
  return {'context_gain': means[True]['mlm_loss'] - means[False]['mlm_loss']}


def warn(config: config_dict.ConfigDict, step: int, means: dict) -> str:
  """Returns what to do if a model is on the plateau for too long, or ''.

  Args:
    means: of an evaluation; nothing is said without its context gain.
  """
  phases, optimizer = config.phases, config.optimizer
  warmup = phases.warmups[0] if phases.warmups else optimizer.warmup_steps
  if (
    means.get('context_gain', _NO_GAIN) >= _NO_GAIN
    or step < warmup + _LATE_UPDATES
    or means['tokens'] < _LATE_TOKENS
  ):
    return ''
  new = not config.init_from
  helps = {
    'model.attention_init=neighbours': (
      new and config.model.attention_init == 'random'
    ),
    **{
      f'objective.{name}=True': new and not config.objective[name]
      for name in ('unigram_bias', 'word_vectors')
    },
    'model.norm=post': config.model.norm == 'pre',
    'rows of 64 tokens at first': phases.seq_length[0] > 64,
    'smaller batches': max(phases.batch_size) > 32,
    'another learning rate': True,
  }
  return (
    f'on the plateau: shuffling the context costs {means["context_gain"]:.2f} '
    'nats, so word frequencies are all that is learnt. What helps: '
    f'{", ".join(x for x, y in helps.items() if y)} (docs/plateau.md)'
  )


def measure_attention(
  module: heads.PretrainingModel, params: Any, batch: dict[str, jax.Array]
) -> dict[str, tuple[jax.Array, jax.Array]]:
  """Measures where the heads of the first layer look.

  Returns:
    {'attention_HEAD_OFFSET': (sum over the tokens of the attention to the token
    at the offset, number of tokens)}.
  """
  config = dataclasses.replace(
    module.config,
    num_layers=1,
    attention='xla',  # the other implementations sow no probabilities
    remat='none',
    scan_layers=False,
  )
  first = heads.PretrainingModel(config, with_nsp=False)

  def look(row):
    _, sown = first.apply(
      {'params': params},
      {name: x[None] for name, x in row.items()},
      True,
      method='encode',
      mutable=['intermediates'],
    )
    layer = sown['intermediates']['encoder']['layer_0']
    found = layer['attention']['probabilities'][0][0]  # [H, S, S]
    found = found.astype(jnp.float32) * row['input_mask'][None, :, None]
    return jnp.stack([jnp.trace(found, x, 1, 2) for x in OFFSETS], -1)  # [H, O]

  # A few rows at a time: all could need more memory than training does.
  masses = jnp.sum(jax.lax.map(look, batch, batch_size=8), 0)
  tokens = jnp.sum(batch['input_mask']).astype(jnp.float32)
  return {
    f'attention_{head}_{offset:+d}': (masses[head, i], tokens)
    for head in range(config.num_heads)
    for i, offset in enumerate(OFFSETS)
  }


def word(means: dict) -> str:
  """Returns 'context gain 1.23, attention -1 53%, attention +1 49%'.

  The attention shown is of the head that attends there most. What was not
  measured is left out.
  """
  parts = []
  if 'context_gain' in means:
    parts.append(f'context gain {means["context_gain"]:.2f}')
  for offset in ('-1', '+1'):
    found = [means[x] for x in means if x.endswith(f'_{offset}')]
    if found:
      parts.append(f'attention {offset} {max(found):.0%}')
  return ', '.join(parts)
