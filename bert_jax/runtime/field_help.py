"""Tells users which fields a config has, and what they mean."""

import textwrap
from collections.abc import Collection, Mapping
from typing import Any

_WIDTH = 80  # columns


def describe_fields(config: Any, meanings: Mapping[str, str]) -> str:
  """Returns a text with every field of a config: name, value and meaning.

  Args:
    config: the fields' values by name.
    meanings: by name, such as 'data.input'.
  """
  lines, group = ['', 'fields, each a flag:'], ''
  for name in sorted(meanings, key=lambda name: ('.' in name, name)):
    before, group = group, name.rpartition('.')[0]
    if group != before:
      lines += ['', f'{group}:']
    lines.append(f'  --config.{name}={_format_value(config[name])}')
    lines += textwrap.wrap(
      meanings[name], _WIDTH, initial_indent=' ' * 4, subsequent_indent=' ' * 4
    )
  return '\n'.join(lines)


def find_full_names(name: str, fields: Collection[str]) -> list[str]:
  """Returns the fields of which `name` is the last part."""
  return [field for field in fields if field.rpartition('.')[2] == name]


def _format_value(value: Any) -> str:
  if isinstance(value, str):
    return repr(value) if value else "''"
  return repr(value).replace(' ', '')
