"""Verifies that a converted model computes what its source computes."""

import dataclasses
import importlib.util

import flax.linen as nn
import jax
import numpy as np

from bert_jax import errors
from bert_jax.model import bert_config, classifier, heads

_LENGTH = 32  # tokens, or the model's maximum if that is less
_ROWS = 3
_TOLERANCE = 1e-4  # absolute, or relative to the largest


def make_batch(config: bert_config.BertConfig) -> dict[str, np.ndarray]:
  """Returns random rows of falling length; all positions are MLM positions."""
  length = min(_LENGTH, config.max_positions)
  random = np.random.default_rng(0)
  ids = random.integers(0, config.vocab_size, (_ROWS, length), np.int32)
  place = np.arange(length, dtype=np.int32)[None]
  ends = length - length * np.arange(_ROWS)[:, None] // (_ROWS + 1)  # [B, 1]
  segments = (place >= length // 3) & (place < ends)
  return {
    'input_ids': ids,
    'input_mask': (place < ends).astype(np.int32),
    'segment_ids': segments.astype(np.int32) * (config.type_vocab_size > 1),
    'masked_lm_positions': np.repeat(place, _ROWS, 0),
  }


def compute_outputs(
  params: dict,
  config: bert_config.BertConfig,
  head: classifier.Head | None = None,
) -> dict[str, np.ndarray]:
  """Returns a model's outputs for `make_batch`, always computed in float32.

  They are hidden [B, S, D] and, if the model has these parts, pooled [B, D],
  mlm [B, S, V], nsp [B, 2] and classifier [B, C], or [B, S, C] if it reads each
  token.
  """

  def run(module, x):
    found = {'hidden': module.encode(x, deterministic=True)}
    if 'mlm' in params:
      table = module.embeddings.word.embedding
      found['mlm'] = module.mlm(found['hidden'], table)
    if 'pooler' in params:
      found['pooled'] = nn.tanh(module.pooler(found['hidden'][:, 0]))
    if 'nsp' in params:
      found['nsp'] = module.nsp(found['pooled'])
    return found

  config = dataclasses.replace(config, dtype='float32')
  module = heads.PretrainingModel(config)
  with jax.default_matmul_precision('highest'):
    found = module.apply({'params': params}, make_batch(config), method=run)
  found = jax.tree.map(np.asarray, found)
  if head is not None:
    read = found['hidden' if head.reads_tokens else 'pooled']
    found['classifier'] = read @ head.kernel + head.bias
  return found


def compute_theirs(
  path: str, config: bert_config.BertConfig
) -> dict[str, np.ndarray] | None:
  """Returns transformers' outputs for `make_batch`, None if not installed."""
  if not all(map(importlib.util.find_spec, ('torch', 'transformers'))):
    return None
  import torch
  import transformers

  transformers.utils.logging.disable_progress_bar()
  found = transformers.AutoConfig.from_pretrained(path)
  bert, info = getattr(transformers, found.architectures[0]).from_pretrained(
    path, output_loading_info=True, dtype=torch.float32
  )
  wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
  if wrong:
    raise errors.UserError(f'{path}: transformers loads it with {wrong}.')
  x = {name: torch.tensor(value) for name, value in make_batch(config).items()}
  if isinstance(bert, transformers.BertForMultipleChoice):
    x = {name: value[:, None] for name, value in x.items()}  # of one choice
  with torch.no_grad():
    out = bert.eval()(
      input_ids=x['input_ids'],
      attention_mask=x['input_mask'],
      token_type_ids=x['segment_ids'],
      output_hidden_states=True,
    )
  named = {
    'hidden': out.hidden_states[-1],
    'pooled': out.get('pooler_output'),
    'mlm': out.get('prediction_logits'),
    'nsp': out.get('seq_relationship_logits'),
  }
  if 'start_logits' in out:
    named['classifier'] = torch.stack([out.start_logits, out.end_logits], -1)
  elif 'logits' in out:
    named['classifier' if hasattr(bert, 'classifier') else 'mlm'] = out.logits
  return {name: x.numpy() for name, x in named.items() if x is not None}


def compare(
  ours: dict[str, np.ndarray],
  other: dict[str, np.ndarray],
  config: bert_config.BertConfig,
) -> dict[str, float]:
  """Returns the largest difference of each output, without padding."""
  mask = make_batch(config)['input_mask'].astype(bool)
  found = {}
  for name in sorted(set(ours) & set(other)):
    a, b = ours[name], other[name]
    if a.ndim == 3:
      a, b = a[mask], b[mask]
    found[name] = float(np.abs(a - b).max())
    limit = _TOLERANCE * max(1.0, float(np.abs(a).max()))
    if not found[name] <= limit:  # True for NaN, too
      raise errors.UserError(
        f'the written model differs from its source: {name} by '
        f'{found[name]:.2e}, allowed are {limit:.2e}; do not use it.'
      )
  return found
