"""The config files of BERT models: config.json and bert_config.json."""

import dataclasses
import reprlib
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

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
_CHOICES = {
  'activation': tuple(bert_config.ACTIVATIONS),
  'norm': bert_config.NORMS,
  'initializer': tuple(bert_config.INITIALIZERS),
  'attention_init': bert_config.ATTENTION_INITS,
  'dtype': ('float32', 'bfloat16'),
  'remat': tuple(bert_config.REMAT),
}
_MASK_VALUE = float(np.finfo(np.float32).min)  # as in `profile=hf`
# Bounds the table of names, which is made before the tensors are read.
_MAX_LAYERS = 1000


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
  """Makes a config from the content of a file.

  Args:
    activations: {their name of an activation: our name}.
    **more: fields of the config that such files do not have.
  """
  kind = theirs.get('hidden_act', 'missing')
  if kind not in tuple(activations):
    refuse(path, 'hidden_act', kind, f'one of {", ".join(activations)}')
  values = {ours: theirs.get(name, 'missing') for ours, name in _NAMES.items()}
  values['activation'] = activations[kind]
  return make_config(path, {**values, **more}, _NAMES)


def make_config(
  path: str, values: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> bert_config.BertConfig:
  """Makes a config from values that are not trusted.

  Args:
    values: {field of BertConfig: value}.
    names: {field: its name in the file}, where they differ.
  """
  names = names or {}
  fields = {f.name: f for f in dataclasses.fields(bert_config.BertConfig)}
  unknown = sorted(set(values) - set(fields))
  if unknown:
    raise errors.UserError(
      f'{path}: its model has the unknown fields {errors.listing(unknown)}; '
      'convert it again.'
    )

  def check(name, good, allowed):
    if not good:
      value = values.get(name, 'missing')
      refuse(path, names.get(name, name), value, allowed)

  for name, field in fields.items():
    x, kind = values.get(name, field.default), field.type
    good, allowed = type(x) is kind, f'of {kind.__name__}'
    if name in _CHOICES:
      good, allowed = x in _CHOICES[name], f'one of {", ".join(_CHOICES[name])}'
    elif kind is int:
      good = good and 0 < x < 1 << 31
      allowed = 'a whole number from 1 to 2**31 - 1'
    elif kind is float:
      least, most = (_MASK_VALUE, 0) if name == 'mask_value' else (0, 1)
      good = type(x) in (int, float) and least <= x <= most
      allowed = f'a number from {least} to {most}'
    check(name, good, allowed)
  config = bert_config.BertConfig(
    **{name: fields[name].type(x) for name, x in values.items()}
  )
  heads, most = config.num_heads, _MAX_LAYERS
  check('num_layers', config.num_layers <= most, f'{most} or less')
  whole = config.hidden_size % heads == 0
  check('hidden_size', whole, f'a multiple of {heads} heads')
  return config


def from_config(config: bert_config.BertConfig) -> dict[str, Any]:
  """Returns the fields of a config, with the names in the file as keys."""
  return {name: getattr(config, ours) for ours, name in _NAMES.items()}
