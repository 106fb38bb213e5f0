"""The shuffled order of the data, computed for any row of any batch.

There is no state between batches, so checkpoints hold none of the data, and any
host can read any rows.
"""

import numpy as np

from bert_jax.data import hashing


def find_records(seed: int, rows: np.ndarray, size: int):
  """Returns the record that each row of training reads.

  Args:
    rows: [B] row numbers, counted from the beginning of training.

  Returns:
    (record, epoch), int64 [B] each. Every epoch has each record once, in a new
    order.
  """
  epoch, index = np.divmod(np.asarray(rows, np.int64), size)
  return hashing.permute(index, hashing.mix(seed, epoch), size), epoch
