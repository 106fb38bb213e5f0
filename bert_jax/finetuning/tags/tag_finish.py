"""Finishes a tagging run: results.json, predictions, export."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.finetuning import metrics, outcome, task_data
from bert_jax.finetuning.tags import entities, tag, tag_data


def finish(run: outcome.Run):
  """Scores the splits with tags, writes predictions and exports the model."""
  outcome.leave(
    run,
    make_results(run.data, run.kept),
    lambda new: _write_predictions(new, run.data, run.kept),
    '.conll',
    tag.list_columns(run.config),
    describe,
  )


def make_results(
  data: task_data.Data, tags: dict[str, np.ndarray]
) -> dict[str, Any]:
  """Returns the scores of the tagged splits.

  Args:
    data: the run's data.
    tags: {split: predicted tags, int32 [W]}.

  Returns:
    What `entities.compare` returns for `dev`, and `kinds` ({kind: its metrics});
    `problem` (why the run learnt nothing, or None); `counts`, words per split;
    `other`, the first two for a test set with tags.
  """
  scored = {}
  for name, predicted in tags.items():
    split = data.splits[name]
    if split.tags is None:
      continue
    scored[name] = compare(split, data.labels, predicted)
  dev = scored.pop('dev')
  problem = 'no entity of dev was found'
  if dev['metrics']['f1']:
    problem = metrics.find_problem('f1', dev, tags['dev'])
  words = {name: len(split.words) for name, split in data.splits.items()}
  return dev | {'problem': problem, 'counts': words, 'other': scored}


def compare(
  split: tag_data.Split, labels: Sequence[str], predicted: np.ndarray
) -> dict[str, Any]:
  """Returns `entities.compare` of a split's tags, and `kinds`.

  Args:
    split: words with tags.
    labels: names of the tags.
    predicted: tags of its words, int32 [W].
  """
  counts = tag.count(split, labels, predicted)
  kinds = {kind: entities.score(x) for kind, x in counts.items()}
  return entities.compare(sum(counts.values())) | {'kinds': kinds}


def describe(named: dict[str, dict]) -> list[str]:
  """Returns {split: its scores} as lines to print."""
  lines = ['']
  for split, x in named.items():
    shown = []
    for name, value in x['metrics'].items():
      low, high = x['intervals'][name]
      shown.append(f'{name} {value:.4f} [{low:.4f}, {high:.4f}]')
    lines.append(f'{split} {", ".join(shown)}')
    for kind, scores in x['kinds'].items():
      shown = [f'{name} {value:.4f}' for name, value in scores.items()]
      lines.append(f'  {kind or "entities"}: {", ".join(shown)}')
  return lines


def _write_predictions(new, data, tags):
  """Writes SPLIT.conll: word, tag if known, predicted tag; blank lines."""
  for name, predicted in tags.items():
    split = data.splits[name]
    columns = [split.words]
    if split.tags is not None:
      columns.append([data.labels[i] for i in split.tags])
    columns.append([data.labels[i] for i in predicted])
    path = os.path.join(new, f'{name}.conll')
    with open(path, 'w', encoding='utf-8', newline='\n') as file:
      _write_words(file, columns, split.sentence_ends)


def _write_words(file, columns, sentence_ends):
  """Writes a line per word, and a blank line after each sentence."""
  ends = set(sentence_ends.tolist())
  for i, row in enumerate(zip(*columns, strict=True), 1):
    file.write('\t'.join(row) + '\n' + '\n' * (i in ends))
