"""Draws charts as SVG, whose lines and letters take the page's colours."""

import functools
import io
import re
import warnings
from collections.abc import Mapping, Sequence

from bert_jax.inference import attention_plot
from bert_jax.runtime import drawing
from bert_jax.sweep import results

_STYLE = {
  'svg.fonttype': 'none',  # text stays text
  'svg.hashsalt': 'bert_jax',  # the same chart is the same bytes
  'font.size': 9,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'legend.frameon': False,
}
_FORMAT = {'format': 'svg', 'transparent': True, 'metadata': {'Date': None}}


def _as_svg(draw):
  """Returns a function that returns the figure which `draw` makes as SVG."""

  @functools.wraps(draw)
  def render(*args) -> str:
    file = io.StringIO()
    with (
      drawing.import_matplotlib().rc_context(_STYLE),
      warnings.catch_warnings(),
    ):
      # Of letters that no font here has: the reader's browser draws the text.
      warnings.filterwarnings('ignore', 'Glyph .* missing from')
      draw(*args).savefig(file, **_FORMAT)
    # Without the XML header, and as wide as its place on the page.
    _, _, text = file.getvalue().partition('<svg')
    text = re.sub(r' (width|height)="[\d.]+pt"', '', text, count=2)
    # What is black has the colour of the page's text; letters do not say so.
    text = text.replace('#000000', 'currentColor')
    return f'<svg fill="currentColor"{text}'

  return render


draw_scores = _as_svg(results.make_figure)  # of a sweep's settings
draw_attention = _as_svg(attention_plot.make_figure)


@_as_svg
def draw_curves(
  title: str,
  curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
  x_label: str,
  levels: Mapping[str, float],
  places: Mapping[str, float],
):
  """Draws curves over one another.

  Args:
    curves: {name: (x, y)}.
    levels: {name: y} of horizontal lines.
    places: {name: x} of vertical lines.
  """
  matplotlib = drawing.import_matplotlib()
  figure = matplotlib.figure.Figure((5, 3.2), layout='constrained')
  axis = figure.add_subplot()
  for name, (x, y) in curves.items():
    axis.plot(x, y, label=name, marker='.' if len(x) < 30 else '')
  across, along = axis.get_yaxis_transform(), axis.get_xaxis_transform()
  for name, y in levels.items():
    axis.axhline(y, linestyle='--', linewidth=1, color='black', alpha=0.6)
    axis.text(1, y, name, transform=across, ha='right', va='bottom')
  for name, x in places.items():
    axis.axvline(x, linestyle=':', linewidth=1, color='black', alpha=0.6)
    axis.text(x, 1, name, transform=along, ha='left', va='top', rotation=90)
  axis.grid(color='black', alpha=0.15)
  axis.set_title(title, fontsize=10)
  axis.set_xlabel(x_label)
  axis.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=''))
  if len(curves) > 1:
    axis.legend(fontsize=8)
  return figure
