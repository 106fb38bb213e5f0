"""Reads what a page says about runs from their directories."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.data import manifest_file
from bert_jax.inference import fill, hidden_states, source, trained_run
from bert_jax.pretraining import finish
from bert_jax.runtime import files, storage
from bert_jax.workdir import checkpoint_reader, log, paths, status

_CHECKPOINTS = 6  # that guess words, at most
_EXAMPLES = 5  # words to guess


class Run(NamedTuple):
  """What is known about a run without its checkpoints.

  Attributes:
    name: its path, without the folders that all paths share.
    rows: of its log.
    status: what `status.json` says; {} without it.
    results: scores of a fine-tuned model; {} before the end of a run.
    manifest: of the data of pre-training; {} before they are prepared.
    levels: {name: MLM loss to compare with}.
  """

  name: str
  workdir: str
  config: config_dict.ConfigDict
  rows: list[dict]
  status: dict[str, Any]
  results: dict[str, Any]
  manifest: dict[str, Any]
  levels: dict[str, float]

  def list_rows(self, kind: str) -> list[dict]:
    """Returns the rows of the log of a kind, see `log.Log.write`."""
    return [row for row in self.rows if row['kind'] == kind]

  def get_last(self, *kinds: str) -> dict:
    """Returns the newest row of the first kind that has rows; {} if none."""
    return next(filter(None, map(self.list_rows, kinds)), [{}])[-1]

  def count_seconds(self) -> float:
    """Returns the seconds of training and evaluation, from the logged speed."""
    total, done = 0.0, 0
    sizes = np.repeat(self.config.phases.batch_size, self.config.phases.steps)
    for row in self.list_rows('train'):
      speed = row.get('sequences_per_second')
      total += float(sizes[done : row['step']].sum()) / speed if speed else 0
      done = row['step']
    return total + sum(row.get('seconds', 0) for row in self.list_rows('eval'))


class Guesses(NamedTuple):
  """What checkpoints guess for a hidden word."""

  sentence: str
  truth: str
  # {step: (word, probability) of the likeliest words}
  steps: dict[int, list[tuple[str, float]]]


class Section(NamedTuple):
  """What the checkpoints of a run show."""

  guesses: list[Guesses]
  attention: hidden_states.Features | None  # of a sentence; None without model
  problem: str  # why there is less than that; '' if nothing is missing


def find(folders: Sequence[str]) -> tuple[list[Run], dict[str, dict]]:
  """Returns the runs in folders of runs or sweeps, and {sweep: results.json}."""
  found, sweeps = [], {}
  for folder in folders:
    if not storage.exists(os.path.join(folder, 'sweep.json')):
      found.append(folder)
      continue
    if not storage.exists(paths.results(folder)):
      raise errors.UserError(
        f'{folder} has no results.json: a sweep writes it when a run is done, a '
        'table of bert_jax.reproduce never does; name some of its runs instead.'
      )
    sweeps[folder] = files.read_json(paths.results(folder))
    done = [run for x in sweeps[folder]['settings'] for run in x['values']]
    found += [os.path.join(folder, run) for run in done]
  if not found:
    raise errors.UserError(
      f'{", ".join(folders)} has no run that ended; start the sweep again.'
    )
  found = [x.rstrip('/') for x in found]
  start = os.path.commonprefix(found).rfind('/') + 1
  return [_read(x, x[start:]) for x in found], sweeps


def _read(workdir: str, name: str) -> Run:
  config = trained_run.read_config(paths.config(workdir))
  manifest, results, levels = {}, {}, {}
  if config.task == 'pretraining':
    own = paths.own_data(workdir)
    # Of data elsewhere, a run keeps a copy, see `claim.keep`.
    kept = workdir if config.data.dir else own
    if storage.exists(os.path.join(kept, manifest_file.NAME)):
      manifest = manifest_file.read(kept)
      levels['unigram entropy'] = manifest['unigram_entropy']
    data = paths.prepared_data(config, workdir)
    # Of benchmarks/measure/neighbour_counts.py.
    counted = os.path.join(data, 'neighbour_counts.json')
    if storage.exists(counted):
      levels['neighbour counts'] = files.read_json(counted)['window']
  elif storage.exists(paths.results(workdir)):
    results = files.read_json(paths.results(workdir))
  rows = log.read(paths.metrics(workdir))
  known = status.read(workdir)
  return Run(name, workdir, config, rows, known, results, manifest, levels)


def describe(run: Run) -> Section:
  """Lets the checkpoints of a run guess held-out words.

  The section is empty for a fine-tuned model, which guesses no words, and
  before a run has logged anything.
  """
  guesses, attention, problem = [], None, ''
  if run.config.task != 'pretraining' or not run.rows:
    return Section(guesses, attention, problem)
  data = paths.prepared_data(run.config, run.workdir)
  try:
    steps = checkpoint_reader.list_steps(paths.checkpoints(run.workdir))
    if not steps:
      problem = 'There is no checkpoint.'
    places = np.linspace(0, len(steps) - 1, min(len(steps), _CHECKPOINTS))
    for place in places.round():
      step = steps[int(place)]
      model = source.read(run.workdir, step)
      own = model.params, model.config, model.tokenizer
      asked = run.config, data, model.tokenizer, _EXAMPLES
      guesses = guesses or [
        Guesses(*x, {}) for x in finish.choose_examples(*asked)
      ]
      for x in guesses:
        x.steps[step] = fill.fill(*own, x.sentence)[0]
    if guesses:
      whole = guesses[0].sentence.replace('[MASK]', guesses[0].truth)
      [attention] = hidden_states.extract(*own, [whole], attention=True)
  except errors.UserError as error:
    problem = errors.first_line(error)
  return Section(guesses, attention, problem)
