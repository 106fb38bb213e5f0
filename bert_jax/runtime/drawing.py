"""Imports matplotlib, an optional dependency."""

import importlib
import logging

from bert_jax import errors


def import_matplotlib():
  """Returns matplotlib, with its modules `figure`, `font_manager` and `ticker`.

  Raises:
    errors.UserError: if it is not installed.
  """
  try:
    matplotlib = importlib.import_module('matplotlib')
    for name in ('figure', 'font_manager', 'ticker'):
      importlib.import_module(f'matplotlib.{name}')
  except ImportError as error:
    raise errors.UserError(
      'a picture needs matplotlib; install it with: pip install matplotlib'
    ) from error
  logging.getLogger('matplotlib').setLevel(logging.WARNING)
  return matplotlib
