"""The table of kernel schedules and how it is read."""

import pytest

from bert_jax import config
from bert_jax.hardware import chips
from bert_jax.preflight import kernel_schedules

ROWS = (
  ('v4', 'rbg', 'bf16', 3.0, 2.0, 2.5, 1.5),
  ('v4', 'threefry', 'bf16', 6.0, 5.0, 5.0, 4.0),
  ('v5e', 'rbg', 'bf16', 1.6, 1.5, 1.4, 1.2),
)


@pytest.mark.parametrize(
  'chip, generator, kernel, times',
  [
    ('v4', 'rbg', 'attention_forward bf16[16,512,1024]', 2.5),
    ('v4', 'threefry', 'attention_forward bf16[16,512,1024]', 5.0),
    ('v4', 'rbg', 'attention_backward bf16[64,128,2304]', 2.0),
    # What the table lacks is the largest of what is near.
    ('v4', 'rbg', 'attention_forward bf16[16,256,1024]', 3.0),
    ('v6e', 'threefry', 'attention_forward bf16[64,128,768]', 6.0),
    ('v4', 'rbg', 'sort f32[8,128]', 1.0),  # another kernel
  ],
)
def test_times_are_those_of_the_table(
  monkeypatch, chip, generator, kernel, times
):
  monkeypatch.setattr(kernel_schedules, 'TIMES', ROWS)
  assert kernel_schedules.look_up(chip, generator, kernel, 64) == times


def test_smaller_heads_take_longer_and_larger_ones_less():
  def times(head_size, kernel='attention_forward bf16[16,512,768]'):
    return kernel_schedules.look_up('v5e', 'rbg', kernel, head_size)

  # In the compiler's schedule, 24 heads of 32 take 2.00 and 1.70.
  assert times(64) == 1.19
  assert abs(times(32) - 2.00) < 0.01
  assert abs(times(32, 'attention_backward bf16[16,512,2304]') - 1.70) < 0.01
  # Of sizes that are not in the table, the nearest; small ones cost as much
  # for each head, whatever their size.
  assert times(8) == 2 * times(16) > times(16) > times(32)
  assert times(64) > times(128) > times(256) == times(384)


def test_generator_is_the_configs_where_attention_drops():
  c = config.pretraining('base')
  c.rng = 'rbg'
  assert kernel_schedules.describe_attention(c) == ('rbg', 64)
  c.model.attention_dropout = 0.0
  assert kernel_schedules.describe_attention(c) == ('none', 64)


def test_the_table_has_every_chip_with_kernels():
  found = {row[0] for row in kernel_schedules.TIMES}
  assert found == {'v4', 'v5e', 'v5p', 'v6e', 'tpu7x'}
  assert found < {chip.name for chip in chips.CHIPS}
  assert len({row[:3] for row in kernel_schedules.TIMES}) == 5 * 3 * 2
  assert all(min(row[3:]) > 0.5 for row in kernel_schedules.TIMES)
