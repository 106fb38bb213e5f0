"""Tests of the sizes of the attention kernels' steps."""

import numpy as np
import pytest

from bert_jax.ops import attention_tiling, fused_attention
from bert_jax.ops.attention_tiling import Call


def call(b=16, s=128, h=12, k=64, dtype='bfloat16'):
  return Call((b, s, h, k), np.dtype(dtype), 230, False, -1e4, False, False)


@pytest.mark.parametrize('gradient', [False, True])
@pytest.mark.parametrize('b', [2, 3, 4, 7, 8, 12, 64])
def test_two_cores_share_the_rows(b, gradient):
  step = call(b).step(gradient)
  steps = b // step.rows
  assert step.rows * steps == b
  assert steps >= 2
  # 3 and 7 cannot be shared evenly.
  assert b % 2 or steps % 2 == 0


def test_a_single_row_is_a_step():
  assert call(1).step(True).rows == 1


def test_float32_takes_smaller_steps_than_bfloat16():
  small, large = (
    call(s=512, dtype=dtype).step(True) for dtype in ('float32', 'bfloat16')
  )
  assert (small.lanes, small.separate) == (128, True)
  assert (large.lanes, large.separate) == (384, False)


@pytest.mark.parametrize('s', [128, 256, 384, 512])
@pytest.mark.parametrize('h', [4, 8, 12, 16])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_all_sizes_of_bert_fit(s, h, dtype):
  assert fused_attention.unsupported(s, h, 64, dtype) is None


def test_what_does_not_fit_is_said(monkeypatch):
  assert 'in float32' in fused_attention.unsupported(512, 64, 16, 'float32')
  assert fused_attention.unsupported(512, 64, 16) is None
  monkeypatch.setattr(attention_tiling, '_VMEM_BYTES', 2**20)
  assert 'in bfloat16' in fused_attention.unsupported(512, 12, 64)
