"""Finishes a tagging run: results.json, predictions, export."""

import os
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import outcome, predictions, task_data
from bert_jax.finetuning.tags import entities, tag, tag_data, tag_windows


def finish(
  config: config_dict.ConfigDict, directory: str, workdir: str, params: Any
):
  """Tags every split, scores those with tags, and exports the model.

  Args:
    config: the experiment.
    directory: the prepared data.
    workdir: the run's directory, which gets `results.json`, `predictions/` and
      `export/`.
    params: trained parameters, with padding rows of the vocabulary.
  """
  run = outcome.open_run(tag_data.FORMAT, config, directory, workdir, params)
  tags = {
    name: predict(
      run.params, run.module, split, run.data.pad_id, f'tagging {name}'
    )
    for name, split in run.unseen.items()
  }
  results = outcome.write_results(run, make_results(run.data, tags))
  outcome.write_predictions(
    run, ('.conll',), lambda new: _write_predictions(new, run.data, tags)
  )
  problem = outcome.export(run, results, tag.list_columns(config))
  outcome.tell(run, describe(results), problem)


def predict(params, module, split: tag_data.Split, pad_id: int, label: str):
  """Returns the tags of a split's words, int32 [W]; args as `predictions`."""
  made = split.windows
  rows = predictions.compute_tags(params, module, made.encoded, pad_id, label)
  return tag_windows.take_words(made, rows)


def make_results(
  data: task_data.Data, tags: dict[str, np.ndarray]
) -> dict[str, Any]:
  """Returns the scores of the tagged splits.

  Args:
    data: the run's data.
    tags: {split: predicted tags, int32 [W]}.

  Returns:
    `metrics`, `intervals` (over sentences, 95 %), `baseline` (no entity at all)
    and `kinds` ({kind: its metrics}) of `dev`; `problem` (why the run learnt
    nothing, or None); `counts`, words per split; `other`, the first four for a
    test set with tags.
  """
  scored = {}
  for name, predicted in tags.items():
    split = data.splits[name]
    if split.tags is None:
      continue
    counts = tag.count(split, data.labels, predicted)
    together = sum(counts.values())
    scored[name] = {
      'metrics': entities.score(together),
      'intervals': entities.find_intervals(together),
      'baseline': dict.fromkeys(('f1', 'precision', 'recall'), 0.0),
      'kinds': {kind: entities.score(x) for kind, x in counts.items()},
    }
  dev = scored.pop('dev')
  problem = None if dev['metrics']['f1'] else 'no entity of dev was found'
  words = {name: len(split.words) for name, split in data.splits.items()}
  return dev | {'problem': problem, 'counts': words, 'other': scored}


def describe(results: dict) -> list[str]:
  """Returns the scores as lines to print."""
  lines = ['']
  for split, x in ({'dev': results} | results['other']).items():
    shown = []
    for name, value in x['metrics'].items():
      low, high = x['intervals'][name]
      shown.append(f'{name} {value:.4f} [{low:.4f}, {high:.4f}]')
    lines.append(f'{split} {", ".join(shown)}')
    for kind, scores in x['kinds'].items():
      shown = [f'{name} {value:.4f}' for name, value in scores.items()]
      lines.append(f'  {kind or "entities"}: {", ".join(shown)}')
  if results['problem']:
    lines.append(f'WARNING: {results["problem"]}')
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
