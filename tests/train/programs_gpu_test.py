"""All programs of a run lower for NVIDIA GPUs, which need not be there."""

import types

import pytest

from bert_jax.ops import recomputed_attention
from bert_jax.train import programs
from tests import lowering

SLOW = pytest.mark.slow
GPU = types.SimpleNamespace(platform='gpu', device_kind='NVIDIA H200')


@pytest.mark.parametrize('count', [pytest.param(1, marks=SLOW), 4])
@pytest.mark.parametrize('name', lowering.CONFIGS)
def test_training_and_evaluation_of_each_config_lower(name, count):
  c = lowering.make_config(name)
  found = lowering.lower(c, GPU, count)
  assert len(found) == 2 * len(c.phases.steps)
  assert not any('tpu_custom_call' in text for text in found.values())


@pytest.mark.slow
@pytest.mark.parametrize('count', [1, 4])
@pytest.mark.parametrize('name', lowering.FINETUNING)
def test_fine_tuning_lowers_at_every_length(name, count):
  c = lowering.make_config(name, 'size=tiny,num_layers=1,vocab_size=64')
  found = lowering.lower(c, GPU, count)
  lengths = {length for _, length in found}
  assert max(lengths) == c.phases.seq_length[0] and len(lengths) > 3
  assert len(found) == 2 * len(lengths)


def test_what_runs_before_the_first_step_lowers():
  c = lowering.short('dtype=bfloat16,rng=rbg')
  found = lowering.lower_start(c, GPU, 4)
  assert {programs.INITIALISE, programs.FINGERPRINT} < set(found)


@pytest.mark.parametrize(
  'arguments, count',
  [
    ('dtype=float32,rng=rbg', 1),
    ('dtype=bfloat16,rng=rbg,pack=3', 4),
    ('dtype=bfloat16,rng=rbg,seq_length=512,mesh.model=2', 4),
    *(
      pytest.param(*more, marks=SLOW)
      for more in (
        ('dtype=bfloat16,rng=threefry,kind=ltr,nsp=false', 4),
        ('rng=threefry,seq_length=512,pack=3,kind=ltr,nsp=false', 1),
        ('dtype=bfloat16,rng=rbg,seq_length=512,kind=rtl,nsp=false', 4),
        ('dtype=bfloat16,rng=rbg,seq_length=512,pack=3', 4),
        ('dtype=bfloat16,accumulate=2,remat=layer,attention=recompute', 4),
        ('scan_layers=true,num_layers=2,attention=recompute', 1),
      )
    ),
  ],
)
def test_every_way_to_compute_lowers(arguments, count):
  dropped = 'dropout=0.1,attention_dropout=0.1'  # tiny.py has none
  c = lowering.short(f'model.{dropped},{arguments}')
  text = lowering.lower(c, GPU, count)[programs.TRAIN, c.phases.seq_length[0]]
  assert ('rng_bit_generator' in text) == (c.rng == 'rbg')


@pytest.mark.parametrize('attention', ['xla', 'auto'])
def test_auto_makes_no_array_of_all_pairs_of_tokens(monkeypatch, attention):
  monkeypatch.setattr(recomputed_attention, 'BLOCK', 1)
  c = lowering.short(f'seq_length=512,batch_size=4,attention={attention}')
  text = lowering.lower(c, GPU, 1)[programs.TRAIN, 512]
  assert ('<4x2x512x512x' in text) == (attention == 'xla')
