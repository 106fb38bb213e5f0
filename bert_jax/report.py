"""Writes a page on runs: curves, what they predict, their data and cost.

  python -m bert_jax.report --workdir=runs/tiny

The page is one HTML file that needs no network. Give several directories to see
the runs, such as those of a sweep, side by side. They may still be training. Each
kept checkpoint guesses the same held-out words, so keep some
(--config.checkpoint.keep_every) to see what is learnt when.
"""

import html
import io
import os
import re
import textwrap
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags

from bert_jax import errors
from bert_jax.config import describe
from bert_jax.inference import fill, source, trained_run
from bert_jax.pretraining import finish
from bert_jax.runtime import cards, cli, files, machine, storage
from bert_jax.workdir import checkpoint_reader, log, paths

_CHECKPOINTS, _EXAMPLES = 6, 5  # that guess words, and words to guess, at most
# What of a row is no curve; of training, only two values are.
_ABOUT = 'kind', 'step', 'seconds', 'tokens', 'flops', 'loss', 'mlm_perplexity'
_TRAINING = 'loss', 'learning_rate'
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
# Text stays text; the same chart is the same bytes.
_STYLE = {'svg.fonttype': 'none', 'svg.hashsalt': 'bert_jax', 'font.size': 9}
_FORMAT = {'format': 'svg', 'transparent': True, 'metadata': {'Date': None}}


class Run(NamedTuple):
  """What is known about a run.

  Attributes:
    facts: rows of the table of results.
    curves: points by the title of their chart.
    marks: {name: (x or y, where it is)} of lines across the MLM loss.
    sections: {heading: text, or rows of a table, the first of them its head}.
  """

  workdir: str
  facts: dict[str, Any]
  curves: dict[str, list[tuple[float, float]]]
  marks: dict[str, tuple[str, float]]
  sections: dict[str, Any]


def _read(folder: str, name: str) -> dict:
  path = trained_run.find_own(folder, name, any_size=True)
  return files.read_json(path) if path else {}


def read(workdir: str) -> Run:
  """Reads a run, which may be training."""
  path = trained_run.find_own(workdir, 'config.json')
  config = trained_run.read_config(path or paths.config(workdir))
  path = trained_run.find_own(workdir, 'metrics.jsonl', any_size=True)
  rows, own = log.read(path) if path else [], paths.own_data(workdir)
  # Of data elsewhere, a run keeps a copy, see `claim.keep`.
  kept = workdir if config.data.dir else own
  results, marks, sections = {}, {}, {}
  # Reports what no command writes, such as a word in place of a number.
  kinds = AttributeError, LookupError, OverflowError, TypeError, ValueError
  with errors.explaining(f'cannot use {workdir}', 'copy it again.', kinds):
    if config.task != 'pretraining':
      results = _read(workdir, 'results.json')
    elif manifest := _read(kept, 'manifest.json'):
      marks['unigram entropy'] = 'y', float(manifest['unigram_entropy'])
      sections['Data'] = _show_data(manifest)
    facts = _list_facts(config, rows, _read(workdir, 'status.json'), results)
    if (place := facts.get('plateau_exit_tokens')) is not None:
      marks['exit of the plateau'] = 'x', place
    sections['Command'] = f'{_get_last(rows, "run").get("command", "")}'
    curves = _list_curves(rows)
  if config.task == 'pretraining' and rows:
    sections = _guess(workdir, config.phases.seq_length[0], own) | sections
  sections['Config, without defaults'] = textwrap.dedent(describe(config))
  return Run(workdir, facts, curves, marks, sections)


def _get_last(rows, *kinds) -> dict:
  of = ([row for row in rows if row['kind'] == kind] for kind in kinds)
  return next(filter(None, of), [{}])[-1]


def _list_facts(c, rows, status, results) -> dict[str, Any]:
  last, run = _get_last(rows, 'eval', 'train'), _get_last(rows, 'run')
  sizes = zip(c.phases.batch_size, c.phases.seq_length, strict=True)
  state = [f'{status[x]}' for x in ('state', 'message') if status.get(x)]
  if state[:1] in (['starting'], ['running']):
    then = time.localtime(status['time'])
    state.append(time.strftime('as of %Y-%m-%d %H:%M', then))
  seconds = log.count_seconds(rows, c.phases.steps, c.phases.batch_size)
  facts = {
    'task': c.finetuning.glue or c.task,
    'starts from': c.init_from or 'new weights',
    'layers x hidden size': f'{c.model.num_layers} x {c.model.hidden_size}',
    'rows x tokens a batch': ', '.join(f'{x} x {n}' for x, n in sizes),
    'state': ': '.join(state),
    'updates': f'{last.get("step", 0):,} of {sum(c.phases.steps):,}',
    'hours of training': f'{seconds / 3600:.2f}',
  }
  for name, value in results.get('metrics', {}).items():
    low, high = results['intervals'][name]
    constant = f'a constant gets {results["baseline"][name]:.4f}'
    if words := results.get('counted_words'):
      constant += f', counting words {words["metrics"][name]:.4f}'
    facts[f'dev {name}'] = f'{value:.4f} [{low:.4f}, {high:.4f}], {constant}'
  about = 'devices', 'device_kind', 'cores', 'jax', 'libtpu'
  facts |= {x: f'{run[x]}' for x in about if run.get(x)}
  # Fails unless they are numbers.
  return facts | {x: +last[x] for x in last if x not in ('kind', 'step')}


def _list_curves(rows):
  curves: dict[str, list[tuple[float, float]]] = {}
  for row in rows:
    of = {'train': _TRAINING, 'eval': row.keys() - _ABOUT}.get(row['kind'], ())
    x = 'tokens' if 'mlm_loss' in row and 'tokens' in row else 'step'
    for key in (x for x in row if x in of and '/' not in x):
      title = f'{row["kind"]}: {key}, by {x}'
      curves.setdefault(title, []).append((float(row[x]), float(row[key])))
  return curves


def _show_data(manifest):
  rows = [('', 'documents', 'bytes of text', 'training tokens')]
  for x in manifest['inputs']:
    tokens = x['train']['tokens']
    rows.append((x['input'], x['documents'], x['text_bytes'], tokens))
  facts = {x: manifest[x] for x in ('unknown_share', 'unigram_entropy')}
  facts |= {f'rows of {k}': x['rows'] for k, x in manifest['lengths'].items()}
  rows += (facts | manifest['cleaned']).items()
  return [[cards.show(x) for x in row] for row in rows]


def _guess(workdir, length, data) -> dict[str, Any]:
  """Lets the checkpoints guess held-out words."""
  sections: dict[str, Any] = {}
  examples: list[tuple[str, str]] = []
  try:
    steps = checkpoint_reader.list_steps(paths.checkpoints(workdir))
    if not steps or not _read(data, 'manifest.json'):
      return {'Guesses': f'none: no checkpoint, or no data in {data}'}
    places = np.linspace(0, len(steps) - 1, min(len(steps), _CHECKPOINTS))
    for step in (steps[int(x)] for x in places.round()):
      model = source.read(f'{workdir}@{step}')
      asked = data, length, model.tokenizer, _EXAMPLES
      examples = examples or finish.choose_examples(*asked)
      for sentence, truth in examples:
        [words] = fill.fill(*model[:3], sentence)
        guesses = [f'{"✓ " * (x == truth)}{x} {p:.0%}' for x, p in words]
        head = [('updates', 'the likeliest words')]
        rows = sections.setdefault(f'{sentence} ({truth})', head)
        rows.append((step, ', '.join(guesses)))
  except (errors.UserError, OSError) as error:
    sections['Guesses'] = errors.first_line(error)
  return sections


def render(shown: Sequence[Run]) -> str:
  """Returns the page, HTML that loads nothing."""
  folders = [x.workdir.rstrip('/') for x in shown]
  start = os.path.commonprefix(folders).rfind('/') + 1
  named = dict(zip((x[start:] for x in folders), shown, strict=True))
  title = errors.listing([*named], most=3)
  parts = [_tag('title', title), _tag('h1', title)]
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


def _show_curves(named: Mapping[str, Run]) -> str:
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


def main():
  # The runs may be using the accelerators.
  jax.config.update('jax_platforms', 'cpu')
  folders = [storage.resolve(x) for x in flags.FLAGS.workdir or ['']]
  output = flags.FLAGS.output or os.path.join(folders[0], 'report.html')
  machine.keep_programs()
  text = render([read(x) for x in folders])
  storage.make_folder(os.path.dirname(output))
  # A link is replaced: in a folder from elsewhere it may lead anywhere.
  files.write_text(output, text)
  print(f'wrote {output}: {errors.count(len(folders), "run")}')


def _define_flags():
  flags.DEFINE_list('workdir', None, 'Directories of runs.')
  flags.DEFINE_string('output', '', 'The .html to write; replaced if there.')
  flags.mark_flags_as_required(['workdir'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
