"""The table of accelerators."""

import pytest

from bert_jax.hardware import chips


def test_real_and_described_devices_are_found():
  assert chips.find('TPU v5 lite') is chips.find('TPU v5e')
  assert chips.find('TPU v5').name == 'v5p'
  assert chips.find('NVIDIA H200').flops == 989e12
  assert chips.find('cpu') is None


TPUS = [c for c in chips.CHIPS if c.kinds[0].startswith('TPU')]


@pytest.mark.parametrize(
  'name, units, width, share',
  [
    *(('v2', 2, 128, 1.00), ('v3', 4, 128, 0.97), ('v4', 8, 128, 0.93)),
    *(('v5e', 4, 128, 0.88), ('v5p', 8, 128, 0.90)),
    # Taken to do two products per cycle.
    *(('v6e', 2 * 2, 256, 0.70), ('tpu7x', 2 * 4, 256, 0.81)),
  ],
)
def test_the_clock_agrees_with_the_peak_and_with_large_products(
  name, units, width, share
):
  chip = chips.get(name)
  by_units = units * 2 * width**2 * chip.cycles_per_second
  assert by_units == pytest.approx(chip.flops, rel=0.03)
  found = chip.product_flops * chip.cycles_per_second * chip.devices
  assert found / chip.flops == pytest.approx(share, abs=0.01)


GPUS = [c for c in chips.CHIPS if c.kinds[0].startswith('NVIDIA')]


@pytest.mark.parametrize('chip', GPUS, ids=lambda chip: chip.name)
def test_figures_of_a_gpu_are_plausible(chip):
  """A row whose columns are mixed up, or a rate with sparsity, would not be."""
  assert len(GPUS) + len(TPUS) == len(chips.CHIPS)
  assert chip.flops / chip.tensorfloat32_flops == pytest.approx(2, rel=0.02)
  assert chip.float32_flops <= chip.tensorfloat32_flops
  assert 16 <= chip.memory / 2**30 <= 180
  # FLOPs per byte of memory: 71 on an RTX 3090 to 420 on an L40S.
  assert 70 < chip.flops / chip.hbm_bandwidth < 430


def test_the_peak_is_that_of_the_type():
  def peak(name, *products):
    return chips.get(name).for_products(*products).flops

  assert peak('a100-40gb', 'bfloat16', 'float32') == 312e12
  assert peak('a100-40gb', 'float32', 'tensorfloat32') == 156e12
  assert peak('a100-40gb', 'float32', 'bfloat16') == 156e12
  assert peak('a100-40gb', 'float32', 'float32') == 19.5e12
  assert peak('v4', 'float32', 'float32') == 275e12


def test_names_and_kinds_are_of_one_chip():
  names = [c.name for c in chips.CHIPS]
  kinds = [kind for c in chips.CHIPS for kind in c.kinds]
  assert len(set(names)) == len(names) and len(set(kinds)) == len(kinds)


def test_prices_are_of_chips_in_the_table():
  assert set(chips.USD_PER_CHIP_HOUR) <= {c.name for c in chips.CHIPS}
