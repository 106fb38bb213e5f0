"""Finishes a run of classification: scores, predictions, a submission."""

import os
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import outcome, predictions, task_data, tsv
from bert_jax.finetuning.classes import class_data, classify
from bert_jax.finetuning.readers import data_files
from bert_jax.runtime import files

_LOW, _HIGH = 0, 5  # the range of scores in STS-B


def finish(
  config: config_dict.ConfigDict, directory: str, workdir: str, params: Any
):
  """Predicts every split, scores those with labels, and exports the model.

  Args:
    config: the experiment.
    directory: the prepared data.
    workdir: the run's directory, which gets `results.json`, `predictions/`,
      `submission/` (of a GLUE task with test files) and `export/`.
    params: trained parameters, with padding rows of the vocabulary.
  """
  run = outcome.open_run(class_data.FORMAT, config, directory, workdir, params)
  predicted, likely = {}, {}
  for name, split in run.unseen.items():
    network = run.params, run.module, split.encoded, run.data.pad_id
    doing = f'predicting {name}'
    if run.data.labels:
      found = predictions.choose_classes(*network, doing)
      predicted[name], likely[name] = found
    else:
      predicted[name] = predictions.compute_logits(*network, doing)[:, 0]
  scores = outcome.score(classify.list_metrics(config), run.data, predicted)
  results = outcome.write_results(run, scores)
  outcome.write_predictions(
    run,
    ('.tsv',),
    lambda new: _write_predictions(new, run.data, predicted, likely),
  )
  more = []
  if write_submission(config, workdir, run.data, predicted):
    more.append(('submission', "files for GLUE's leaderboard"))
  problem = outcome.export(run, results, classify.list_columns(config))
  outcome.tell(run, outcome.describe_scores(results), problem, more)


def _write_predictions(new, data, predicted, likely):
  """Writes SPLIT.tsv: id, prediction, its probability if a class, the label."""
  for name, chosen in predicted.items():
    split = data.splits[name]
    rows = [['id', *(['label'] if split.labels is not None else [])]]
    rows[0] += ['prediction', *(['probability'] if data.labels else [])]
    for i, row_id in enumerate(split.ids):
      row = [str(row_id)]
      if split.labels is not None:
        row.append(_name(data, split.labels[i]))
      row.append(_name(data, chosen[i]))
      if data.labels:
        row.append(tsv.format_number(likely[name][i]))
      rows.append(row)
    tsv.write(os.path.join(new, f'{name}.tsv'), rows)


def _name(data, value) -> str:
  return data.labels[value] if data.labels else tsv.format_number(value)


def write_submission(
  config: config_dict.ConfigDict,
  workdir: str,
  data: task_data.Data,
  predicted: dict[str, np.ndarray],
) -> bool:
  """Writes the test predictions of a GLUE task as its leaderboard takes them.

  Returns:
    Whether there were any to write.
  """
  known = data_files.find_glue(config.finetuning.glue)
  names = {
    split: name
    for split, name in (known.submissions if known else {}).items()
    if split in predicted
  }
  if not names:
    return False

  def fill(new):
    for split, name in names.items():
      chosen = predicted[split]
      if data.labels:
        shown = [data.labels[i] for i in chosen]
      else:
        shown = [f'{x:.3f}' for x in np.clip(chosen, _LOW, _HIGH)]
      rows = zip(data.splits[split].ids, shown, strict=True)
      tsv.write(os.path.join(new, name), [['index', 'prediction'], *rows])

  directory = os.path.join(workdir, 'submission')
  files.write_folder(directory, list(known.submissions.values()), fill)
  return True
