"""The table of accelerators."""

import pytest

from bert_jax.hardware import chips


def test_real_and_described_devices_are_found():
  assert chips.find('TPU v5 lite') is chips.find('TPU v5e')
  assert chips.find('TPU v5').name == 'v5p'
  assert chips.find('NVIDIA H200').flops == 989e12
  assert chips.find('cpu') is None


TPUS = [c for c in chips.CHIPS if c.kinds[0].startswith('TPU')]


@pytest.mark.parametrize('chip', TPUS, ids=lambda chip: chip.name)
def test_clock_by_what_the_matrix_units_do_is_the_peak(chip):
  peak = chip.unit_flops * chip.cycles_per_second
  assert peak == pytest.approx(chip.flops, rel=0.03)


@pytest.mark.parametrize(
  'name, share',
  [
    *(('v2', 1.00), ('v3', 0.97), ('v4', 0.93), ('v5e', 0.88)),
    *(('v5p', 0.90), ('v6e', 0.70), ('tpu7x', 0.81)),
  ],
)
def test_large_product_has_its_share_of_the_peak(name, share):
  chip = chips.get(name)
  seconds = chip.product_cycles / chip.cycles_per_second
  found = 2 * 8192**3 / seconds / (chip.flops / chip.devices)
  assert found == pytest.approx(share, abs=0.01)


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
