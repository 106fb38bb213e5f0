"""Tests of `bert_jax COMMAND`."""

import ast
import pathlib
import sys

import pytest

import bert_jax
from bert_jax import __main__ as commands
from tests import processes

ROOT = pathlib.Path(bert_jax.__file__).parent


def list_runnable():
  """Returns the modules of the package that `python -m` runs."""
  for path in ROOT.rglob('*.py'):
    name = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
    if "__name__ == '__main__'" in path.read_text('utf-8'):
      yield name.removesuffix('.__main__')


def test_every_command_is_listed():
  # __main__ is the command itself.
  assert {*commands.COMMANDS} == {*list_runnable()} - {'__main__'}


def test_a_command_gets_its_flags():
  done = processes.start('bert_jax', 'fill_mask', '--help')
  printed, _ = done.communicate()
  text = ast.get_docstring(
    ast.parse((ROOT / 'fill_mask.py').read_text('utf-8'))
  )
  assert done.returncode == 0
  assert printed.startswith(text)


def test_an_unknown_command_is_one_line(monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['bert_jax', 'fil_mask'])
  with pytest.raises(SystemExit) as end:
    commands.main()
  said = "error: 'fil_mask' is not a command; give one of main, data.vocab, "
  assert end.value.code.startswith(said)
