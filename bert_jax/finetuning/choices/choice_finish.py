"""Finishes a run that learnt to choose: scores, predictions, an export."""

import os
from typing import Any

from ml_collections import config_dict

from bert_jax.finetuning import outcome, predictions, tsv
from bert_jax.finetuning.choices import choice_data, choose


def finish(
  config: config_dict.ConfigDict, directory: str, workdir: str, params: Any
):
  """Chooses in every split, scores those with labels, and exports the model.

  Args:
    config: the experiment.
    directory: the prepared data.
    workdir: the run's directory, which gets `results.json`, `predictions/` and
      `export/`.
    params: trained parameters, with padding rows of the vocabulary.
  """
  run = outcome.open_run(choice_data.FORMAT, config, directory, workdir, params)
  logits = {
    name: predictions.compute_logits(
      run.params,
      run.module,
      split.encoded,
      run.data.pad_id,
      f'choosing in {name}',
    ).reshape(-1, split.choices)
    for name, split in run.unseen.items()
  }
  predicted = {name: x.argmax(-1) for name, x in logits.items()}
  scores = outcome.score(choose.METRICS, run.data, predicted)
  results = outcome.write_results(run, scores)
  outcome.write_predictions(
    run, ('.tsv',), lambda new: _write_predictions(new, run.data, logits)
  )
  problem = outcome.export(run, results, choose.list_columns(config))
  outcome.tell(run, outcome.describe_scores(results), problem)


def _write_predictions(new, data, logits):
  """Writes SPLIT.tsv: row, label if known, prediction and its probability."""
  for name, found in logits.items():
    labels = data.splits[name].labels
    likely = predictions.to_probabilities(found).max(-1)
    columns = {'id': [str(i) for i in range(len(found))]}
    if labels is not None:
      columns['label'] = [str(x) for x in labels]
    columns['prediction'] = [str(x) for x in found.argmax(-1)]
    columns['probability'] = [tsv.format_number(x) for x in likely]
    rows = [tuple(columns), *zip(*columns.values(), strict=True)]
    tsv.write(os.path.join(new, f'{name}.tsv'), rows)
