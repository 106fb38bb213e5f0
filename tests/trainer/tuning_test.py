"""Tests of what `auto` stands for."""

import sys
import types

import pytest

from bert_jax import config, errors
from bert_jax.config import readings
from bert_jax.trainer import tuning

TPU = types.SimpleNamespace(platform='tpu', device_kind='TPU v5 lite')
TPU_V3 = types.SimpleNamespace(platform='tpu', device_kind='TPU v3')
GPU = types.SimpleNamespace(platform='gpu', device_kind='NVIDIA H200')
A100 = types.SimpleNamespace(
  platform='gpu', device_kind='NVIDIA A100-SXM4-80GB'
)
CPU = types.SimpleNamespace(platform='cpu', device_kind='cpu')


def ask(arguments='', size='base'):
  """Returns (how a model is asked to be computed, the model, mesh.model)."""
  c = config.apply_arguments(config.pretraining(size), arguments)
  return tuning.read(c), config.model_config(c), c.mesh.model


def resolve(arguments, device, length=128, size='base'):
  how, bert, model = ask(arguments, size)
  return tuning.resolve(how, bert, device, model, length)


def get_options(arguments, device):
  return readings.get_xla_options(resolve(arguments, device).xla_options)


@pytest.mark.parametrize(
  'device, arguments, attention, heads',
  [
    (TPU, '', 'fused', 'flat'),
    (TPU, 'mesh.model=2', 'xla', 'separate'),
    (TPU, 'attention=xla', 'xla', 'separate'),
    (TPU, 'body=modern', 'splash', 'separate'),
    (TPU, 'body=modern,attention_dropout=0.1', 'xla', 'separate'),
    (TPU_V3, 'body=modern', 'xla', 'separate'),
    (GPU, 'body=modern,dtype=bfloat16', 'flash', 'rows'),
    (TPU_V3, '', 'xla', 'separate'),
    (TPU_V3, 'compute.heads=flat', 'xla', 'flat'),
    (GPU, '', 'xla', 'rows'),
    (GPU, 'dtype=bfloat16', 'flash', 'rows'),
    (GPU, 'dtype=bfloat16,pack=3', 'flash', 'rows'),
    (GPU, 'dtype=bfloat16,mesh.model=2', 'xla', 'separate'),
    (GPU, 'dtype=bfloat16,num_heads=32', 'xla', 'rows'),
    (CPU, '', 'xla', 'rows'),
    (CPU, 'mesh.model=2', 'xla', 'separate'),
  ],
)
def test_how_each_chip_computes(device, arguments, attention, heads):
  found = resolve(arguments, device)
  assert (found.attention, found.heads) == (attention, heads)


@pytest.mark.parametrize(
  'device, arguments, says',
  [
    (CPU, 'attention=fused', 'fused runs on TPUs, not on cpu; use'),
    (TPU_V3, 'attention=fused', 'fused does not run on a TPU v3'),
    (TPU, 'attention=fused,mesh.model=2', 'split by mesh.model=2'),
    (CPU, 'compute.heads=flat,mesh.model=2', 'split by mesh.model=2; use'),
    (TPU, 'attention=flash', 'flash runs on GPUs, not on tpu'),
    (TPU, 'attention=fused,body=modern', 'fused cannot do model.body=modern'),
    (TPU, 'attention=splash', 'splash cannot do model.body=classic; use'),
    (
      TPU,
      'attention=splash,body=modern,attention_dropout=0.1',
      'splash cannot do model.attention_dropout=0.1; use',
    ),
    (CPU, 'attention=splash,body=modern', 'splash runs on TPUs, not on cpu'),
    (GPU, 'attention=flash,mesh.model=2', 'split by mesh.model=2'),
    (GPU, 'attention=flash', 'flash cannot do model.dtype=float32'),
    (GPU, 'attention=flash,dtype=bfloat16,num_heads=32', 'a head size of 24'),
  ],
)
def test_what_cannot_be_is_refused(device, arguments, says):
  with pytest.raises(errors.UserError, match=says):
    resolve(arguments, device)


@pytest.mark.parametrize(
  'device, size, arguments, lengths',
  [
    (CPU, 'base', '', (256, 512)),
    (CPU, 'large', '', (256, 512)),
    (CPU, 'tiny', '', ()),
    (GPU, 'tiny', '', (256, 512)),
    (TPU_V3, 'base', '', ()),
    (TPU, 'base', 'mesh.model=2', ()),
    (TPU, 'base', '', ()),
    (GPU, 'base', 'attention=xla', ()),
    (CPU, 'tiny', 'attention=recompute', (64, 128, 256, 512)),
  ],
)
def test_weights_are_recomputed_where_that_pays(
  device, size, arguments, lengths
):
  assert lengths == tuple(
    n
    for n in (64, 128, 256, 512)
    if resolve(arguments, device, n, size).attention == 'recompute'
  )


@pytest.mark.parametrize(
  'device, arguments, where',
  [
    (CPU, 'dropout=0,attention_dropout=0', 'predicted'),
    (CPU, 'dropout=0,attention_dropout=0,kind=ltr,nsp=False', 'all'),
    (CPU, 'dropout=0,attention_dropout=0,mesh.model=2', 'all'),
    (CPU, '', 'all'),  # dropout would draw other numbers
    (CPU, 'last_layer=predicted', 'predicted'),
    (TPU, 'dropout=0,attention_dropout=0', 'all'),
  ],
)
def test_where_the_last_layer_is_computed(device, arguments, where):
  assert resolve(arguments, device).last_layer == where


def test_the_length_of_a_phase_decides_on_its_kernels():
  found = [resolve('rng=rbg', TPU, n).attention for n in (64, 128, 512)]
  assert found == ['xla', 'fused', 'fused']
  with pytest.raises(errors.UserError, match='fused cannot do a sequence leng'):
    resolve('attention=fused', TPU, 96)


@pytest.mark.parametrize(
  'device, lengths',
  [(CPU, (256, 1024, 8192)), (GPU, (256, 1024, 8192)), (TPU_V3, (1024, 8192))],
)
def test_the_modern_body_recomputes_where_there_are_no_kernels(device, lengths):
  assert lengths == tuple(
    n
    for n in (128, 256, 1024, 8192)
    if resolve('body=modern', device, n).attention == 'recompute'
  )


def test_kernels_whose_offsets_would_overflow_are_not_chosen():
  """16,384 rows of 128 tokens with 3 x 1024 numbers are more than 2^31."""
  how, bert, model = ask('dtype=bfloat16', 'large')
  where = bert, GPU, model, 128
  found = [
    tuning.resolve(how, *where, rows).attention for rows in (4096, 16384)
  ]
  assert found == ['flash', 'xla']


def test_plain_ways_are_tried_where_auto_was_asked_for():
  def tried(arguments, device=TPU):
    how, bert, model = ask(arguments)
    ways = tuning.list_candidates(how, bert, device, model, 128)
    return [(way.attention, bool(way.xla_options)) for way in ways]

  assert tried('') == [('fused', True), ('fused', False), ('xla', False)]
  assert tried('xla_options=') == [('fused', False), ('xla', False)]
  assert tried('attention=fused') == [('fused', True), ('fused', False)]
  assert tried('attention=fused,xla_options=') == [('fused', False)]
  assert tried('', CPU) == [('xla', False)]


@pytest.mark.parametrize('device', [TPU, GPU, CPU])
def test_slow_products_are_said_where_there_are_faster_ones(device):
  how, *_ = ask()
  said = tuning.find_advice(how, 'float32', device)
  assert (device is CPU) == (said is None)
  assert said is None or 'model.dtype=bfloat16 is faster' in said
  assert tuning.find_advice(how, 'bfloat16', device) is None
  how, *_ = ask('compute.matmul_precision=tensorfloat32')
  assert tuning.find_advice(how, 'float32', device) is None


def test_a_jax_without_kernels_for_gpus_is_said(monkeypatch):
  monkeypatch.setitem(sys.modules, 'jax.experimental.pallas.triton', None)
  monkeypatch.delattr('jax.experimental.pallas.triton', raising=False)
  assert resolve('dtype=bfloat16', GPU, 512).attention == 'recompute'
  how, *_ = ask()
  said = tuning.find_advice(how, 'bfloat16', GPU)
  assert said.startswith('WARNING: slow: compute.attention=flash needs Pallas')
  assert tuning.find_advice(how, 'bfloat16', TPU) is None
  with pytest.raises(errors.UserError, match='use compute.attention=auto'):
    resolve('dtype=bfloat16,attention=flash', GPU, 512)


def test_the_options_of_each_chip():
  assert get_options('', TPU) == {'xla_tpu_enforce_prefetch_fifo_order': True}
  known = {'xla_gpu_enable_triton_gemm': False, 'xla_gpu_ftz': True}
  assert get_options('', GPU) == known
  assert not any(get_options('', device) for device in (TPU_V3, A100, CPU))
  assert readings.get_xla_options('auto') == {}


def test_options_given_replace_those_of_the_chip():
  given = get_options('xla_options=--xla_a=true xla_b=2', TPU)
  assert given == {'xla_a': True, 'xla_b': '2'}
  assert get_options('xla_options=', TPU) == {}
  with pytest.raises(errors.UserError, match="has 'xla_a'; give NAME=VALUE"):
    readings.get_xla_options('xla_a')
