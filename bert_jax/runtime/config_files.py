"""Finds the files of --config, and tells users which fields a config has."""

import os
import pathlib
import runpy
import sysconfig
import textwrap
from collections.abc import Mapping
from typing import Any

import bert_jax
from bert_jax import errors

# In a clone and in an installed wheel; setup.cfg says where a wheel has them.
_FOLDERS = (
  pathlib.Path(bert_jax.__file__).parents[1] / 'configs',
  pathlib.Path(sysconfig.get_path('data'), 'share', 'bert_jax', 'configs'),
)
_WIDTH = 80  # columns


def find(given: str) -> str:
  """Returns FILE[:ARGUMENTS] with the path of an existing file.

  Where there is none, 'tiny' and 'configs/tiny.py' are the package's own.
  """
  path, colon, arguments = given.partition(':')
  name = path.removeprefix('configs/').removesuffix('.py')
  candidates = [path, *(str(folder / f'{name}.py') for folder in _FOLDERS)]
  path = next(filter(os.path.isfile, candidates), path)
  advice = f'give a file, or one of {", ".join(_list_names())}.'
  with errors.explaining(f'cannot read --config={path}', advice):
    open(path, encoding='utf-8').close()
  return f'{path}{colon}{arguments}'


def load(given: str):
  """Returns the config of FILE[:ARGUMENTS], see `find`."""
  path, _, arguments = find(given).partition(':')
  return runpy.run_path(path)['get_config'](arguments)


def _list_names() -> list[str]:
  files = (file for folder in _FOLDERS for file in folder.glob('*.py'))
  return sorted(
    {file.stem for file in files if 'def get_config' in file.read_text('utf-8')}
  )


def describe_fields(config: Any, meanings: Mapping[str, str]) -> str:
  """Returns a text with every field of a config: flag, value and meaning."""
  lines, group = ['', 'fields, each a flag:'], ''
  indent = {'initial_indent': ' ' * 4, 'subsequent_indent': ' ' * 4}
  for name in sorted(meanings, key=lambda name: ('.' in name, name)):
    before, group = group, name.rpartition('.')[0]
    if group != before:
      lines += ['', f'{group}:']
    value = config[name]
    shown = repr(value) if isinstance(value, str) else str(value)
    shown = shown.replace(' ', '') if isinstance(value, tuple) else shown
    lines.append(f'  --config.{name}={shown}')
    lines += textwrap.wrap(meanings[name], _WIDTH, **indent)
  return '\n'.join(lines)
