"""Turns a config into JSON, a table of fields or text, and back."""

import json

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config.fields import FIELDS, declare_fields


def flatten(c: config_dict.ConfigDict) -> dict:
  """Returns {'data.vocab_size': 30522, ...}, sorted by name."""
  return {name: c[name] for name in sorted(FIELDS)}


def unflatten(fields: dict) -> config_dict.ConfigDict:
  """Returns the config that `to_json` wrote; missing fields have defaults."""
  new = {}
  for name, value in fields.items():
    new[name] = tuple(value) if isinstance(value, list) else value
    if name not in FIELDS:
      raise errors.UserError(
        f'{name!r} is not a field of this version; use the one that saved it.'
      )
    if not FIELDS[name].has_type_of(new[name]):
      raise errors.UserError(
        f'{name}={value!r} should be like {FIELDS[name].like!r}; correct it.'
      )
  c = declare_fields()
  c.update_from_flattened_dict(new)
  return c


def to_json(c: config_dict.ConfigDict) -> str:
  """Returns the fields as JSON, one per line."""
  return json.dumps(flatten(c), indent=2) + '\n'
