"""What benchmarks/tpu/estimate_checks.py calls good."""

import dataclasses

import aot_programs
import estimate_checks

from bert_jax.hardware import chips
from bert_jax.preflight import hlo_cost


def test_a_clock_must_give_the_peak_and_the_products_speed():
  chip = chips.get('v4')
  text, good = estimate_checks.clock_line(chip, {8192: 4_523_672})
  assert good
  assert text == '| v4 | 1.05 | 100.1% | 4.524 | 92.8% of the peak | good |'
  faster = dataclasses.replace(chip, cycles_per_second=1.25e9)
  assert not estimate_checks.clock_line(faster, {8192: 4_523_672})[1]
  assert not estimate_checks.clock_line(chip, {8192: 4_900_000})[1]


def test_tpu7x_is_held_against_measured_products():
  chip = chips.get('tpu7x')
  cycles = {4096: 316_312, 8192: 2_604_600, 16384: 19_773_884}
  text, good = estimate_checks.clock_line(chip, cycles)
  assert good
  assert '107%, 103% of measured products' in text
  slower = {**cycles, 16384: 25_000_000}
  assert not estimate_checks.clock_line(chip, slower)[1]


def test_a_step_cannot_move_more_than_the_memory_does_in_its_time():
  def programs(moved):
    class Programs:
      def line(self, settings):
        assert settings['rows'] == 256
        return None, hlo_cost.Cost(cycles=1.5e9, hbm_bytes=moved)

    return Programs()

  # One second of 819 GB/s.
  case = aot_programs.settings_of('v5e:2x2', 'base', 128, 256)
  text, good = estimate_checks.memory_line(case, programs(409.5e9))
  assert good
  assert text == '| v5e:2x2 | base 128 | 409.50 | 819.00 | 50% | good |'
  assert not estimate_checks.memory_line(case, programs(820e9))[1]


def test_the_product_of_a_v6e_is_not_called_good():
  chip = chips.get('v6e')
  text, good = estimate_checks.clock_line(chip, {8192: 2_977_840})
  assert good
  assert text.endswith('no measured product is known | product not checked |')
