"""Ranges of estimated times."""

import pytest

from bert_jax.hardware import chips
from bert_jax.preflight import estimate


@pytest.mark.parametrize(
  'name', [c.name for c in chips.CHIPS if c.kinds[0].startswith('TPU')]
)
def test_every_tpu_has_a_range_and_a_reason(name):
  found = estimate.get_range(name)
  assert 0 < found.fast < 1 < found.slow
  assert found.why and found.text.endswith(f"the model's time: {found.why}")
