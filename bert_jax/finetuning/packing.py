"""Several rows of a batch share a row of the encoder, instead of padding.

The encoder computes R packed rows in place of B; tokens attend only to tokens
of their own row, whose positions begin at 0. The hidden states return to the B
rows before any head, so tasks need not know of it. A batch has the same rows,
and without dropout the same loss.
"""

import math

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import buckets
from bert_jax.ops.packed_rows import PREFIX
from bert_jax.parallel import device_mesh
from bert_jax.train import task


def count_rows(share: float, rows: int) -> int:
  """Returns R of a batch of B rows; 0 if they are not packed.

  >>> count_rows(0.5, 32), count_rows(1.0, 32)
  (16, 0)
  """
  return round(share * rows) if 0 < share < 1 else 0


def find_obstacle(config: config_dict.ConfigDict) -> str | None:
  """Returns why batches of a run cannot be packed; None if they can."""
  [phase] = task.list_phases(config)
  devices = device_mesh.make_mesh(config.mesh.model).shape['data']
  f = config.finetuning
  if devices > 1 or phase.accumulate > 1:
    # Each part would have few rows to pack, and would need its own indices.
    return f'{devices} devices and phases.accumulate={phase.accumulate}'
  if f.features != 'none' or f.form != 'bert' or config.task == 'choice':
    return (
      f'task={config.task}, finetuning.features={f.features} and '
      f'finetuning.form={f.form}'
    )
  return None


def find_share(
  config: config_dict.ConfigDict, lengths: dict[str, np.ndarray]
) -> float:
  """Returns the share R / B of the batch that needs the most packed rows.

  Args:
    lengths: {split: tokens of each row, int [N]}.
  """
  [phase] = task.list_phases(config)
  order = buckets.Order(buckets.make_seed(config), lengths['train'], True)
  batches = [
    (lengths['train'][order.find_records(phase, step)], phase.batch_size)
    for step in range(phase.steps)
  ]
  for name in lengths.keys() - {'train'}:
    x, size = lengths[name], phase.eval_batch_size
    batches += [(x[rows], size) for rows in deal(x, size)]
  return max(
    float(assign(x, phase.seq_length)[0].max() + 1) / size
    for x, size in batches
  )


def deal(lengths: np.ndarray, size: int) -> list[np.ndarray]:
  """Returns batches of at most `size` rows, with similar numbers of tokens.

  >>> [x.tolist() for x in deal(np.array([4, 1, 3, 2]), 2)]
  [[1, 2], [3, 0]]
  """
  count = math.ceil(len(lengths) / size)
  order = np.argsort(lengths, kind='stable')
  return [order[i::count] for i in range(count)]


def assign(lengths: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the packed row of each row, and its start there, int [B].

  Rows go into the first packed row with room for them, the longest first.

  >>> rows, starts = assign(np.array([3, 5, 2, 4]), 8)
  >>> rows.tolist(), starts.tolist()
  ([0, 0, 1, 1], [5, 0, 4, 0])
  """
  rows, starts = np.zeros((2, len(lengths)), np.int32)
  used: list[int] = []
  for i in np.argsort(-lengths, kind='stable').tolist():
    n = int(lengths[i])
    fits = (row for row, x in enumerate(used) if x + n <= length)
    row = next(fits, len(used))
    if row == len(used):
      used.append(0)
    rows[i], starts[i] = row, used[row]
    used[row] += n
  return rows, starts


def pack(batch: task.Batch, count: int) -> task.Batch:
  """Adds the encoder's inputs for a batch, packed into `count` rows.

  Args:
    batch: has `input_ids`, `input_mask` and `segment_ids`, [B, S].
    count: R, at least what `assign` needs; 0 leaves the batch as it is.
  """
  if not count:
    return batch
  mask = batch['input_mask'].astype(bool)
  length = mask.shape[1]
  rows, starts = assign(mask.sum(1), length)
  row, position = np.nonzero(mask)  # [T], of all tokens
  where = rows[row] * length + starts[row] + position
  found = {}

  def put(name, values, empty=0):
    packed = np.full(count * length, empty, np.int32)
    packed[where] = values
    found[PREFIX + name] = packed.reshape(count, length)

  put('input_ids', batch['input_ids'][mask])
  put('segment_ids', batch['segment_ids'][mask])
  put('input_mask', 1)
  put('position_ids', position)
  # Row numbers distinguish the rows within a packed row.
  put('sequence_ids', row + 1)
  put('origins', row * length + position, -1)
  places = np.full(mask.shape, -1, np.int32)
  places[mask] = where
  return batch | found | {PREFIX + 'places': places}


def list_shapes(shapes: dict, count: int) -> dict:
  """Returns the shapes of what `pack` adds to a batch of these shapes."""
  if not count:
    return {}
  tokens = shapes['input_mask']
  packed = jax.ShapeDtypeStruct((count, tokens.shape[1]), tokens.dtype)
  names = 'input_ids', 'segment_ids', 'input_mask', 'position_ids'
  found = dict.fromkeys((*names, 'sequence_ids', 'origins'), packed)
  return {PREFIX + name: x for name, x in (found | {'places': tokens}).items()}
