"""All tasks of GLUE in one sweep: their mean, and a submission."""

import collections
import os
import statistics
import zipfile
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning.readers import examples, glue, splits
from bert_jax.runtime import files, storage

_FIELD = 'glue'
# Its dev rows contradict its training rows: the paper leaves it out of the mean
# and predicts the commonest class.
_LEFT_OUT = 'wnli'


def list_values(
  name: str, values: str, config: config_dict.ConfigDict
) -> list[str]:
  """Returns the values of a field in a grid; glue=all are all tasks with files.

  Raises:
    errors.UserError: if there are no files of GLUE.
  """
  if (name.rpartition('.')[2], values) != (_FIELD, 'all'):
    return values.split(',')
  found = splits.list_glue(config.data.input)
  if not found:
    raise errors.UserError(
      f'data.input={config.data.input} has no task of GLUE; name the folder that '
      'its download script writes, with CoLA, MRPC and so on.'
    )
  return [task for task in found if task != _LEFT_OUT]


def summarise(settings: list[dict[str, Any]]) -> dict[str, Any] | None:
  """Returns what a sweep over tasks of GLUE found; None for another sweep.

  Args:
    settings: as in `results.summarise`.

  Returns:
    `tasks`, {task: its best setting, with the best run in `run`}, and `mean`,
    that of their means, without WNLI; null if there are none.
  """
  tasks: dict[str, dict] = {}
  for x in settings:
    if _FIELD not in x['fields']:
      return None
    task = x['fields'][_FIELD]
    if x['values'] and x['mean'] >= tasks.get(task, x)['mean']:
      best = max(x['values'], key=x['values'].__getitem__)
      kept = {key: x[key] for key in ('fields', 'metric', 'mean')}
      tasks[task] = kept | {'run': best}
  means = [x['mean'] for task, x in tasks.items() if task != _LEFT_OUT]
  return {'tasks': tasks, 'mean': statistics.fmean(means) if means else None}


def write_submission(
  path: str,
  directory: str,
  tasks: dict[str, dict[str, Any]],
  config: config_dict.ConfigDict,
) -> list[str] | None:
  """Writes the files for GLUE's leaderboard, of each task's best run, as a zip.

  Args:
    path: the zip.
    directory: of the sweep, in which are the runs.
    tasks: from `summarise`.
    config: the experiment, whose `data.input` may have WNLI.

  Returns:
    The files that the leaderboard asks for and that are missing; None if no run
    has one, so that nothing is written.
  """
  found = {}
  for task in tasks.keys() - {_LEFT_OUT}:
    for name in glue.TASKS[task].submissions.values():
      file = os.path.join(directory, tasks[task]['run'], 'submission', name)
      if storage.exists(file):
        found[name] = storage.read(file)
  if not found:
    return None
  wanted = [
    x for task in glue.TASKS.values() for x in task.submissions.values()
  ]
  if _LEFT_OUT in splits.list_glue(config.data.input):
    found['WNLI.tsv'] = _predict_commonest(config)

  def fill(new):
    with zipfile.ZipFile(new, 'w', zipfile.ZIP_DEFLATED) as written:
      for name in wanted:
        if name in found:
          # Without the time, so that the same predictions are the same bytes.
          entry = zipfile.ZipInfo(name)
          written.writestr(entry, found[name], zipfile.ZIP_DEFLATED)

  files.write_file(path, fill)
  return [name for name in wanted if name not in found]


def _predict_commonest(config) -> str:
  """Returns WNLI's file of a submission, with the commonest training class."""
  c = config.copy_and_resolve_references()
  c.finetuning.glue = _LEFT_OUT
  paths = splits.find_files(splits.get_source(c))
  train, test = (
    examples.read_glue(_LEFT_OUT, split, paths[split])
    for split in ('train', 'test')
  )
  [(label, _)] = collections.Counter(x.label for x in train.units).most_common(
    1
  )
  lines = ['index\tprediction', *(f'{x.id}\t{label}' for x in test.units)]
  return '\n'.join(lines) + '\n'
