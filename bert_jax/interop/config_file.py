"""The config files of BERT models: config.json and bert_config.json."""

import reprlib
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from bert_jax import errors
from bert_jax.model import bert_config

# {name in config.json and in Google's bert_config.json: our name}.
FIELDS = {
  'vocab_size': ('vocab_size', int),
  'hidden_size': ('hidden_size', int),
  'num_hidden_layers': ('num_layers', int),
  'num_attention_heads': ('num_heads', int),
  'intermediate_size': ('mlp_size', int),
  'max_position_embeddings': ('max_positions', int),
  'type_vocab_size': ('type_vocab_size', int),
  'hidden_dropout_prob': ('dropout', float),
  'attention_probs_dropout_prob': ('attention_dropout', float),
  'layer_norm_eps': ('norm_epsilon', float),
  'initializer_range': ('initializer_std', float),
}
# Bounds the table of names, which is made before the tensors are read.
_MAX_LAYERS = 1000


def refuse(path: str, theirs: Mapping, key: str, allowed: str) -> NoReturn:
  """Raises errors.UserError for a key's value, saying what is allowed."""
  got = reprlib.repr(theirs.get(key, 'missing'))
  raise errors.UserError(f'{path}: {key} is {got}, not {allowed}.')


def to_config(
  path: str,
  theirs: Mapping[str, Any],
  activations: Mapping[str, str],
  without: Collection[str] = (),
  **more: Any,
) -> bert_config.BertConfig:
  """Makes a config from the content of a file.

  Args:
    path: the file, for error messages.
    theirs: its content.
    activations: {their name of an activation: our name}.
    without: keys of `FIELDS` that such files do not have.
    **more: further fields of the config.

  Raises:
    errors.UserError: if a value is missing, malformed or out of range.
  """
  if theirs.get('hidden_act') not in tuple(activations):
    refuse(path, theirs, 'hidden_act', f'one of {", ".join(activations)}')
  fields = {}
  for key, (ours, kind) in FIELDS.items():
    if key in without:
      continue
    value = theirs.get(key)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int and not (
      isinstance(value, int) and number and 0 < value < 1 << 31
    ):
      refuse(path, theirs, key, 'a whole number from 1 to 2**31 - 1')
    if kind is float and not (number and 0 <= value <= 1):
      refuse(path, theirs, key, 'a number from 0 to 1')
    fields[ours] = kind(value)
  if fields['hidden_size'] % fields['num_heads']:
    refuse(
      path, theirs, 'hidden_size', f'a multiple of {fields["num_heads"]} heads'
    )
  if fields['num_layers'] > _MAX_LAYERS:
    refuse(path, theirs, 'num_hidden_layers', f'{_MAX_LAYERS} or less')
  activation = activations[theirs['hidden_act']]
  return bert_config.BertConfig(**fields, activation=activation, **more)


def from_config(
  config: bert_config.BertConfig, without: Collection[str] = ()
) -> dict[str, Any]:
  """Returns the `FIELDS` of a config, with the names in the file as keys."""
  return {
    name: getattr(config, ours)
    for name, (ours, _) in FIELDS.items()
    if name not in without
  }
