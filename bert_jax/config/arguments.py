"""Sets fields of a config, by arguments of --config or flags of commands."""

import contextlib
import difflib
from collections.abc import Mapping

from absl import flags
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import readings, recipes
from bert_jax.config.declaration import Choice
from bert_jax.config.fields import FIELDS


def apply_arguments(c: config_dict.ConfigDict, arguments: str):
  """Applies the arguments of `--config=FILE:ARGUMENTS` to a config; returns it.

  They are `smoke`, `size=NAME`, `body=modern`, `profile=NAME` (with the paper's
  learning rate and epochs of fine-tuning at any size), `steps=N` (of pre-training in
  all), see `recipes`, and `field=value`, separated by commas, and are applied in this order,
  before what overrides their fields. A field is named by its dotted path, or by
  the last part of it if unique; any other single value for a field of phases
  applies to all phases.
  """
  items = [item for item in arguments.split(',') if item]
  first = 'smoke', 'size', 'body', 'profile', 'steps'
  ranks = {name: i - len(first) for i, name in enumerate(first)}
  for item in sorted(items, key=lambda x: ranks.get(x.partition('=')[0], 0)):
    name, equals, value = item.partition('=')
    if ':' in name:
      raise errors.UserError(
        f'config argument {item!r}: separate arguments by a comma, as in '
        f'{item.replace(":", ",")!r}.'
      )
    if item == 'smoke':
      recipes.smoke(c)
    elif name == 'profile' and equals:
      if value not in recipes.PROFILES:
        known = ', '.join(recipes.PROFILES)
        raise errors.UserError(f'profile={value} is not one of {known}.')
      fields = recipes.PROFILES[value] | recipes.get_paper(c)
      c.update_from_flattened_dict(fields)
    elif name == 'size' and equals:
      recipes.set_size(c, value)
    elif name == 'body' and equals:
      recipes.set_body(c, value)
    elif equals:
      set_field(c, name, value)
    else:
      raise errors.UserError(
        f'config argument {item!r} is neither smoke nor field=value.'
      )
  return c


def set_field(c: config_dict.ConfigDict, name: str, value: str) -> str:
  """Sets a field, see `apply_arguments`; returns its dotted path."""
  fields = readings.flatten(c)
  matches = [f for f in fields if f.split('.')[-1] == name]
  matches = [name] if name in fields else matches
  if len(matches) != 1:
    near = ' or '.join(matches or _find_near(name, fields))
    advice = (
      f'did you mean {near}?' if near else '--help beside --config lists all.'
    )
    problem = 'ambiguous' if matches else 'unknown'
    raise errors.UserError(f'config argument {name!r} is {problem}; {advice}')
  path, old = matches[0], fields[matches[0]]
  try:
    if old == ():
      raise ValueError(
        f"takes several values; give --config.{path}='{FIELDS[path].like}'"
      )
    if isinstance(old, tuple):
      new = (_parse(value, type(old[0])),) * len(old)
    else:
      new = _parse(value, type(old))
  except ValueError as error:
    what = f'config argument {name}={value}: {error}.'
    raise errors.UserError(what) from None
  if name == 'steps' and c.task == 'pretraining':
    recipes.set_steps(c, new[0])
    return path
  with c.ignore_type():
    c.update_from_flattened_dict({path: new})
  return path


def list_typed(arguments: str) -> set[str]:
  """Returns the dotted paths of the fields that arguments set by name."""
  names = {item.partition('=')[0] for item in arguments.split(',')}
  if 'size' in names:
    names |= {'num_layers', 'hidden_size', 'num_heads', 'mlp_size'}
  return {f for f in FIELDS if not names.isdisjoint((f, f.split('.')[-1]))}


def _find_near(name, fields):
  """Returns up to three fields, each by the shortest name that is unique."""
  last = [f.split('.')[-1] for f in fields]
  names = {}
  for path, short in zip(fields, last, strict=True):
    names[path] = names[short] = short if last.count(short) == 1 else path
  return dict.fromkeys(
    names[x] for x in difflib.get_close_matches(name, names, 3)
  )


def _parse(text, kind):
  if kind in (int, float):
    try:
      whole = kind is int and 'e' in text.lower() and float(text).is_integer()
      return int(float(text)) if whole else kind(text)
    except (ValueError, OverflowError):
      raise ValueError(
        f'is not a {"whole " if kind is int else ""}number'
      ) from None
  if kind is not bool:
    return kind(text)
  if text.lower() not in ('true', 'false'):
    raise ValueError('is not true or false')
  return text.lower() == 'true'


# So that --help shows the flags with the command that calls `define_flags`.
flags.disclaim_key_flags()

_KINDS = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  tuple: flags.DEFINE_list,
}


def define_flags(names: Mapping[str, str], **defaults):
  """Defines a flag for each field of {flag: field}, by its declaration."""
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


def update_by_flags(c: config_dict.ConfigDict, names: Mapping[str, str]):
  """Sets fields of a config by the flags that `define_flags` made."""
  for flag, name in names.items():
    field, value = FIELDS[name], flags.FLAGS[flag].value
    if isinstance(field.default, tuple):
      with contextlib.suppress(ValueError):  # what is no number is told below
        value = tuple(map(type(field.like[0]), value))
    elif isinstance(value, list):
      value = ','.join(value)
    if problem := field.find_problem(f'--{flag}', value):
      raise errors.UserError(f'{problem}; see --help.')
    c.update_from_flattened_dict({name: value})
