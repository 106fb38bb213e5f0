"""The config files of BERT models: config.json and bert_config.json."""

import dataclasses
import reprlib
from collections.abc import Mapping
from typing import Any, NoReturn

from bert_jax import errors
from bert_jax.model import bert_config

# {our name: name in config.json and in Google's bert_config.json}.
_NAMES = {
  'vocab_size': 'vocab_size',
  'hidden_size': 'hidden_size',
  'num_layers': 'num_hidden_layers',
  'num_heads': 'num_attention_heads',
  'mlp_size': 'intermediate_size',
  'max_positions': 'max_position_embeddings',
  'type_vocab_size': 'type_vocab_size',
  'dropout': 'hidden_dropout_prob',
  'attention_dropout': 'attention_probs_dropout_prob',
  'norm_epsilon': 'layer_norm_eps',
  'initializer_std': 'initializer_range',
}


def refuse(path: str, key: str, value: Any, allowed: str) -> NoReturn:
  """Raises errors.UserError for a value, saying what is allowed."""
  got = reprlib.repr(value)
  raise errors.UserError(f'{path}: {key} is {got}, not {allowed}.')


def to_config(
  path: str,
  theirs: Mapping[str, Any],
  activations: Mapping[str, str],
  **more: Any,
) -> bert_config.BertConfig:
  """Makes a config from a file's content and `more`, which such files lack.

  Names of `activations` are {theirs: ours}.
  """
  kind = theirs.get('hidden_act', 'missing')
  if kind not in tuple(activations):
    refuse(path, 'hidden_act', kind, f'one of {", ".join(activations)}')
  values = {'activation': activations[kind], **more}
  for field in dataclasses.fields(bert_config.BertConfig):
    if field.name in values or field.name not in _NAMES:
      continue
    name = _NAMES[field.name]
    x = theirs.get(name, 'missing')
    if field.type is int and not (type(x) is int and 0 < x < 1 << 31):
      refuse(path, name, x, 'a whole number from 1 to 2**31 - 1')
    if field.type is float and not (type(x) in (int, float) and 0 <= x <= 1):
      refuse(path, name, x, 'a number from 0 to 1')
    values[field.name] = field.type(x)
  config = bert_config.BertConfig(**values)
  if config.hidden_size % config.num_heads:
    allowed = f'a multiple of {config.num_heads} heads'
    refuse(path, _NAMES['hidden_size'], config.hidden_size, allowed)
  return config


def from_config(config: bert_config.BertConfig) -> dict[str, Any]:
  """Returns the fields of a config, with the names in the file as keys."""
  return {name: getattr(config, ours) for ours, name in _NAMES.items()}
