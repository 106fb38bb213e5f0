"""Which batches fit into a memory, with numbers to check by hand."""

import pytest

from bert_jax.preflight import largest_batch
from bert_jax.trainer import task


@pytest.mark.parametrize(
  'needed, fixed, largest, accumulate',
  [
    # 4 devices of 8 rows: 30 + 8 x 5 = 70 of 100 bytes.
    (70, 30, 14 * 4, 1),
    # 30 + 8 x 20 = 190 of 100; in 4 parts 30 + 20 + 2 x 20.
    (190, 30, 3 * 4, 4),
    # A batch smaller than the gradients tells nothing of larger ones.
    (25, 30, None, 1),
    # No accumulation helps a model that is too large.
    (190, 110, 0, None),
  ],
)
def test_batches_that_fit_follow_the_memory(needed, fixed, largest, accumulate):
  phase = task.Phase(
    0, 0, 9, 128, batch_size=32, accumulate=1, max_predictions=20
  )
  found = largest_batch.estimate(
    *(needed, fixed, 100), sums=20, phase=phase, shares=4
  )
  assert found == {
    'largest_batch_estimate': largest,
    'accumulate_that_fits_estimate': accumulate,
  }
