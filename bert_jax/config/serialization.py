"""Turns a config into JSON, a table of fields or text, and back."""

import json
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import fields as fields_lib


def flatten(c: config_dict.ConfigDict) -> dict:
  """Returns {'data.vocab_size': 30522, ...}, sorted by name."""
  fields = {}
  for key, value in c.items():
    if isinstance(value, config_dict.ConfigDict):
      fields.update({f'{key}.{k}': v for k, v in flatten(value).items()})
    else:
      fields[key] = value
  return dict(sorted(fields.items()))


def unflatten(fields: dict) -> config_dict.ConfigDict:
  """Returns the config that `to_json` wrote; missing fields have defaults.

  Raises:
    errors.UserError: for an unknown field or a wrong type.
  """
  c = fields_lib.declare_fields()
  known, new = flatten(c), {}
  for name, value in fields.items():
    new[name] = tuple(value) if isinstance(value, list) else value
    if name not in known:
      raise errors.UserError(
        f'{name!r} is not a field of this version; use the one that wrote it.'
      )
    like = fields_lib.EXAMPLES.get(name, known[name])
    if not is_like(new[name], like):
      raise errors.UserError(
        f'{name}={value!r} should be like {like!r}; correct it.'
      )
  c.update_from_flattened_dict(new)
  return c


def is_like(value: Any, old: Any) -> bool:
  """Returns whether a value has the type of another; ints may be floats."""
  if isinstance(old, tuple):
    return isinstance(value, tuple) and all(is_like(v, old[0]) for v in value)
  return type(value) in (type(old), int if isinstance(old, float) else None)


def to_json(c: config_dict.ConfigDict) -> str:
  """Returns the fields as JSON, one per line."""
  return json.dumps(flatten(c), indent=2) + '\n'
