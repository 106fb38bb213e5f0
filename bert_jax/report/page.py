"""Renders what is known about runs as one self-contained HTML page."""

import html
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import bert_jax
from bert_jax.config import describe, flatten
from bert_jax.report import charts, runs

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 75rem; margin: auto; padding: 1rem }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)) }
.charts > :only-child { max-width: 45rem }
svg { width: 100%; height: auto; font-family: inherit }
.wide { overflow-x: auto }
table { border-collapse: collapse }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent) }
pre { white-space: pre-wrap; overflow-wrap: anywhere }
.right { font-weight: bold; color: light-dark(#060, #8e8) }
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
  names = [*sweeps] or [x.name for x in found]
  more = f' and {len(names) - 3} more' if len(names) > 3 else ''
  title = html.escape(', '.join(names[:3]) + more)
  parts = [f'<h1>{title}</h1>']
  for path, results in sweeps.items():
    parts += [f'<h2>Sweep {html.escape(path)}</h2>', _show_sweep(results)]
  parts += ['<h2>Results</h2>', _compare(found)]
  parts += ['<h2>Curves</h2>', _show_curves(found[:_MOST])]
  if len(found) > _MOST:
    parts.append(f'<p>The first {_MOST} runs of {len(found)}.</p>')
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


def _make_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Returns a table; cells are HTML."""
  lines = [''.join(f'<th>{x}</th>' for x in head)]
  lines += [''.join(f'<td>{x}</td>' for x in row) for row in rows]
  body = '\n'.join(f'<tr>{x}</tr>' for x in lines)
  return f'<div class="wide"><table>{body}</table></div>'


def _show_sweep(results) -> str:
  settings = results['settings']
  rows = [
    [
      *map(html.escape, x['fields'].values()),
      f'{len(x["values"])} of {x["runs"]}',
      _format(x['mean'], '.4f'),
      _format(x['std'], '.4f'),
      _format(x['best'], '.4f'),
      _format(x['baseline'], '.4f'),
    ]
    for x in settings
  ]
  # The tasks of GLUE are settings with a metric each.
  metrics = {x['metric'] for x in settings if x['metric']}
  metric = html.escape(metrics.pop()) if len(metrics) == 1 else 'score'
  columns = 'runs', f'mean {metric} on dev', 'std', 'best', 'constant'
  table = _make_table(
    [*map(html.escape, settings[0]['fields']), *columns], rows
  )
  scored = [x for x in settings if x['values']]
  drawn = charts.draw_scores(scored) if scored else ''
  return f'{table}<div class="charts">{drawn}</div>'


def _format(value, form: str) -> str:
  return '' if value is None else format(value, form)


# {row of the table: how to find it in the last evaluation}
_LAST = {
  'MLM loss': ('mlm_loss', '.3f'),
  'MLM accuracy': ('mlm_accuracy', '.1%'),
  'NSP accuracy': ('nsp_accuracy', '.1%'),
  'context gain': ('context_gain', '.2f'),
  'tokens': ('tokens', ',.0f'),
  'FLOPs': ('flops', '.2e'),
  'FLOPs at the exit of the plateau': ('plateau_exit_flops', '.2e'),
}


def _compare(found: Sequence[runs.Run]) -> str:
  """Returns a table with a column for each run."""
  columns = [_describe(run) for run in found]
  names = dict.fromkeys(name for column in columns for name in column)
  return _make_table(
    ['', *(html.escape(run.name) for run in found)],
    [
      [name, *(html.escape(column.get(name, '')) for column in columns)]
      for name in names
    ],
  )


def _describe(run: runs.Run) -> dict[str, str]:
  """Returns {row of the table: value} of a run."""
  c, (facts, *_) = run.config, run.list_rows('run')[-1:] or [{}]
  m, pairs = c.model, zip(c.phases.batch_size, c.phases.seq_length, strict=True)
  last = _get_last(run)
  device = [f'{facts[x]}' for x in ('devices', 'device_kind') if x in facts]
  versions = [f'{x} {facts[x]}' for x in ('jax', 'libtpu') if facts.get(x)]
  return {
    'task': c.finetuning.glue or c.task,
    'starts from': c.init_from or 'new weights',
    'layers x hidden size': f'{m.num_layers} x {m.hidden_size}',
    'heads': f'{m.num_heads}',
    'rows x tokens a batch': ', then '.join(
      dict.fromkeys(f'{b} x {n}' for b, n in pairs)
    ),
    'updates': f'{last.get("step", 0):,} of {sum(c.phases.steps):,}',
    **{k: f'{last[x]:{form}}' for k, (x, form) in _LAST.items() if x in last},
    **{
      f'dev {x}': _describe_score(run, x)
      for x in run.results.get('metrics', ())
    },
    'hours of training': f'{run.count_seconds() / 3600:.2f}',
    'device': ', '.join([' x '.join(device), *versions]),
  }


def _get_last(run: runs.Run) -> dict:
  """Returns the newest evaluation, or else the newest training row."""
  return (run.list_rows('eval') or run.list_rows('train') or [{}])[-1]


def _describe_score(run, metric: str) -> str:
  value, results = run.results['metrics'][metric], run.results
  low, high = results['intervals'][metric]
  constant = results['baseline'][metric]
  return f'{value:.4f} [{low:.4f}, {high:.4f}], a constant gets {constant:.4f}'


# {chart: the values of evaluations in it}
_CHARTS = {
  'held-out MLM loss, nats': ('mlm_loss',),
  'held-out accuracy': ('mlm_accuracy', 'nsp_accuracy'),
  'context gain, nats': ('context_gain',),
}


def _show_curves(found: Sequence[runs.Run]) -> str:
  pretrained = all(run.config.task == 'pretraining' for run in found)
  x, label = ('tokens', 'tokens') if pretrained else ('step', 'updates')
  charted = _CHARTS
  if not pretrained:
    metrics = dict.fromkeys(
      m for r in found for m in r.results.get('metrics', ())
    )
    charted = {f'{name} on dev': (name,) for name in metrics}
  drawn = []
  for title, keys in charted.items():
    curves = {}
    for run in found:
      for key in keys:
        kept = [r for r in run.list_rows('eval') if key in r and x in r]
        if kept:
          curves[_name_curve(run, key, found, keys)] = (
            [r[x] for r in kept],
            [r[key] for r in kept],
          )
    if curves:
      marks = _mark(found) if keys == ('mlm_loss',) else {}
      drawn.append(charts.draw_curves(title, curves, label, **marks))
  for title, key in (
    ('training loss', 'loss'),
    ('learning rate', 'learning_rate'),
  ):
    curves = {
      run.name: ([r['step'] for r in rows], [r[key] for r in rows])
      for run in found
      if (rows := [r for r in run.list_rows('train') if key in r])
    }
    drawn.append(charts.draw_curves(title, curves, 'updates'))
  return f'<div class="charts">{"".join(drawn)}</div>'


def _name_curve(run, key: str, found, keys) -> str:
  names = [run.name] if len(found) > 1 else []
  names += [key.partition('_')[0].upper()] if len(keys) > 1 else []
  return ', '.join(names) or key


def _mark(found) -> dict:
  """Returns the unigram entropy and where the plateau ended, of one run."""
  if len(found) > 1:
    return {}
  [run] = found
  exit_at = _get_last(run).get('plateau_exit_tokens')
  return {
    'levels': {'unigram entropy': run.manifest['unigram_entropy']},
    'places': {'exit of the plateau': exit_at} if exit_at else {},
  }


def _show_run(run: runs.Run, section: runs.Section) -> str:
  parts = [_show_guesses(section)]
  if section.attention:
    drawn = charts.draw_attention(
      section.attention.tokens, section.attention.attention
    )
    parts.append(f'<h3>Attention</h3><div class="charts">{drawn}</div>')
  if section.problem:
    parts.append(f'<p>{html.escape(section.problem)}</p>')
  if run.manifest:
    parts.append(_show_data(run.manifest))
  if 'confusion' in run.results and len(run.results['confusion']) <= _MOST:
    parts.append(_show_confusion(run.results['confusion']))
  command = (run.list_rows('run') or [{}])[-1].get('command')
  if command:
    parts.append(f'<h3>Command</h3><pre>{html.escape(command)}</pre>')
  fields = json.dumps(flatten(run.config), indent=1)
  changed = textwrap.dedent(describe(run.config))
  parts.append(
    f'<h3>Config</h3><p>Not the default:</p><pre>{html.escape(changed)}</pre>'
    f'<details><summary>All of it</summary><pre>{html.escape(fields)}</pre>'
    '</details>'
  )
  return '\n'.join(x for x in parts if x)


def _show_guesses(section) -> str:
  parts = ['<h3>Guesses for held-out words, by updates</h3>']
  for x in section.guesses:
    rows = [
      (
        f'{step:,}',
        ', '.join(
          f'<span{" class=right" if word == x.truth else ""}>'
          f'{html.escape(word)} {p:.0%}</span>'
          for word, p in words
        ),
      )
      for step, words in x.steps.items()
    ]
    parts.append(
      f'<p>{html.escape(x.sentence)} (the text: <b>{html.escape(x.truth)}</b>)</p>'
    )
    parts.append(_make_table(('updates', 'the likeliest words'), rows))
  return '\n'.join(parts) if section.guesses else ''


def _show_data(manifest) -> str:
  rows = [
    (
      html.escape(x['input']),
      f'{x["documents"]:,}',
      f'{x["text_bytes"] / 1e6:,.1f}',
      # Data of earlier versions lack these counts.
      *(
        f'{x[split]["tokens"]:,}'
        for split in ('train', 'heldout')
        if split in x
      ),
    )
    for x in manifest['inputs']
  ]
  head = (
    'input',
    'documents',
    'MB of text',
    'training tokens',
    'held-out tokens',
  )
  lengths = ', '.join(
    f'{x["rows"]:,} rows of {length} ({x["padding_share"]:.1%} padding)'
    for length, x in manifest['lengths'].items()
  )
  cleaned = ', '.join(f'{k} {v:,}' for k, v in manifest['cleaned'].items())
  return (
    f'<h3>Data</h3>{_make_table(head, rows)}<p>{lengths}; '
    f'{manifest["unknown_share"]:.2%} unknown tokens; unigram entropy '
    f'{manifest["unigram_entropy"]:.3f} nats'
    f'{"; cleaned: " + html.escape(cleaned) if cleaned else ""}.</p>'
  )


def _show_confusion(confusion) -> str:
  # A class may be predicted that no row has.
  labels = dict.fromkeys(
    [*confusion, *(x for y in confusion.values() for x in y)]
  )
  rows = [
    [html.escape(right), *(f'{found.get(x, 0):,}' for x in labels)]
    for right, found in confusion.items()
  ]
  head = ['right \\ predicted', *map(html.escape, labels)]
  return f'<h3>Confusion on dev</h3>{_make_table(head, rows)}'
