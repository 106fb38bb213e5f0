"""Runs the examples in docstrings."""

import doctest
import importlib
import pathlib

import pytest

import bert_jax

PACKAGE = pathlib.Path(bert_jax.__file__).parent
MODULES = [
  '.'.join(path.relative_to(PACKAGE.parent).with_suffix('').parts)
  for path in sorted(PACKAGE.rglob('*.py'))
  if '  >>> ' in path.read_text(encoding='utf-8')
]


@pytest.mark.parametrize('name', MODULES)
def test_examples_in_docstrings_give_what_they_say(name):
  found = doctest.testmod(importlib.import_module(name))
  assert found.attempted and not found.failed
