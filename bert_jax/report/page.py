"""Renders what is known about runs as one self-contained HTML page."""

import html
import io
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax import errors
from bert_jax.experiments import table
from bert_jax.report import runs
from bert_jax.runtime import cards

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }}
body {{ max-width: 75rem; margin: auto; padding: 1rem }}
.charts {{ display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)) }}
svg {{ width: 100%; max-width: 45rem; height: auto; font-family: inherit }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse }}
tr:first-child {{ font-weight: bold }}
td {{ padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent) }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere }}
</style>
{}
</html>
"""
_STYLE = {
  'svg.fonttype': 'none',  # text stays text
  'svg.hashsalt': 'bert_jax',  # the same chart is the same bytes
  'font.size': 9,
}
_FORMAT = {'format': 'svg', 'transparent': True, 'metadata': {'Date': None}}


def render(shown: Sequence[runs.Run], sweeps: Mapping[str, dict]) -> str:
  """Returns the page, HTML that loads nothing; `sweeps` are of `runs.find`."""
  folders = [x.workdir.rstrip('/') for x in shown]
  start = os.path.commonprefix(folders).rfind('/') + 1
  named = dict(zip((x[start:] for x in folders), shown, strict=True))
  title = errors.listing([*map(os.path.basename, sweeps)] or [*named], most=3)
  parts = [_tag('title', title), _tag('h1', title)]
  for path, summary in sweeps.items():
    with runs.checking(path):
      rows = table.tabulate(summary)
      parts += [_tag('h2', f'Sweep {path}'), _make_table(rows)]
  facts = dict.fromkeys(name for run in shown for name in run.facts)
  rows = [(x, *(run.facts.get(x, '') for run in shown)) for x in facts]
  parts += [_tag('h2', 'Results'), _make_table([('', *named), *rows])]
  parts += [_tag('h2', 'Curves'), _show_curves(named)]
  for name, run in named.items():
    parts += [_tag('h2', name)] * (len(named) > 1)
    for heading, content in run.sections.items():
      is_text = isinstance(content, str)
      shown = _tag('pre', content) if is_text else _make_table(content)
      parts += [_tag('h3', heading), shown]
  return _PAGE.format('\n'.join(parts))


def _tag(name: str, content: Any) -> str:
  return f'<{name}>{html.escape(cards.show(content))}</{name}>'


def _make_table(rows: Sequence[Sequence[Any]]) -> str:
  """Returns a table, whose first row is its head."""
  lines = (''.join(_tag('td', x) for x in row) for row in rows)
  body = '\n'.join(f'<tr>{x}</tr>' for x in lines)
  return f'<div class="wide"><table>{body}</table></div>'


def _show_curves(named: Mapping[str, runs.Run]) -> str:
  drawn = []
  for title in sorted({x for run in named.values() for x in run.curves}):
    of = [(k, x.curves[title]) for k, x in named.items() if title in x.curves]
    [run, *others] = named.values()
    marks = run.marks if 'mlm_loss' in title and not others else {}
    drawn.append(draw(title, dict(of[:12]), marks))
  nothing = _tag('p', 'Nothing has been logged yet.')
  return f'<div class="charts">{"".join(drawn) or nothing}</div>'


def draw(*args) -> str:
  """Returns the figure of `make_figure` as SVG."""
  file = io.StringIO()
  matplotlib = cards.import_matplotlib()
  with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
    # Of letters that no font here has: the reader's browser draws the text.
    warnings.filterwarnings('ignore', 'Glyph .* missing from')
    make_figure(*args).savefig(file, **_FORMAT)
  # Without the XML header, and as wide as its place on the page.
  _, _, text = file.getvalue().partition('<svg')
  text = re.sub(r' (width|height)="[\d.]+pt"', '', text, count=2)
  # What is black has the colour of the page's text; letters do not say so.
  return f'<svg fill="currentColor"{text.replace("#000000", "currentColor")}'


def make_figure(
  title: str,
  curves: Mapping[str, Sequence[tuple[float, float]]],
  marks: Mapping[str, tuple[str, float]],
):
  """Returns a figure of curves over one another; marks are lines across."""
  matplotlib = cards.import_matplotlib()
  figure = matplotlib.figure.Figure((5, 3.2), layout='constrained')
  axis = figure.add_subplot(title=title)
  # A label that begins with _ would be left out.
  for name, points in curves.items():
    marker = '.' if len(points) < 30 else ''
    axis.plot(*zip(*points, strict=True), label=f' {name}', marker=marker)
  for name, (along, value) in marks.items():
    add = axis.axvline if along == 'x' else axis.axhline
    add(value, label=name, linestyle=':', color='black')
  axis.grid(color='black', alpha=0.15)
  axis.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=''))
  if len(curves) > 1 or marks:
    axis.legend(fontsize=8)
  return figure
