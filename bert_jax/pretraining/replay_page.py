"""Reports a replayed step: as JSON, and as lines to read."""

import dataclasses
import math
import textwrap
from typing import Any

import numpy as np

from bert_jax.pretraining import predictions, pretrain
from bert_jax.pretraining import replay as replay_lib
from bert_jax.train import evaluate, row_gradients

_WIDTH = 80  # columns
_WORDS = 10  # predictions shown per row
_BEFORE_TEXT = (None, '[CLS]', '[SEP]')


def make_report(
  replay: replay_lib.Replay,
  found: row_gradients.RowGradients,
  sort: str = 'loss',
  rows: int = 3,
) -> dict:
  """Returns all that is known about a step, for `render` and as JSON.

  Args:
    replay: the step.
    found: its measured rows.
    sort: 'loss' or 'gradient': by what the rows are sorted, largest first; rows
      that are not finite come before all others.
    rows: number of first rows to predict the tokens of.
  """
  objective = pretrain.make_objective(replay.config)
  totals = {
    name: [found.sums[name].sum(), found.counts[name].sum()]
    for name in found.sums
  }
  finite = np.isfinite(found.losses) & np.isfinite(found.grad_norms)
  by = found.losses if sort == 'loss' else found.grad_norms
  order = np.lexsort((-np.where(finite, by, 0), finite)).tolist()
  shares = found.losses / max(found.losses[finite].sum(), 1e-30)
  described = [_describe_row(replay, found, i) for i in order]
  for row in described:
    row['share'] = float(shares[row['row']])
  for row in described[:rows]:
    words, pairs = predictions.predict(replay, row['row'])
    row['predictions'] = [dataclasses.asdict(word) for word in words]
    row['pairs'] = pairs
  return {
    'step': replay.number,
    'phase': replay.phase.number,
    'seq_length': replay.phase.seq_length,
    'batch_size': replay.phase.batch_size,
    'weights': replay.weights.origin,
    'weights_step': replay.weights.step,
    'updates_between': replay.updates_between,
    'dropout': _describe_dropout(replay.config),
    'logged': replay.logged,
    **evaluate.compute_means(totals, objective.losses, pretrain.derive),
    'grad_norm': found.grad_norm,
    'not_finite': int((~finite).sum()),
    'rows': described,
  }


def _describe_dropout(config) -> str:
  if not config.model.dropout and not config.model.attention_dropout:
    return 'none in this run'
  if row_gradients.can_repeat_dropout(config):
    return 'as in training'
  return f'left out: with rng={config.rng} it depends on the devices'


def _describe_row(replay, found, row) -> dict:
  means = {
    name: float(found.sums[name][row] / max(found.counts[name][row], 1))
    for name in found.sums
  }
  ids, masked = predictions.restore_tokens(replay, row)
  return {
    'row': row,
    'record': replay.places[row],
    'epoch': int(replay.epochs[row]),
    'loss': float(found.losses[row]),
    'grad_norm': float(found.grad_norms[row]),
    'predicted': int(found.counts['mlm_loss'][row]),
    **means,
    'text': mark(replay.tokenizer.tokens(ids), masked),
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
  between = report['updates_between']
  age = 'exactly those of this step'
  if between:
    age = f'{between:,} update{"s" * (between > 1)} before this one'
  lines = [
    f'step {report["step"]:,}: phase {report["phase"]}, '
    f'{report["batch_size"]} rows of {report["seq_length"]} tokens',
    f'weights: {report["weights"]}; {age}',
    f'dropout: {report["dropout"]}',
    *(f'log: {line}' for line in _word_log(report)),
    f'replayed: loss {report["loss"]:.3f} ({pretrain.word(report)}), gradient '
    f'norm {report["grad_norm"]:.3g}',
    *textwrap.wrap(_conclude(report), _WIDTH),
    '',
    *_render_table(report),
  ]
  for row in report['rows']:
    if 'predictions' in row:
      lines += ['', *_render_row(row)]
  return lines


def _word_log(report) -> list[str]:
  logged, found = report['logged'], []
  if 'spike' in logged:
    found.append(
      f'a spike: loss {logged["spike"]["loss"]:.3f}, the median before was '
      f'{logged["spike"]["median"]:.3f}'
    )
  if 'skipped' in logged:
    norm = logged['skipped']['grad_norm']
    found.append(f'the update was skipped, gradient norm {norm}')
  if 'loss' in logged.get('train', {}):
    row = logged['train']
    found.append(
      f'mean loss {row["loss"]:.3f} in the row of step {row["step"]:,}'
    )
  return found or ['nothing about this step']


def _conclude(report) -> str:
  """Returns in a sentence what made the step as it was."""
  bad, first = report['not_finite'], report['rows'][0]
  if bad:
    return (
      f'{bad} of {report["batch_size"]} rows are not finite; they come first.'
    )
  if 'skipped' in report['logged']:
    return (
      'Every row is finite with these weights, so the rows alone did not make '
      'the gradient non-finite: look at what happened to the weights since, '
      'such as earlier spikes or a high learning rate.'
    )
  return (
    f'Row {first["row"]} has {first["share"]:.1%} of the loss; an average row '
    f'has {1 / report["batch_size"]:.1%}.'
  )


def _render_table(report) -> list[str]:
  nsp = 'nsp_loss' in report
  head = f'{"row":>5} {"share":>7} {"mlm":>7} '
  head += f'{"nsp":>6} ' if nsp else ''
  lines = [f'{head}{"gradient":>9}  text']
  for row in report['rows']:
    line = f'{row["row"]:>5} {row["share"]:>7.2%} {row["mlm_loss"]:>7.3f} '
    line += f'{row["nsp_loss"]:>6.3f} ' if nsp else ''
    line += f'{row["grad_norm"]:>9.3g}  {row["text"].replace("*", "")}'
    lines.append(line[:_WIDTH].rstrip())
  return lines


def _render_row(row) -> list[str]:
  worst = sorted(row['predictions'], key=_probability)
  lines = [
    f'row {row["row"]}: {row["share"]:.2%} of the loss, mlm '
    f'{row["mlm_loss"]:.3f} over {row["predicted"]} tokens, gradient norm '
    f'{row["grad_norm"]:.3g}',
    f'  {row["record"]}, epoch {row["epoch"]}',
    *textwrap.wrap(
      row['text'], _WIDTH, initial_indent='  ', subsequent_indent='  '
    ),
  ]
  for random, chance in row['pairs']:
    lines.append(
      f'  second text: {"random" if random else "the next"}; the model: random '
      f'with {chance:.1%}'
    )
  shown = worst[:_WORDS]
  if len(worst) > len(shown):
    lines.append(f'  the {len(shown)} least expected of {len(worst)} tokens:')
  return lines + _render_predictions(shown)


def _probability(prediction) -> float:
  p = prediction['probability']
  return -1.0 if math.isnan(p) else p


def _render_predictions(shown) -> list[str]:
  if not shown:
    return ['  no token to predict']
  table = [('at', 'token', 'shown as', 'p', 'the model expected')]
  for x in shown:
    guesses = ', '.join(f'{word} {p:.1%}' for word, p in x['guesses'])
    table.append(
      (
        str(x['position']),
        x['truth'],
        x['given'] or '(not yet)',
        f'{x["probability"]:.1e}',
        guesses,
      )
    )
  widths = [max(map(len, column)) for column in zip(*table, strict=True)]
  return [
    '  '
    + '  '.join(
      f'{cell:<{width}}' for cell, width in zip(line, widths, strict=True)
    ).rstrip()
    for line in table
  ]


def make_json(value: Any) -> Any:
  """Returns a report with texts such as 'nan' for what JSON has no number."""
  if isinstance(value, dict):
    return {name: make_json(x) for name, x in value.items()}
  if isinstance(value, list | tuple):
    return [make_json(x) for x in value]
  if isinstance(value, float) and not math.isfinite(value):
    return str(value)
  return value
