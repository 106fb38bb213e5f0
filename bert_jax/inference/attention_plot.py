"""Plots the attention of a sentence."""

import math
import warnings

import numpy as np

from bert_jax.runtime import cards, files

# Inches: row of a token, minimum side of a map, gap between maps.
_CELL, _LEAST_SIDE, _GAP = 0.2, 1.6, 0.4
_COLUMNS = 4  # heads side by side, at most
# The first comes with matplotlib; the others may have what it lacks.
_FONTS = 'DejaVu Sans,Noto Sans CJK JP,Noto Sans CJK KR,Noto Sans'.split(',')


def draw(path: str, tokens: tuple[str, ...], maps: dict[str, np.ndarray]):
  """Draws attention maps as a PNG.

  Args:
    tokens: S word pieces.
    maps: {title: probabilities [S (from), S (to)]}.
  """
  matplotlib = cards.import_matplotlib()
  there = {font.name for font in matplotlib.font_manager.fontManager.ttflist}
  fonts = [name for name in _FONTS if name in there]  # searched for each letter
  with (
    matplotlib.rc_context({'font.family': fonts, 'font.size': 8}),
    warnings.catch_warnings(record=True, action='always') as warned,
  ):
    figure = _make_figure(matplotlib, tokens, maps)
    files.write_file(
      path, lambda new: figure.savefig(new, format='png', dpi=110)
    )
  if any('missing from font' in str(w.message) for w in warned):
    print('no font here has all letters of it; install one, such as Noto Sans')


def _make_figure(matplotlib, tokens, maps):
  columns = min(_COLUMNS, math.ceil(math.sqrt(len(maps))))
  rows = math.ceil(len(maps) / columns)
  side = max(_CELL * len(tokens), _LEAST_SIDE) + _GAP
  figure = matplotlib.figure.Figure(
    (columns * side + 2, rows * side + 1), layout='constrained'
  )
  grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
  most = max(x.max() for x in maps.values())
  for axis, (title, probabilities) in zip(
    grid.flat, maps.items(), strict=False
  ):
    image = axis.imshow(probabilities, 'Blues', vmin=0, vmax=most)
    axis.set_title(title)
    axis.set_xticks(range(len(tokens)), tokens, rotation=90)
    axis.set_yticks(range(len(tokens)), tokens)
  for axis in grid.flat[len(maps) :]:
    axis.remove()
  figure.supxlabel('to', fontsize=10)
  figure.supylabel('from', fontsize=10)
  figure.colorbar(image, ax=[*grid.flat[: len(maps)]], label='probability')
  return figure
