"""Reports a replayed step: as JSON, and as lines to read."""

import math
import textwrap
from typing import Any

import numpy as np

from bert_jax.pretraining import pretrain, replay_rows
from bert_jax.pretraining.replay import Replay
from bert_jax.train import evaluate

_WIDTH = 80  # columns
_WORDS = 10  # predictions shown per row
_BEFORE_TEXT = (None, '[CLS]', '[SEP]')


def make_report(
  replay: Replay,
  found: replay_rows.Rows,
  sort: str = 'loss',
  rows: int = 3,
) -> dict:
  """Returns all that is known about a step, for `render` and as JSON.

  Args:
    sort: 'loss' or 'gradient', by which rows are sorted, the largest first;
      rows that are not finite come before all others.
    rows: for how many of the first rows to predict tokens.
  """
  totals = {k: [x.sum(), found.counts[k].sum()] for k, x in found.sums.items()}
  finite = np.isfinite(found.losses) & np.isfinite(found.grad_norms)
  by = found.losses if sort == 'loss' else found.grad_norms
  order = np.lexsort((-np.where(finite, by, 0), finite)).tolist()
  shares = found.losses / max(found.losses[finite].sum(), 1e-30)
  described = [_describe_row(replay, found, shares, i) for i in order]
  for row in described[:rows]:
    row['predictions'] = replay_rows.predict(replay, row['row'])
  losses = replay.objective.losses
  return {
    'step': replay.number,
    'phase': replay.phase.number,
    'seq_length': replay.phase.seq_length,
    'batch_size': replay.phase.batch_size,
    'weights': replay.origin,
    'weights_step': replay.params_step,
    'updates_between': replay.number - 1 - replay.params_step,
    'dropout': _describe_dropout(replay.config),
    'logged': replay.logged,
    **evaluate.compute_means(totals, losses, pretrain.derive),
    'grad_norm': found.grad_norm,
    'not_finite': int((~finite).sum()),
    'rows': described,
  }


def _describe_dropout(config) -> str:
  if config.rng != 'threefry' and config.objective.sampled_words:
    return (
      f'left out, and all words are compared: with rng={config.rng} these '
      'depend on the devices'
    )
  if not (config.model.dropout or config.model.attention_dropout):
    return 'none in this run'
  if config.rng == 'threefry':
    return 'as in training'
  return f'left out: with rng={config.rng} it depends on the devices'


def _describe_row(replay, found, shares, row) -> dict:
  ids, masked = replay_rows.restore_tokens(replay, row)
  return {
    'row': row,
    'record': replay.places[row],
    'epoch': int(replay.epochs[row]),
    'loss': float(found.losses[row]),
    'grad_norm': float(found.grad_norms[row]),
    'predicted': int(found.counts['mlm_loss'][row]),
    **{
      name: float(found.sums[name][row] / max(found.counts[name][row], 1))
      for name in found.sums
    },
    'text': mark(replay.tokenizer.tokens(ids), masked),
    'share': float(shares[row]),
  }


def mark(pieces: list[str], masked: np.ndarray) -> str:
  """Joins word pieces to text, with stars around those that are masked.

  >>> mark(['un', '##aff', '##able', '[SEP]', '##s'], np.array([0, 1, 0, 0, 0]))
  'un*aff*able [SEP] ##s'
  """
  text, before = '', None
  for piece, hidden in zip(pieces, masked, strict=True):
    # A text may begin within a word.
    joined = piece.startswith('##') and before not in _BEFORE_TEXT
    bare = piece[2:] if joined else piece
    text += ('' if joined else ' ') + (f'*{bare}*' if hidden else bare)
    before = piece
  return text.strip()


def render(report: dict) -> list[str]:
  """Returns the lines of a report: a table of rows, then the first in full."""
  lines = [
    f'step {report["step"]:,}: phase {report["phase"]}, '
    f'{report["batch_size"]} rows of {report["seq_length"]} tokens',
    f'weights: {report["weights"]}; updates between: '
    f'{report["updates_between"]:,}',
    f'dropout: {report["dropout"]}',
  ]
  for kind, row in report['logged'].items():
    facts = {k: row[k] for k in ('loss', 'median', 'grad_norm') if k in row}
    shown = ', '.join(f'{k} {float(x):.4g}' for k, x in facts.items())
    lines.append(f'logged: {kind} at step {row["step"]:,}: {shown}')
  losses = [x for x in ('mlm', 'nsp') if f'{x}_loss' in report]
  lines += [
    f'replayed: loss {report["loss"]:.3f} ({pretrain.word(report)}), gradient '
    f'norm {report["grad_norm"]:.3g}',
    f'rows that are not finite: {report["not_finite"]}',
    '',
    '  row   share '
    + ''.join(f'{x:>7} ' for x in losses)
    + f'{"gradient":>9}  text',
  ]
  for row in report['rows']:
    line = f'{row["row"]:>5} {row["share"]:>7.2%} '
    line += ''.join(f'{row[f"{x}_loss"]:>7.3f} ' for x in losses)
    line += f'{row["grad_norm"]:>9.3g}  {row["text"].replace("*", "")}'
    lines.append(line[:_WIDTH].rstrip())
  for row in report['rows']:
    if 'predictions' in row:
      lines += ['', *_render_row(row)]
  return lines


def _render_row(row) -> list[str]:
  """Returns the text of a row, and the tokens that the model expected least."""
  lines = [
    f'row {row["row"]}: {row["record"]}, epoch {row["epoch"]}',
    *textwrap.wrap(
      row['text'], _WIDTH, initial_indent='  ', subsequent_indent='  '
    ),
  ]
  # NaN, which has no order, comes first.
  words = sorted(
    row['predictions'], key=lambda x: np.nan_to_num(x['probability'], nan=-1)
  )
  lines.append(
    f'  the {len(words[:_WORDS])} least expected of {len(words)} tokens:'
    if words
    else '  no token to predict'
  )
  for x in words[:_WORDS]:
    guesses = ', '.join(f'{word} {p:.1%}' for word, p in x['guesses'])
    lines.append(
      f'  {x["position"]:>5} {x["truth"]}, shown as '
      f'{x["given"] or "nothing yet"}: p {x["probability"]:.1e}; expected '
      f'{guesses}'
    )
  return lines


def make_json(value: Any) -> Any:
  """Returns a report with texts such as 'nan' for numbers that JSON lacks."""
  if isinstance(value, dict):
    return {name: make_json(x) for name, x in value.items()}
  if isinstance(value, list | tuple):
    return [make_json(x) for x in value]
  if isinstance(value, float) and not math.isfinite(value):
    return str(value)
  return value
