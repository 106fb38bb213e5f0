"""Draws charts as SVG, whose lines and letters take the page's colours."""

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.runtime import drawing
from bert_jax.sweep import results

# Stands for the colour of the page's text, which depends on the reader's theme.
_TEXT = '#010203'
_STYLE = {
  'svg.fonttype': 'none',  # text stays text
  'svg.hashsalt': 'bert_jax',  # the same chart is the same bytes
  'font.size': 9,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.grid': True,
  'grid.alpha': 0.15,
  'legend.frameon': False,
  **dict.fromkeys(
    (
      *('text.color', 'axes.labelcolor', 'axes.edgecolor', 'axes.titlecolor'),
      *('xtick.color', 'ytick.color', 'grid.color'),
    ),
    _TEXT,
  ),
}


def draw_curves(
  title: str,
  curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
  x_label: str,
  levels: Mapping[str, float] | None = None,
  places: Mapping[str, float] | None = None,
) -> str:
  """Draws curves over one another.

  Args:
    curves: {name: (x, y)}.
    levels: {name: y} of horizontal lines.
    places: {name: x} of vertical lines.
  """
  ticker = drawing.import_matplotlib().ticker
  with _figure(5, 3.2) as (figure, svg):
    axis = figure.add_subplot()
    for name, (x, y) in curves.items():
      axis.plot(x, y, label=name, marker='.' if len(x) < 30 else '')
    for name, y in (levels or {}).items():
      axis.axhline(y, linestyle='--', linewidth=1, color=_TEXT, alpha=0.6)
      axis.annotate(
        name,
        (1, y),
        xycoords=('axes fraction', 'data'),
        ha='right',
        va='bottom',
      )
    for name, x in (places or {}).items():
      axis.axvline(x, linestyle=':', linewidth=1, color=_TEXT, alpha=0.6)
      axis.annotate(
        name,
        (x, 1),
        xycoords=('data', 'axes fraction'),
        rotation=90,
        ha='right',
        va='top',
      )
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(x_label)
    axis.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
    if len(curves) > 1:
      axis.legend(fontsize=8)
  return svg[0]


def draw_scores(settings: Sequence[dict[str, Any]]) -> str:
  """Draws the scores of a sweep's settings, see `results.make_figure`."""
  with _rendering() as svg:
    svg.append(results.make_figure(settings))
  return svg[0]


def draw_attention(tokens: Sequence[str], attention: np.ndarray) -> str:
  """Draws attention as a map for each head of the first and the last layer.

  Args:
    tokens: S word pieces.
    attention: [L, H, S (from), S (to)], probabilities.
  """
  layers = sorted({0, len(attention) - 1})
  heads = min(attention.shape[1], 4)
  side = 0.9 + 0.13 * len(tokens)
  with _figure(heads * side, len(layers) * side) as (figure, svg):
    for row, layer in enumerate(layers):
      for head in range(heads):
        place = row * heads + head + 1
        axis = figure.add_subplot(len(layers), heads, place)
        axis.imshow(attention[layer, head], 'Blues', vmin=0, vmax=1)
        axis.set_title(f'layer {layer}, head {head}', fontsize=8)
        axis.grid(visible=False)
        names = range(len(tokens)), tokens
        axis.set_xticks(*names, rotation=90, fontsize=6)
        axis.set_yticks(*(names if head == 0 else ([], [])), fontsize=6)
  return svg[0]


@contextlib.contextmanager
def _figure(width: float, height: float):
  """Yields (a figure of matplotlib, a list that gets its SVG at the end)."""
  figures = drawing.import_matplotlib().figure
  with _rendering() as svg:
    svg.append(figures.Figure((width, height), layout='constrained'))
    yield svg[0], svg


@contextlib.contextmanager
def _rendering():
  """Yields a list for a figure, which is replaced by its SVG at the end."""
  matplotlib = drawing.import_matplotlib()
  drawn: list[Any] = []
  with matplotlib.rc_context(_STYLE):
    yield drawn
    file = io.StringIO()
    drawn[0].savefig(
      file, format='svg', transparent=True, metadata={'Date': None}
    )
  text = file.getvalue()
  # Without the XML header, and as wide as its place on the page.
  text = text[text.index('<svg') :]
  text = re.sub(r' (width|height)="[\d.]+pt"', '', text, count=2)
  for color in (_TEXT, '#000000'):
    text = text.replace(color, 'currentColor')
  drawn[0] = text
