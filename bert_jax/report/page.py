"""Renders what is known about runs as one self-contained HTML page."""

import html
import itertools
import os
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence

import bert_jax
from bert_jax import errors, tasks
from bert_jax.config import describe
from bert_jax.inference import fine_tuned
from bert_jax.report import charts, runs
from bert_jax.sweep import results

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 75rem; margin: auto; padding: 1rem }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)) }
.charts > :only-child { max-width: 45rem }
svg { width: 100%; max-width: 60rem; height: auto; font-family: inherit }
.wide { overflow-x: auto }
table { border-collapse: collapse }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent) }
pre { white-space: pre-wrap; overflow-wrap: anywhere }
"""
_MOST = 12  # curves in a chart


def render(
  found: Sequence[runs.Run],
  sections: Sequence[runs.Section],
  sweeps: Mapping[str, dict],
) -> str:
  """Returns the page, HTML that loads nothing.

  Args:
    sections: what the checkpoints of each run show.
    sweeps: {path: results.json} of the sweeps that runs belong to.
  """
  names = [*map(os.path.basename, sweeps)] or [x.name for x in found]
  title = html.escape(errors.listing(names, most=3))
  parts = [f'<h1>{title}</h1>']
  for path, summary in sweeps.items():
    parts += [f'<h2>Sweep {html.escape(path)}</h2>', _show_sweep(summary)]
  parts += ['<h2>Results</h2>', _compare(found)]
  most = f' of the first {_MOST} runs' if len(found) > _MOST else ''
  parts += [f'<h2>Curves{most}</h2>', _show_curves(found[:_MOST])]
  for run, section in zip(found, sections, strict=True):
    if len(found) > 1:
      parts.append(f'<h2>{html.escape(run.name)}</h2>')
    parts.append(_show_run(run, section))
  return (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    f'<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n'
    + '\n'.join(parts)
    + f'\n<p>bert_jax {bert_jax.__version__}</p></body></html>\n'
  )


def _make_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
  lines = [''.join(f'<th>{html.escape(x)}</th>' for x in head)]
  lines += [''.join(f'<td>{html.escape(x)}</td>' for x in row) for row in rows]
  body = '\n'.join(f'<tr>{x}</tr>' for x in lines)
  return f'<div class="wide"><table>{body}</table></div>'


def _show_sweep(summary) -> str:
  head, *rows = results.tabulate(summary)
  scored = [x for x in summary['settings'] if x['values']]
  drawn = charts.draw_scores(scored) if scored else ''
  return f'{_make_table(head, rows)}<div class="charts">{drawn}</div>'


# {row of the table: how to find it in the last evaluation}
_LAST = {
  'MLM loss': ('mlm_loss', '.3f'),
  'MLM accuracy': ('mlm_accuracy', '.1%'),
  'NSP accuracy': ('nsp_accuracy', '.1%'),
  'tokens': ('tokens', ',.0f'),
  'FLOPs': ('flops', '.2e'),
  'FLOPs at the exit of the plateau': ('plateau_exit_flops', '.2e'),
}


def _compare(found: Sequence[runs.Run]) -> str:
  """Returns a table with a column for each run."""
  columns = [_describe(run) for run in found]
  names = dict.fromkeys(name for column in columns for name in column)
  return _make_table(
    ['', *(run.name for run in found)],
    [[name, *(x.get(name, '') for x in columns)] for name in names],
  )


def _describe(run: runs.Run) -> dict[str, str]:
  """Returns {row of the table: value} of a run."""
  c, m, scores = run.config, run.config.model, run.results
  facts, last = run.get_last('run'), run.get_last('eval', 'train')
  sizes = zip(c.phases.batch_size, c.phases.seq_length, strict=True)
  batches = dict.fromkeys(f'{rows} x {tokens}' for rows, tokens in sizes)
  device = [f'{facts[x]}' for x in ('devices', 'device_kind') if x in facts]
  others = [f'{x} {facts[x]}' for x in ('jax', 'libtpu') if facts.get(x)]
  if 'cores' in facts:  # of a CPU
    others.insert(0, errors.count(facts['cores'], 'core'))
  described = {
    'task': c.finetuning.glue or fine_tuned.name_task(c),
    'starts from': c.init_from or 'new weights',
    'layers x hidden size': f'{m.num_layers} x {m.hidden_size}',
    'heads': f'{m.num_heads}',
    'rows x tokens a batch': ', then '.join(batches),
    'state': _describe_state(run.status),
    'updates': f'{last.get("step", 0):,} of {sum(c.phases.steps):,}',
  }
  for name, (key, form) in _LAST.items():
    if key in last:
      described[name] = f'{last[key]:{form}}'
  for name, value in scores.get('metrics', {}).items():
    low, high = scores['intervals'][name]
    described[f'dev {name}'] = (
      f'{value:.4f} [{low:.4f}, {high:.4f}], '
      f'a constant gets {scores["baseline"][name]:.4f}'
    )
  described['hours of training'] = f'{run.count_seconds() / 3600:.2f}'
  described['device'] = ', '.join([' x '.join(device), *others])
  return described


def _describe_state(status: Mapping) -> str:
  """Returns how the run is doing, or was when it last wrote `status.json`."""
  state = status.get('state', '')
  if state in ('starting', 'running') and 'time' in status:
    then = time.strftime('%Y-%m-%d %H:%M', time.localtime(status['time']))
    state = f'{state}, as of {then}'
  return ': '.join(filter(None, (state, status.get('message'))))


# (rows of the log, what they are drawn over, title, what is drawn)
_PRETRAINING = (
  ('eval', 'tokens', 'held-out MLM loss, nats', ('mlm_loss',)),
  ('eval', 'tokens', 'held-out accuracy', ('mlm_accuracy', 'nsp_accuracy')),
)
_TRAINING = (
  ('train', 'step', 'training loss', ('loss',)),
  ('train', 'step', 'learning rate', ('learning_rate',)),
)


def _show_curves(found: Sequence[runs.Run]) -> str:
  scores = dict.fromkeys(
    ('eval', 'step', f'{metric} on dev', (metric,))
    for run in found
    for metric in _list_metrics(run)
  )
  drawn = []
  for kind, x, title, keys in (*_PRETRAINING, *scores, *_TRAINING):
    curves, levels, places = {}, {}, {}
    for run, key in itertools.product(found, keys):
      rows = [row for row in run.list_rows(kind) if x in row and key in row]
      if rows:
        names = [run.name] if len(found) > 1 else []
        names += [key.partition('_')[0].upper()] if len(keys) > 1 else []
        curves[', '.join(names)] = [[row[k] for row in rows] for k in (x, key)]
    if keys == ('mlm_loss',) and len(found) == 1:
      levels = found[0].levels
      last = found[0].get_last('eval', 'train')
      if 'plateau_exit_tokens' in last:
        places['exit of the plateau'] = last['plateau_exit_tokens']
    if curves:
      label = 'updates' if x == 'step' else x
      drawn.append(charts.draw_curves(title, curves, label, levels, places))
  if not drawn:
    return '<p>Nothing has been logged yet.</p>'
  return f'<div class="charts">{"".join(drawn)}</div>'


def _list_metrics(run: runs.Run) -> tuple[str, ...]:
  """Returns the metrics on dev of fine-tuning; () for pre-training."""
  task = tasks.SUPERVISED.get(fine_tuned.name_task(run.config))
  labels = run.get_last('run').get('labels', ())
  return task.list_metrics(labels, run.config.finetuning) if task else ()


def _show_run(run: runs.Run, section: runs.Section) -> str:
  parts = [_show_guesses(section.guesses)] if section.guesses else []
  if section.attention:
    parts.append('<h3>Attention</h3>')
    shown = section.attention
    for layer in sorted({0, len(shown.attention) - 1}):
      maps = shown.tokens, shown.attention, layer, None
      parts.append(charts.draw_attention(*maps))
  if section.problem:
    parts.append(f'<p>{html.escape(section.problem)}</p>')
  if run.manifest:
    parts.append(_show_data(run.manifest))
  if 'confusion' in run.results and len(run.results['confusion']) <= _MOST:
    parts.append(_show_confusion(run.results['confusion']))
  if command := run.get_last('run').get('command'):
    parts.append(f'<h3>Command</h3><pre>{html.escape(command)}</pre>')
  changed = html.escape(textwrap.dedent(describe(run.config)))
  parts.append(f'<h3>Config, without defaults</h3><pre>{changed}</pre>')
  return '\n'.join(parts)


def _show_guesses(guesses: Sequence[runs.Guesses]) -> str:
  parts = ['<h3>Guesses for held-out words, by updates</h3>']
  for x in guesses:
    sentence, truth = html.escape(x.sentence), html.escape(x.truth)
    parts.append(f'<p>{sentence} (the text: <b>{truth}</b>)</p>')
    rows = []
    for step, words in x.steps.items():
      shown = [f'{"✓ " * (word == x.truth)}{word} {p:.0%}' for word, p in words]
      rows.append((f'{step:,}', ', '.join(shown)))
    parts.append(_make_table(('updates', 'the likeliest words'), rows))
  return '\n'.join(parts)


def _show_data(manifest) -> str:
  rows = [
    (
      x['input'],
      f'{x["documents"]:,}',
      f'{x["text_bytes"] / 1e6:,.1f}',
      f'{x["train"]["tokens"]:,}',
      f'{x["heldout"]["tokens"]:,}',
    )
    for x in manifest['inputs']
  ]
  head = 'input', 'documents', 'MB of text'
  table = _make_table((*head, 'training tokens', 'held-out tokens'), rows)
  lengths = ', '.join(
    f'{x["rows"]:,} rows of {length} ({x["padding_share"]:.1%} padding)'
    for length, x in manifest['lengths'].items()
  )
  cleaned = ', '.join(f'{k} {v:,}' for k, v in manifest['cleaned'].items())
  return (
    f'<h3>Data</h3>{table}<p>{lengths}; '
    f'{manifest["unknown_share"]:.2%} unknown tokens; unigram entropy '
    f'{manifest["unigram_entropy"]:.3f} nats'
    f'{"; cleaned: " + html.escape(cleaned) if cleaned else ""}.</p>'
  )


def _show_confusion(confusion) -> str:
  # A class may be predicted that no row has.
  labels = dict.fromkeys(itertools.chain(confusion, *confusion.values()))
  rows = []
  for right, found in confusion.items():
    rows.append([right, *(f'{found.get(x, 0):,}' for x in labels)])
  table = _make_table(('right \\ predicted', *labels), rows)
  return f'<h3>Confusion on dev</h3>{table}'
