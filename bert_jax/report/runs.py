"""Reads what a page says about runs, from the folders of the runs alone."""

import os
import textwrap
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.config import describe
from bert_jax.inference import fill, source, trained_run
from bert_jax.pretraining import finish
from bert_jax.runtime import cards, files, storage
from bert_jax.workdir import checkpoint_reader, log, paths

_CHECKPOINTS, _EXAMPLES = 6, 5  # that guess words, and words to guess, at most
_HEAD = 'updates', 'the likeliest words'
# What of a row is no curve; of training, only two values are.
_ABOUT = 'kind', 'step', 'seconds', 'tokens', 'flops', 'loss', 'mlm_perplexity'
_TRAINING = 'loss', 'learning_rate'


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


def find(folders: Sequence[str]) -> tuple[list[str], dict[str, dict]]:
  """Returns the runs in folders of runs or sweeps, and {sweep: results.json}."""
  workdirs, sweeps = [], {}
  for folder in folders:
    if not storage.exists(os.path.join(folder, 'sweep.json')):
      workdirs.append(folder)
      continue
    sweeps[folder] = _read(folder, 'results.json')
    with checking(folder):
      settings = sweeps[folder].get('settings', ())  # a table has none
      done = {name for x in settings for name in x['values']}
    # Of what is there: another name might lead out of the folder.
    names = storage.list_names(folder)
    workdirs += [os.path.join(folder, x) for x in names if x in done]
  if not workdirs:
    given = ', '.join(folders)
    raise errors.UserError(
      f'{given}: no sweep with runs that ended; name runs.'
    )
  return workdirs, sweeps


def checking(folder: str):
  """Reports what no command writes, such as a word in place of a number."""
  kinds = AttributeError, LookupError, OverflowError, TypeError, ValueError
  return errors.explaining(f'cannot use {folder}', 'copy it again.', kinds)


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
  with checking(workdir):
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
      model = source.read(workdir, step)
      asked = data, length, model.tokenizer, _EXAMPLES
      examples = examples or finish.choose_examples(*asked)
      for sentence, truth in examples:
        [words] = fill.fill(*model[:3], sentence)
        guesses = [f'{"✓ " * (x == truth)}{x} {p:.0%}' for x, p in words]
        table = sections.setdefault(f'{sentence} ({truth})', [_HEAD])
        table.append((step, ', '.join(guesses)))
  except (errors.UserError, OSError) as error:
    sections['Guesses'] = errors.first_line(error)
  return sections
