"""What GLUE's leaderboard takes: each task's predictions, and a zip of all."""

import os
import statistics
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax.finetuning.readers import examples, glue, splits, table_files
from bert_jax.runtime import files, storage

# Its dev rows contradict its training rows: the paper leaves it out of the mean
# and predicts the commonest class.
LEFT_OUT = 'wnli'
_LOW, _HIGH = 0, 5  # the range of scores in STS-B


def write_task(
  name: str, workdir: str, data: Any, predicted: Mapping[str, dict]
) -> bool:
  """Writes a task's predictions for its test files, if it has any."""
  known = glue.TASKS[name]
  names = {x: y for x, y in known.submissions.items() if x in predicted}

  def fill(new):
    for split, file in names.items():
      chosen = predicted[split]['chosen']
      if data.labels:
        shown = [data.labels[i] for i in chosen]
      else:
        shown = [f'{x:.3f}' for x in np.clip(chosen, _LOW, _HIGH)]
      rows = zip(data.splits[split].ids, shown, strict=True)
      table = [('index', 'prediction'), *rows]
      table_files.write_table(os.path.join(new, file), table)

  if names:
    folder = os.path.join(workdir, 'submission')
    files.write_folder(folder, list(known.submissions.values()), fill)
  return bool(names)


def write(
  path: str, runs: Mapping[str, str], source: splits.Source
) -> list[str] | None:
  """Writes the submissions of {task: directory of its run} as a zip.

  Of WNLI, the commonest class is predicted, if `data.input` has it. Returns which
  files are missing; None if no run has one, and nothing is written.
  """
  texts: dict[str, Any] = {}
  for task, workdir in runs.items():
    for name in glue.TASKS[task].submissions.values():
      file = os.path.join(workdir, 'submission', name)
      if storage.exists(file):
        texts[name] = storage.read(file)
  if not texts:
    return None
  if LEFT_OUT in splits.list_glue(source.input):
    texts |= _predict_commonest(source)
  wanted = [
    x for task in glue.TASKS.values() for x in task.submissions.values()
  ]

  def fill(new):
    with zipfile.ZipFile(new, 'w', zipfile.ZIP_DEFLATED) as written:
      for name in (x for x in wanted if x in texts):
        # Without the time, so that the same predictions are the same bytes.
        entry = zipfile.ZipInfo(name)
        written.writestr(entry, texts[name], zipfile.ZIP_DEFLATED)

  files.write_file(path, fill)
  return [name for name in wanted if name not in texts]


def _predict_commonest(source: splits.Source) -> dict[str, str]:
  """Returns WNLI's file, with the commonest training class, if it has a test."""
  paths = splits.find_files(source._replace(glue=LEFT_OUT))
  if 'test' not in paths:
    return {}
  train, test = (
    examples.read_glue(LEFT_OUT, split, paths[split]).units
    for split in ('train', 'test')
  )
  label = statistics.mode(x.label for x in train)
  lines = ['index\tprediction', *(f'{x.id}\t{label}' for x in test)]
  return {'WNLI.tsv': '\n'.join(lines) + '\n'}
