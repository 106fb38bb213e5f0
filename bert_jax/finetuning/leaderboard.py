"""What GLUE's leaderboard takes: a zip of the predictions of all tasks."""

import os
import statistics
import zipfile
from collections.abc import Mapping
from typing import Any

from ml_collections import config_dict

from bert_jax.finetuning.readers import examples, glue, splits
from bert_jax.runtime import files, storage

# Its dev rows contradict its training rows: the paper leaves it out of the mean
# and predicts the commonest class.
LEFT_OUT = 'wnli'


def write(
  path: str, runs: Mapping[str, str], config: config_dict.ConfigDict
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
  if LEFT_OUT in splits.list_glue(config.data.input):
    texts |= _predict_commonest(config)
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


def _predict_commonest(config) -> dict[str, str]:
  """Returns WNLI's file, with the commonest training class, if it has a test."""
  c = config.copy_and_resolve_references()
  c.finetuning.glue = LEFT_OUT
  paths = splits.find_files(splits.get_source(c))
  if 'test' not in paths:
    return {}
  train, test = (
    examples.read_glue(LEFT_OUT, split, paths[split]).units
    for split in ('train', 'test')
  )
  label = statistics.mode(x.label for x in train)
  lines = ['index\tprediction', *(f'{x.id}\t{label}' for x in test)]
  return {'WNLI.tsv': '\n'.join(lines) + '\n'}
