"""Plots the attention of a sentence."""

import math
import warnings

import numpy as np

from bert_jax import errors
from bert_jax.model import bert_config
from bert_jax.runtime import drawing, files

# Inches: row of a token, minimum side of a map, gap between maps.
_CELL, _LEAST_SIDE, _GAP = 0.2, 1.6, 0.4
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
  drawing.import_matplotlib()


def draw(
  path: str,
  tokens: tuple[str, ...],
  attention: np.ndarray,
  layer: int | None,
  head: int | None,
):
  """Draws the figure of `make_figure` as a PNG."""
  matplotlib = drawing.import_matplotlib()
  there = {font.name for font in matplotlib.font_manager.fontManager.ttflist}
  fonts = [name for name in _FONTS if name in there]  # searched for each letter
  with (
    matplotlib.rc_context({'font.family': fonts, 'font.size': 8}),
    warnings.catch_warnings(record=True, action='always') as warned,
  ):
    figure = make_figure(tokens, attention, layer, head)
    files.write_file(
      path, lambda new: figure.savefig(new, format='png', dpi=110)
    )
  if any('missing from font' in str(w.message) for w in warned):
    print(
      'no font here has all letters of it; install one, such as Noto '
      'Sans or, for Chinese, Japanese and Korean, Noto Sans CJK'
    )


def make_figure(
  tokens: tuple[str, ...],
  attention: np.ndarray,
  layer: int | None,
  head: int | None,
):
  """Returns the attention map of a head, or of all heads of a layer as a grid.

  Args:
    tokens: S word pieces.
    attention: [L, H, S (from), S (to)], probabilities.
    layer: number of the layer, from 0; None is the last.
    head: number of the head, from 0; None is all.
  """
  layer = len(attention) - 1 if layer is None else layer
  maps = attention[layer]  # [H, S, S]
  chosen = range(len(maps)) if head is None else [head]
  columns = min(_COLUMNS, math.ceil(math.sqrt(len(chosen))))
  rows = math.ceil(len(chosen) / columns)
  side = max(_CELL * len(tokens), _LEAST_SIDE) + _GAP
  figure = drawing.import_matplotlib().figure.Figure(
    (columns * side + 2, rows * side + 1), layout='constrained'
  )
  grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
  axes = grid.flat[: len(chosen)]
  for place, (axis, i) in enumerate(zip(axes, chosen, strict=True)):
    image = axis.imshow(maps[i], 'Blues', vmin=0, vmax=maps[[*chosen]].max())
    axis.set_title(f'layer {layer}, head {i}')
    axis.set_xticks(range(len(tokens)), tokens, rotation=90)
    axis.set_yticks(range(len(tokens)), tokens)
    for side in (axis.xaxis, axis.yaxis):  # lines between the cells
      side.set_ticks(np.arange(len(tokens) - 1) + 0.5, minor=True)
    axis.grid(which='minor', color='0.93', linewidth=0.5)
    axis.tick_params(which='both', length=0)
    axis.tick_params(labelbottom=place + columns >= len(chosen))
  for axis in grid.flat[len(chosen) :]:
    axis.remove()
  figure.supxlabel('to', fontsize=10)
  figure.supylabel('from', fontsize=10)
  figure.colorbar(image, ax=[*axes], label='probability', fraction=0.05)
  return figure
