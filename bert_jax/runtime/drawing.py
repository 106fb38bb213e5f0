"""Imports matplotlib, an optional dependency."""

import logging

from bert_jax import errors


def import_matplotlib():
  """Returns matplotlib, with its modules `figure`, `font_manager`, `ticker`.

  Raises errors.UserError if it is not installed.
  """
  what = 'a picture needs matplotlib'
  advice = 'install it with: pip install matplotlib'
  with errors.explaining(what, advice, ImportError):
    import matplotlib.figure
    import matplotlib.font_manager
    import matplotlib.ticker
  logging.getLogger('matplotlib').setLevel(logging.WARNING)
  # What is drawn are names and words, in which $ begins no formula.
  matplotlib.rcParams['text.parse_math'] = False
  return matplotlib
