"""Flags of commands that set fields of a config."""

from collections.abc import Mapping

from absl import flags
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config.declaration import Choice
from bert_jax.config.fields import FIELDS

# So that --help shows the flags with the command that calls `define`.
flags.disclaim_key_flags()

_KINDS = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  tuple: flags.DEFINE_list,
}


def define(names: Mapping[str, str], **defaults):
  """Defines a flag for each field, by its declaration.

  Args:
    names: {flag: field}.
    **defaults: defaults of flags that are not those of the fields.
  """
  for flag, name in names.items():
    field = FIELDS[name]
    default = defaults.get(flag, field.default)
    meaning = f'{field.meaning[0].upper()}{field.meaning[1:]}.'
    if isinstance(field.allowed, Choice):
      flags.DEFINE_enum(flag, default, field.allowed, meaning)
    elif name == 'data.input':  # a text with commas
      flags.DEFINE_list(flag, default, meaning)
    else:
      _KINDS[type(field.default)](flag, default, meaning)


def update(c: config_dict.ConfigDict, names: Mapping[str, str]):
  """Sets fields of a config by the flags that `define` made.

  Raises:
    errors.UserError: for a value that the field may not have.
  """
  for flag, name in names.items():
    field, value = FIELDS[name], flags.FLAGS[flag].value
    if isinstance(field.default, tuple):
      value = _parse(flag, value, type(field.like[0]))
    elif isinstance(value, list):
      value = ','.join(value)
    problem = field.find_problem(f'--{flag}', value)
    if problem:
      raise errors.UserError(f'{problem}; see --help.')
    c.update_from_flattened_dict({name: value})


def _parse(flag: str, texts: list[str], kind: type) -> tuple:
  try:
    return tuple(kind(text) for text in texts)
  except ValueError:
    raise errors.UserError(
      f'--{flag}={",".join(texts)} must be numbers, for example '
      f'{"128,512" if kind is int else "1,0.5"}.'
    ) from None
