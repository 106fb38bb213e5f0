"""Fine-tunes and predicts as bert_jax does; see ../finetuning.py.

The second argument of the command is train or predict.
"""

import dataclasses
import os
import sys
import tempfile
import types

import jax
import jaxlib
import numpy as np
import pipe
import turns as turns_lib

from bert_jax import config as config_lib
from bert_jax import tasks
from bert_jax.finetuning import (
  classes,
  encode,
  predict_files,
  predictions,
  span_windows,
  spans,
  task_data,
)
from bert_jax.inference import source
from bert_jax.runtime import memory
from bert_jax.train import fit
from bert_jax.workdir import status as status_lib


def describe() -> dict:
  """Returns the facts about this process."""
  return {
    'versions': f'jax {jax.__version__}, jaxlib {jaxlib.__version__}',
    'device': jax.devices()[0].device_kind,
  }


class Status(status_lib.Nothing):
  """Is told by the training loop after each step; takes turns there."""

  def __init__(self, turns: turns_lib.Turns):
    self._turns, self._loss = turns, float('nan')

  def note(self, **fields):
    if 'loss' in fields:
      self._loss = fields['loss'] or self._loss
      self._turns.end_step(describe, self._finish)

  def _finish(self) -> float:
    jax.block_until_ready(jax.live_arrays())
    return self._loss


def train(settings: dict):
  """Runs the training loop of bert_jax.main, without its other parts."""
  c = config_lib.unflatten(settings['config'])
  turns = turns_lib.Turns()
  data = task_data.read(tasks.SUPERVISED[c.task], settings['data'])
  task = tasks.get(c).make_task(c, data)

  def train_batch(phase, step, rows):
    batch = task.train_batch(phase, step, rows)
    turns.note_batch(step, batch['input_mask'])
    return batch

  with tempfile.TemporaryDirectory() as workdir:
    fit.fit(
      c,
      dataclasses.replace(task, train_batch=train_batch),
      workdir,
      Status(turns),
    )


def predict(settings: dict):
  """Computes the outputs of all rows, as bert_jax.predict does."""
  model = source.read(settings['model'])
  with np.load(os.path.join(settings['data'], 'train.npz')) as file:
    rows = dict(file)
  encoded = encode.Encoded(*(rows[x] for x in ('ids', 'ends', 'firsts')), 0)
  split, task, part = (
    classes.TextRows(encoded, None, None),
    classes.TASK,
    'logits',
  )
  if 'starts' in rows:
    windows = types.SimpleNamespace(encoded=encoded, starts=rows['starts'])
    split = span_windows.Questions(windows, *[None] * 6)
    task, part = spans.TASK, 'nulls'
  job = predict_files.Job('', model, '', '', (), settings['predict_batch'])

  def run(times):
    for _ in range(times):
      found = job.predict(task, split, predictions.fill)[part]
    return float(np.abs(found).mean())

  pipe.serve(describe(), run)


if __name__ == '__main__':
  memory.keep_freed()  # as the commands do
  {'train': train, 'predict': predict}[sys.argv[2]](pipe.settings())
