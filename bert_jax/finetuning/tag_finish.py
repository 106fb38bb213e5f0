"""Finishes a tagging run: results.json, predictions, export."""

import os
import shlex
from typing import Any

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning import (
  card,
  entities,
  predictions,
  tag,
  tag_data,
  windows,
)
from bert_jax.interop import hf_export
from bert_jax.model import classifier, parameters
from bert_jax.runtime import files
from bert_jax.workdir import fingerprint, paths


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
  data = tag_data.read(directory)
  bert = config_lib.model_config(config)
  params = parameters.drop_padding_rows(params, bert.vocab_size)
  tags = {
    name: predict(params, bert, split, data.pad_id, f'tagging {name}')
    for name, split in data.splits.items()
    if name != 'train'
  }
  results = make_results(data, tags) | {
    'task': config.task,
    'init_from': config.init_from,
    'seed': config.seed,
    'steps': sum(config.phases.steps),
    'fingerprint': fingerprint.combine(fingerprint.of_arrays(params)),
  }
  files.write_json(os.path.join(workdir, 'results.json'), results)
  _write_predictions(os.path.join(workdir, 'predictions'), data, tags)
  for line in describe(results):
    print(line)
  model = workdir
  if bert.norm == 'post':
    model = paths.export(workdir)
    _export(config, directory, model, params, data, results)
  else:
    print('  no export: BERT of Hugging Face has no model with norm=pre')
  print(
    f'\nnext:\n  python -m bert_jax.predict --model={shlex.quote(model)} '
    '--input=FILE --output=FILE',
    flush=True,
  )


def predict(params, bert, split: tag_data.Split, pad_id: int, label: str):
  """Returns the tags of a split's words, int32 [W]; args as `predictions`."""
  made = split.windows
  rows = predictions.compute_tags(params, bert, made.encoded, pad_id, label)
  return windows.take_words(made, rows)


def make_results(
  data: tag_data.Data, tags: dict[str, np.ndarray]
) -> dict[str, Any]:
  """Returns the scores of the tagged splits.

  Args:
    data: the run's data.
    tags: {split: predicted tags, int32 [W]}.

  Returns:
    `metrics`, `intervals` (of F1, over sentences, 95 %), `baseline` (no entity
    at all) and `kinds` ({kind: its metrics}) of `dev`; `problem` (why the run
    learnt nothing, or None); `counts`, words per split; `other`, the first four
    for a test set with tags.
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
      'intervals': {'f1': entities.find_interval(together)},
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
    low, high = x['intervals']['f1']
    lines.append(
      f'{split} F1 {x["metrics"]["f1"]:.4f} [{low:.4f}, {high:.4f}], precision '
      f'{x["metrics"]["precision"]:.4f}, recall {x["metrics"]["recall"]:.4f}'
    )
    for kind, scores in x['kinds'].items():
      lines.append(
        f'  {kind or "entities"}: F1 {scores["f1"]:.4f}, precision '
        f'{scores["precision"]:.4f}, recall {scores["recall"]:.4f}'
      )
  if results['problem']:
    lines.append(f'WARNING: nothing was learnt: {results["problem"]}')
  return lines


def _write_predictions(directory, data, tags):
  """Writes SPLIT.conll: word, tag if known, predicted tag; blank lines."""

  def fill(new):
    for name, predicted in tags.items():
      split = data.splits[name]
      columns = [split.words]
      if split.tags is not None:
        columns.append([data.labels[i] for i in split.tags])
      columns.append([data.labels[i] for i in predicted])
      path = os.path.join(new, f'{name}.conll')
      with open(path, 'w', encoding='utf-8', newline='\n') as file:
        write_words(file, columns, split.sentence_ends)

  old = os.listdir(directory) if os.path.isdir(directory) else []
  files.write_folder(directory, [x for x in old if x.endswith('.conll')], fill)


def write_words(file, columns, sentence_ends: np.ndarray):
  """Writes a line per word, and a blank line after each sentence."""
  ends = set(sentence_ends.tolist())
  for i, row in enumerate(zip(*columns, strict=True), 1):
    file.write('\t'.join(row) + '\n' + '\n' * (i in ends))


def _export(config, directory, path, params, data, results):
  head = classifier.Head(
    *(params['classifier'][name] for name in ('kernel', 'bias')),
    data.labels,
    max(config.phases.seq_length),
    columns=(),
    tokens=True,
  )
  size = sum(x.size for x in jax.tree.leaves(params))
  hf_export.export(
    path,
    {name: x for name, x in params.items() if name != 'classifier'},
    config_lib.model_config(config),
    False,
    manifest_lib.load_tokenizer(directory),
    card.make_card(config, data.labels, results, size),
    head,
  )
