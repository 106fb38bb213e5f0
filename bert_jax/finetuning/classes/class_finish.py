"""Finishes a run of classification: scores, predictions, a submission."""

import os

import numpy as np

from bert_jax.finetuning import outcome, tsv
from bert_jax.finetuning.classes import classify
from bert_jax.finetuning.readers import data_files
from bert_jax.runtime import files

_LOW, _HIGH = 0, 5  # the range of scores in STS-B


def finish(run: outcome.Run):
  """Scores the splits with labels, writes predictions and exports the model.

  Of a GLUE task with test files, `submission/` in the run's directory, too.
  """
  more = []
  if write_submission(run):
    more.append(('submission', "files for GLUE's leaderboard"))
  outcome.leave(
    run,
    outcome.score(classify.list_metrics(run.config), run),
    lambda new: outcome.write_tables(new, run),
    '.tsv',
    classify.list_columns(run.config),
    more=more,
  )


def write_submission(run: outcome.Run) -> bool:
  """Writes the test predictions of a GLUE task as its leaderboard takes them.

  Returns:
    Whether there were any to write.
  """
  data, known = run.data, data_files.find_glue(run.config.finetuning.glue)
  names = {
    split: name
    for split, name in (known.submissions if known else {}).items()
    if split in run.kept
  }
  if not names:
    return False

  def fill(new):
    for split, name in names.items():
      chosen = run.kept[split]['chosen']
      if data.labels:
        shown = [data.labels[i] for i in chosen]
      else:
        shown = [f'{x:.3f}' for x in np.clip(chosen, _LOW, _HIGH)]
      rows = zip(data.splits[split].ids, shown, strict=True)
      tsv.write(os.path.join(new, name), [['index', 'prediction'], *rows])

  directory = os.path.join(run.workdir, 'submission')
  files.write_folder(directory, list(known.submissions.values()), fill)
  return True
