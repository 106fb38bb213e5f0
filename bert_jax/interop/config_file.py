"""The config files of models: config.json and Google's bert_config.json."""

import dataclasses
import reprlib
from collections.abc import Mapping
from typing import Any, NoReturn

from bert_jax import errors
from bert_jax.model import bert_config

# {our name: name in BERT's config.json and in Google's bert_config.json}.
BERT = {
  'vocab_size': 'vocab_size',
  'hidden_size': 'hidden_size',
  'num_layers': 'num_hidden_layers',
  'num_heads': 'num_attention_heads',
  'mlp_size': 'intermediate_size',
  'max_positions': 'max_position_embeddings',
  'type_vocab_size': 'type_vocab_size',
  'dropout': 'hidden_dropout_prob',
  'attention_dropout': 'attention_probs_dropout_prob',
  'activation': 'hidden_act',
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
  names: Mapping[str, str],
  activations: Mapping[str, str],
  **more: Any,
) -> bert_config.BertConfig:
  """Makes a config from a file's content and `more`, which such files lack.

  Names of fields are {ours: theirs}, those of `activations` {theirs: ours}.
  """
  values = {**more}
  for field in dataclasses.fields(bert_config.BertConfig):
    if field.name in values or field.name not in names:
      continue
    name = names[field.name]
    x = theirs.get(name, 'missing')
    least, most = (1, 1e9) if field.name.endswith('theta') else (0, 1)
    if field.type is int and not (type(x) is int and 0 < x < 1 << 31):
      refuse(path, name, x, 'a whole number from 1 to 2**31 - 1')
    number = type(x) in (int, float) and least <= x <= most
    if field.type is float and not number:
      refuse(path, name, x, f'a number from {least:g} to {most:g}')
    if field.name == 'activation' and x not in tuple(activations):
      refuse(path, name, x, f'one of {", ".join(activations)}')
    x = activations[x] if field.name == 'activation' else x
    values[field.name] = field.type(x)
  config = bert_config.BertConfig(**values)
  if config.hidden_size % config.num_heads:
    allowed = f'a multiple of {config.num_heads} heads'
    refuse(path, names['hidden_size'], config.hidden_size, allowed)
  return config


def from_config(
  config: bert_config.BertConfig, names: Mapping[str, str] = BERT
) -> dict[str, Any]:
  """Returns a config's fields by names in the file, without the activation."""
  shared = (x for x in names.items() if x[0] != 'activation')
  return {name: getattr(config, ours) for ours, name in shared}
