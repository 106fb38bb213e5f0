"""config.json of ModernBERT, as transformers writes it since 4.48, and since 5."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from bert_jax.interop import config_file
from bert_jax.model import bert_config
from bert_jax.tokenization.tokenizer import Tokenizer

KIND = 'modernbert'  # its model_type
_NAMES = {
  **{k: x for k, x in config_file.BERT.items() if k != 'type_vocab_size'},
  'dropout': 'attention_dropout',  # there, of both
  'attention_dropout': 'attention_dropout',
  'activation': 'hidden_activation',
  'norm_epsilon': 'norm_eps',
  'window': 'local_attention',
  'global_every': 'global_attn_every_n_layers',
  'rope_theta': 'global_rope_theta',
  'local_rope_theta': 'local_rope_theta',
  'pooling': 'classifier_pooling',
}
# What a file may only say, and means without saying it.
_FIXED = {
  'classifier_activation': 'gelu',  # of the MLM head, too, as is its bias
  'classifier_bias': False,
  'norm_bias': False,
  'attention_bias': False,
  'mlp_bias': False,
  'decoder_bias': True,
  'tie_word_embeddings': True,
}
_NO_DROPOUT = 'embedding_dropout', 'mlp_dropout', 'classifier_dropout'
# {kind of layers: where the base of its wavelengths was before version 5}
_THETAS = {
  'full_attention': 'global_rope_theta',
  'sliding_attention': 'local_rope_theta',
}


def _list_kinds(layers: int, every: int) -> list[str]:
  full, sliding = _THETAS
  return [sliding if i % every else full for i in range(layers)]


def describe(
  config: bert_config.BertConfig, tokenizer: Tokenizer
) -> dict[str, Any]:
  """Returns the content of config.json, for old and new versions.

  Of dropout, only that of attention's probabilities is written.
  """
  theirs = config_file.from_config(config, _NAMES)
  cls, sep = tokenizer.cls_id, tokenizer.sep_id
  return {
    'model_type': KIND,
    **theirs,
    **_FIXED,
    'hidden_activation': config.activation,
    'layer_types': _list_kinds(config.num_layers, config.global_every),
    'rope_parameters': {
      kind: {'rope_type': 'default', 'rope_theta': theirs[name]}
      for kind, name in _THETAS.items()
    },
    **dict.fromkeys(_NO_DROPOUT, 0.0),
    'initializer_cutoff_factor': 2.0,
    'pad_token_id': tokenizer.pad_id,
    **{'bos_token_id': cls, 'cls_token_id': cls},
    **{'eos_token_id': sep, 'sep_token_id': sep},
    'torch_dtype': 'float32',
  }


def read(path: str, theirs: Mapping[str, Any]) -> bert_config.BertConfig:
  """Makes a config from the content of a path."""
  for name, only in {**_FIXED, 'rope_scaling': None}.items():
    if theirs.get(name, only) != only:
      config_file.refuse(path, name, theirs[name], json.dumps(only))
  usual = {'global_attn_every_n_layers': 3, 'classifier_pooling': 'cls'}
  theirs = {**usual, **theirs, **_read_thetas(path, theirs)}
  known, ours = (_NAMES, {'gelu': 'gelu'}), {'body': 'modern', 'norm': 'pre'}
  config = config_file.to_config(path, theirs, *known, **ours)
  if config.pooling not in ('cls', 'mean'):
    name = _NAMES['pooling']
    config_file.refuse(path, name, theirs[name], "'cls' or 'mean'")
  layers, kinds = config.num_layers, theirs.get('layer_types')
  if kinds is not None:  # version 5 looks at nothing else
    of = config.global_every, *range(1, layers + 1)
    every = [n for n in of if _list_kinds(layers, n) == kinds]
    if not every:
      allowed = 'full_attention every n-th of its layers, from the first'
      config_file.refuse(path, 'layer_types', kinds, allowed)
    config = dataclasses.replace(config, global_every=every[0])
  return config


def _read_thetas(path, theirs) -> dict[str, Any]:
  """Returns what `rope_parameters` have, under the older names."""
  ropes = theirs.get('rope_parameters') or {}
  try:
    thetas = {_THETAS[x]: rope['rope_theta'] for x, rope in ropes.items()}
    plain = [{'rope_type': 'default', 'rope_theta': x} for x in thetas.values()]
    others = [*ropes.values()] != plain
  except (AttributeError, KeyError, TypeError):
    others = True
  if others:
    allowed = f'rope_type=default and a rope_theta for {" and ".join(_THETAS)}'
    config_file.refuse(path, 'rope_parameters', ropes, allowed)
  return thetas
