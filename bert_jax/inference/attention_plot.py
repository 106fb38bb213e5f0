"""Plots the attention of a sentence."""

import logging
import math
import warnings

import numpy as np

from bert_jax import errors
from bert_jax.model import bert_config
from bert_jax.runtime import files

# Inches: row of a token, minimum side of a map, gap between maps, letter width.
_CELL, _LEAST_SIDE, _GAP, _LETTER = 0.2, 1.6, 0.32, 0.066
_COLUMNS = 4  # heads side by side, at most
_FONTS = (
  'DejaVu Sans',  # comes with matplotlib; the others may have what it lacks
  'Noto Sans CJK JP',
  'Noto Sans CJK KR',
  'Noto Sans',
  'WenQuanYi Zen Hei',
  'Arial Unicode MS',
)


def check(config: bert_config.BertConfig, layer: int | None, head: int | None):
  """Raises errors.UserError for an invalid layer or head, or no matplotlib."""
  for name, value, count in (
    ('layer', layer, config.num_layers),
    ('head', head, config.num_heads),
  ):
    if value is not None and not 0 <= value < count:
      raise errors.UserError(
        f'{name}={value} is not one of 0 to {count - 1}, which the model has.'
      )
  _import()


def draw(
  path: str,
  tokens: tuple[str, ...],
  attention: np.ndarray,
  layer: int | None,
  head: int | None,
):
  """Draws the attention map of a head, or of all heads of a layer as a grid.

  Args:
    path: the .png to write.
    tokens: S word pieces.
    attention: [L, H, S (from), S (to)], probabilities.
    layer: number of the layer, from 0; None is the last.
    head: number of the head, from 0; None is all.

  Raises:
    errors.UserError: if matplotlib is missing or the file cannot be written.
  """
  matplotlib, figures = _import()
  layer = len(attention) - 1 if layer is None else layer
  maps = attention[layer]  # [H, S, S]
  chosen = range(len(maps)) if head is None else [head]
  most = max(maps[i].max() for i in chosen)
  columns = min(_COLUMNS, math.ceil(math.sqrt(len(chosen))))
  rows = math.ceil(len(chosen) / columns)
  side = max(_CELL * len(tokens), _LEAST_SIDE)
  # Inches at the left and bottom: the longest token, and the axis label.
  margin = _LETTER * max(map(len, tokens)) + 0.35
  width = margin + columns * (side + _GAP) + 0.9
  height = margin + rows * (side + _GAP) + 0.1
  with matplotlib.rc_context({'font.family': _fonts(matplotlib)}):
    figure = figures.Figure(figsize=(width, height))

    def add(x, y, w, h):
      return figure.add_axes((x / width, y / height, w / width, h / height))

    for place, i in enumerate(chosen):
      row, column = divmod(place, columns)
      x = margin + column * (side + _GAP)
      y = margin + (rows - 1 - row) * (side + _GAP)
      axis = add(x, y, side, side)
      image = axis.imshow(maps[i], cmap='Blues', vmin=0, vmax=most)
      axis.set_title(f'layer {layer}, head {i}', fontsize=10)
      lowest = place + columns >= len(chosen)
      _name_tokens(axis, tokens, below=lowest, left=column == 0)
    bar = add(width - 0.8, margin, 0.12, rows * (side + _GAP) - _GAP)
    figure.colorbar(image, cax=bar).ax.tick_params(labelsize=8)
    for x, y, text in (
      (width - 0.74, height - 0.2, 'probability'),
      (margin - 0.4, height - 0.2, 'from'),
      (margin + columns * (side + _GAP) / 2, 0.07, 'to'),
    ):
      figure.text(x / width, y / height, text, fontsize=10, ha='center')
    _save(figure, path)


def _name_tokens(axis, tokens, below: bool, left: bool):
  """Labels a map's axes with the tokens, and draws lines between its cells."""
  places = range(len(tokens))
  axis.set_xticks(
    places, tokens if below else [''] * len(tokens), rotation=90, fontsize=8
  )
  axis.set_yticks(places, tokens if left else [''] * len(tokens), fontsize=8)
  edges = np.arange(len(tokens) - 1) + 0.5
  axis.set_xticks(edges, minor=True)
  axis.set_yticks(edges, minor=True)
  axis.grid(which='minor', color='0.93', linewidth=0.5)
  axis.tick_params(which='both', length=0)


def _save(figure, path):
  with warnings.catch_warnings(record=True, action='always') as warned:
    files.write_file(
      path, lambda new: figure.savefig(new, format='png', dpi=110)
    )
  if any('missing from font' in str(w.message) for w in warned):
    print('no font here has all letters of it; install one, such as Noto Sans')


def _import():
  """Returns modules of matplotlib, an optional dependency."""
  try:
    import matplotlib
    from matplotlib import figure
  except ImportError as error:
    raise errors.UserError(
      'drawing needs matplotlib; install it with: pip install matplotlib'
    ) from error
  logging.getLogger('matplotlib').setLevel(logging.WARNING)
  return matplotlib, figure


def _fonts(matplotlib) -> list[str]:
  """Returns the installed ones of `_FONTS`, to search for each letter."""
  from matplotlib import font_manager

  there = {font.name for font in font_manager.fontManager.ttflist}
  return [name for name in _FONTS if name in there]
