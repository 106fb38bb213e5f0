"""The table of accelerators."""

import pytest

from bert_jax import chips, prices


def test_real_and_described_devices_are_found():
  assert chips.find('TPU v5 lite') is chips.find('TPU v5e')
  assert chips.find('TPU v5').name == 'v5p'
  assert chips.find('NVIDIA H200').flops == 989e12
  assert chips.find('cpu') is None


@pytest.mark.parametrize('chip', chips.CHIPS, ids=lambda chip: chip.name)
def test_large_product_runs_near_the_peak(chip):
  if chip.product_cycles is None:
    assert not chip.kinds[0].startswith('TPU')
    return
  seconds = chip.product_cycles / chip.cycles_per_second
  share = 2 * 8192**3 / seconds / (chip.flops / chip.devices)
  assert 0.87 < share < 1.01


def test_tpu_v3_core_has_half_the_speed_of_a_chip():
  chip = chips.find('TPU v3')
  assert chip.flops / chip.devices == 61.5e12


def test_prices_are_of_chips_in_the_table():
  assert set(prices.USD_PER_CHIP_HOUR) <= {c.name for c in chips.CHIPS}
