"""What a config says: as a table of fields or JSON, and what fields mean together."""

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


def list_decays(phases: config_dict.ConfigDict) -> list[tuple[float, int, int]]:
  """Returns the peak, warm-up and updates of each decay of the learning rate.

  Phases with a rate of 0 continue the decay of the one before.
  """
  decays = []
  for peak, warmup, steps in zip(
    phases.learning_rates, phases.warmups, phases.steps, strict=True
  ):
    if decays and not peak:
      *known, before = decays[-1]
      decays[-1] = (*known, before + steps)
    else:
      decays.append((peak, warmup, steps))
  return decays


def get_xla_options(text: str) -> dict[str, str | bool]:
  """Returns the compiler options of `compute.xla_options`; none of `auto`."""
  options = {}
  for item in text.split() if text != 'auto' else ():
    name, equals, value = item.partition('=')
    if not equals:
      raise errors.UserError(
        f'compute.xla_options has {item!r}; give NAME=VALUE NAME=VALUE.'
      )
    # XLA for GPUs takes no words for these.
    options[name.lstrip('-')] = {'true': True, 'false': False}.get(value, value)
  return options
