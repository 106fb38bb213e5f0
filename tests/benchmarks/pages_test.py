"""How the cycles of a step are rated."""

import pages
import pytest

from bert_jax.hardware import chips


def test_utilisation_of_cycles_is_one_for_a_large_product():
  chip = chips.get('v5e')
  seconds = chip.product_cycles / chip.cycles_per_second
  found = pages.compute_cycle_utilisation(2 * 8192**3, seconds, chip)
  assert found == pytest.approx(1)
