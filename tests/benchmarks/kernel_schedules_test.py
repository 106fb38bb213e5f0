"""How benchmarks/tpu/kernel_schedules.py reads what kernels.py prints."""

import kernel_schedules
import pytest

PRINTED = """v5e, 8192 tokens for a device, Mcycles
                                    schedule products    bytes  times
base 512 rbg forward                   0.291    0.224    0.092   1.30
base 512 rbg backward                  0.644    0.560    0.161   1.15
large 512 rbg forward                  0.407    0.299    0.123   1.36
large 512 rbg backward                 0.865    0.747    0.215   1.16
v5e, float32, 8192 tokens for a device, Mcycles
base 128 none forward                  0.560    0.336    0.184   1.67
base 128 none backward                 1.400    0.840    0.322   1.67
base 128 rbg forward                   0.600    0.336    0.184   1.79
""".splitlines()


def test_rows_are_those_of_base_in_bfloat16_products():
  assert kernel_schedules.read(PRINTED) == [
    ('v5e', 'none', 'f32', 128, 10.0, 10.0),
    ('v5e', 'rbg', 'bf16', 512, 1.3, 1.15),
  ]


def test_other_heads_are_relative_to_those_of_64():
  lines = [
    *PRINTED,
    'v5e, 8192 tokens for a device, Mcycles',
    'base 512 rbg forward heads of 32       0.424    0.224    0.092   1.89',
    'base 512 rbg backward heads of 32      1.148    0.560    0.161   2.05',
  ]
  table = kernel_schedules.read(lines)
  assert table == kernel_schedules.read(PRINTED)
  found = kernel_schedules.list_heads(table, lines)
  (row,) = found.pop(32)
  assert row[:4] == ('v5e', 'rbg', 'bf16', 512)
  assert row[4:] == pytest.approx((1.89 / 1.3, 2.05 / 1.15))
  assert not any(found.values())


def test_products_of_another_kernel_are_refused():
  line = 'base 512 rbg forward                   0.291    0.448    0.092   1.30'
  with pytest.raises(ValueError, match='0.2240 Mcycles of products'):
    kernel_schedules.read([PRINTED[0], line])


def test_differences_are_named():
  found = [('v5e', 'rbg', 'bf16', 512, 1.36, 1.16)]
  assert kernel_schedules.differences(found, found) == []
  near = [('v5e', 'rbg', 'bf16', 512, 1.38, 1.16)]
  assert kernel_schedules.differences(near, found) == []
  far = [('v5e', 'rbg', 'bf16', 512, 1.6, 1.16)]
  (line,) = kernel_schedules.differences(far, found)
  assert line == 'v5e rbg bf16 512: (1.6, 1.16), now (1.36, 1.16)'
  (line,) = kernel_schedules.differences([], found)
  assert 'None' in line
