"""What a run says: terminal, metrics.jsonl and TensorBoard."""

import json
import os

import tensorboardX


class Log:
  """Writes rows of numbers to `metrics.jsonl` and TensorBoard event files.

  Args:
    workdir: holds `metrics.jsonl` and `tensorboard/`.
    step: rows of later steps, and evaluations of this one, are dropped: an
      interrupted run had logged them and will log them again.
  """

  def __init__(self, workdir: str, step: int):
    self.path = os.path.join(workdir, 'metrics.jsonl')
    _drop_rows_after(self.path, step)
    self._file = open(self.path, 'a', encoding='utf-8')
    self._board = tensorboardX.SummaryWriter(
      os.path.join(workdir, 'tensorboard'), purge_step=step + 1
    )

  def write(self, kind: str, step: int, values: dict):
    """Adds a row.

    Args:
      kind: 'train', 'eval', 'checkpoint', 'run' or 'skipped'.
      step: of training.
      values: numbers, drawn as curves, and texts.
    """
    row = {'kind': kind, 'step': step, **values}
    self._file.write(json.dumps(row) + '\n')
    self._file.flush()
    for name, value in values.items():
      if isinstance(value, int | float):
        self._board.add_scalar(f'{kind}/{name}', value, step)

  def __enter__(self):
    return self

  def __exit__(self, *exc):
    self._file.close()
    self._board.close()


def read(path: str) -> list[dict]:
  """Returns the rows of a `metrics.jsonl`; a torn last line is left out."""
  rows = []
  if os.path.exists(path):
    with open(path, encoding='utf-8') as file:
      for line in file:
        if line.endswith('\n'):
          rows.append(json.loads(line))
  return rows


def _drop_rows_after(path: str, step: int):
  if not os.path.exists(path):
    return
  with open(path + '.tmp', 'w', encoding='utf-8') as file:
    for row in read(path):
      if row['step'] < step or (row['step'] == step and row['kind'] != 'eval'):
        file.write(json.dumps(row) + '\n')
  os.replace(path + '.tmp', path)
