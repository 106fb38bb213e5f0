"""The table of accelerators."""

import pytest

from bert_jax.hardware import chips


def test_real_and_described_devices_are_found():
  assert chips.find('TPU v5 lite') is chips.find('TPU v5e')
  assert chips.find('TPU v5').name == 'v5p'
  assert chips.find('NVIDIA H200').flops == 989e12
  assert chips.find('cpu') is None


TPUS = [c for c in chips.CHIPS if c.kinds[0].startswith('TPU')]


def test_products_reach_what_was_published():
  def share(name, size, dtype='bfloat16'):
    chip = chips.get(name).for_products(dtype, 'float32')
    return chip.find_product_share(size)

  for size, tflops in ((1024, 350), (2048, 679), (4096, 893), (32768, 956)):
    assert share('tpu7x', size) == pytest.approx(tflops / 1153.5, abs=1e-3)
  assert share('v6e', 8192) == pytest.approx(827 / 918)
  # Between them, and beyond, it grows with the size and ends below the peak.
  for name in (chip.name for chip in TPUS):
    found = [share(name, 2**i) for i in range(5, 17)]
    assert found == sorted(found) and found[-1] < 0.95
  # What takes as long at the peak reaches as much of it.
  smaller = (197 / 1153.5) ** (1 / 3)
  assert share('v5e', 2048 * smaller) == pytest.approx(679.3 / 1153.5)
  assert share('v5e', 1024, 'float32') > share('v5e', 1024)


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
  assert peak('v4', 'bfloat16', 'float32') == 275e12
  # Six and three passes of bfloat16, and one.
  assert peak('v4', 'float32', 'float32') == 275e12 / 6
  assert peak('v4', 'float32', 'tensorfloat32') == 275e12 / 3
  assert peak('v4', 'float32', 'bfloat16') == 275e12


def test_names_and_kinds_are_of_one_chip():
  names = [c.name for c in chips.CHIPS]
  kinds = [kind for c in chips.CHIPS for kind in c.kinds]
  assert len(set(names)) == len(names) and len(set(kinds)) == len(kinds)


def test_prices_are_of_chips_in_the_table():
  assert set(chips.USD_PER_CHIP_HOUR) <= {c.name for c in chips.CHIPS}
