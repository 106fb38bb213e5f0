"""Which config fields may change when a run is resumed."""

import json

from ml_collections import config_dict

from bert_jax.config import FIELDS, declare_fields, to_json
from bert_jax.config.declaration import ANOTHER, SAME_MEANING, SAME_RESULT


def find(old: dict, config: config_dict.ConfigDict) -> dict[str, dict]:
  """Finds the fields that differ from a saved config.

  Args:
    old: the saved config as JSON; fields that it lacks have their defaults.

  Returns:
    {class: {field: {'was': value, 'is': value}}} for every class.
  """
  new = _as_json(config)
  old = {**_as_json(declare_fields()), **old}
  found = {SAME_RESULT: {}, SAME_MEANING: {}, ANOTHER: {}}
  for name in sorted({*old, *new}):
    was, now = old.get(name), new.get(name)
    if was != now:
      found[_classify(name, config)][name] = {'was': was, 'is': now}
  return found


def describe(changed: dict) -> str:
  """Returns 'seed was 0, is 3; ...' for fields of one class of `find`."""
  return '; '.join(
    f'{name} was {values["was"]!r}, is {values["is"]!r}'
    for name, values in changed.items()
  )


def _classify(name: str, config) -> str:
  # With this unit, each micro-batch is clipped separately.
  micro = config.optimizer.clip_unit == 'micro_batch'
  if name == 'phases.accumulate' and micro:
    return ANOTHER
  # The best is one of those that are evaluated.
  if name == 'eval.every' and config.finetuning.select == 'best':
    return ANOTHER
  if name in FIELDS:
    return FIELDS[name].resume
  # A field of another version of bert_jax is like the others of its section.
  section = name.partition('.')[0]
  kinds = {
    field.resume
    for known, field in FIELDS.items()
    if known.startswith(f'{section}.')
  }
  return kinds.pop() if len(kinds) == 1 else ANOTHER


def _as_json(config) -> dict:
  return json.loads(to_json(config))
