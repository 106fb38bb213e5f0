"""The order of the data is arithmetic: row r of batch t, for any r and t.

Nothing is remembered between batches, so a checkpoint holds no state of the
data, and any host can read any rows.
"""

import numpy as np

from bert_jax.data import hashing


def find_records(seed: int, rows: np.ndarray, size: int):
  """Says which record each row of an endless, reshuffled sequence holds.

  Args:
    seed: of the shuffle.
    rows: [B] row numbers, counted from the beginning of training.
    size: records per epoch.

  Returns:
    (record, epoch), int64 [B]; each epoch holds every record once.
  """
  epoch, index = np.divmod(np.asarray(rows, np.int64), size)
  return hashing.permute(index, hashing.mix(seed, epoch), size), epoch
