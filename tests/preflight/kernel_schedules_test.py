"""The table of kernel schedules and how it is read."""

from bert_jax import config
from bert_jax.hardware import chips
from bert_jax.preflight import kernel_schedules

ROWS = (
  ('v4', 'rbg', 'bf16', 128, 3.0, 2.0),
  ('v4', 'rbg', 'bf16', 512, 2.5, 1.5),
  ('v4', 'threefry', 'bf16', 512, 5.0, 4.0),
  ('v5e', 'rbg', 'bf16', 512, 1.4, 1.2),
)


def times(monkeypatch, *case, head_size=64):
  monkeypatch.setattr(kernel_schedules, 'TIMES', ROWS)
  return kernel_schedules.look_up(*case, head_size)


def test_a_case_of_the_table_is_found(monkeypatch):
  kernel = 'attention_forward bf16[16,512,1024]'
  assert times(monkeypatch, 'v4', 'rbg', kernel) == 2.5
  assert times(monkeypatch, 'v4', 'threefry', kernel) == 5.0
  kernel = 'attention_backward bf16[64,128,2304]'
  assert times(monkeypatch, 'v4', 'rbg', kernel) == 2.0


def test_what_the_table_lacks_is_the_largest_of_what_is_near(monkeypatch):
  kernel = 'attention_forward bf16[16,256,1024]'
  assert times(monkeypatch, 'v4', 'rbg', kernel) == 3.0
  kernel = 'attention_forward bf16[64,128,768]'
  assert times(monkeypatch, 'v6e', 'threefry', kernel) == 5.0


def test_smaller_heads_take_longer_and_larger_ones_less():
  def times(head_size, kernel='attention_forward bf16[16,512,768]'):
    return kernel_schedules.look_up('v5e', 'rbg', kernel, head_size)

  # In the compiler's schedule, 24 heads of 32 take 1.89 and 2.05.
  assert times(64) == 1.19
  assert abs(times(32) - 1.89) < 0.01
  assert abs(times(32, 'attention_backward bf16[16,512,2304]') - 2.05) < 0.01
  # Of sizes that are not in the table, the nearest; small ones cost as much
  # for each head, whatever their size.
  assert times(8) == 2 * times(16) > times(16) > times(32)
  assert times(64) > times(128) > times(256) == times(384)


def test_other_kernels_are_not_in_the_table():
  assert kernel_schedules.look_up('v4', 'rbg', 'sort f32[8,128]', 64) == 1.0


def test_generator_is_the_configs_where_attention_drops():
  c = config.pretraining('tiny')
  assert kernel_schedules.get_generator(c) == 'threefry'
  c.rng = 'rbg'
  assert kernel_schedules.get_generator(c) == 'rbg'
  c.model.attention_dropout = 0.0
  assert kernel_schedules.get_generator(c) == 'none'


def test_the_table_has_every_chip_with_kernels():
  found = {row[0] for row in kernel_schedules.TIMES}
  assert found == {'v4', 'v5e', 'v5p', 'v6e', 'tpu7x'}
  assert found < {chip.name for chip in chips.CHIPS}
  assert len({row[:4] for row in kernel_schedules.TIMES}) == 5 * 3 * 2 * 2
  assert all(min(row[4:]) >= 1 for row in kernel_schedules.TIMES)
