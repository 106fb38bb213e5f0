"""Measures of whether a model has left the plateau."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax.model import bert_config, heads
from bert_jax.parallel import device_mesh
from bert_jax.pretraining import plateau, pretrain
from bert_jax.train.step import jit_eval
from tests import models, training

# Positions are one-hot in hidden size 8, as far as LayerNorm allows.
CONFIG = bert_config.BertConfig(
  vocab_size=11,
  hidden_size=8,
  num_layers=2,
  num_heads=2,
  mlp_size=4,
  max_positions=6,
)


def make_params(config, looks):
  """Returns parameters whose head h of layer 0 looks looks[h] positions on."""
  params = jax.tree.map_with_path(
    lambda path, x: np.full(x.shape, path[-1].key == 'scale', np.float32),
    models.shapes(config, False),
  )
  params['embeddings']['position']['embedding'] += np.eye(6, 8)
  kernel = params['encoder']['layer_0']['attention']['qkv']['kernel']
  for head, look in enumerate(looks):
    for position in range(4):
      kernel[position, 1, head, position] = 10  # keys
      kernel[position, 0, head, (position + look) % 4] = 10  # queries
  return params


def make_batch(sizes, length=6):
  mask = (np.arange(length) < np.array(sizes)[:, None]).astype(np.int32)
  return {
    'input_ids': mask * 5,
    'input_mask': mask,
    'segment_ids': mask * 0,
    'masked_lm_positions': np.zeros((len(sizes), 1), np.int32),
  }


def measure(config, params, batch):
  module = heads.PretrainingModel(config, with_nsp=False)
  compute = jax.jit(functools.partial(plateau.measure_attention, module))
  found = compute(params, batch)
  return {name: float(total / n) for name, (total, n) in found.items()}


@pytest.mark.parametrize('norm', ['post', 'pre'])
@pytest.mark.parametrize('way', [{}, {'scan_layers': True, 'remat': 'layer'}])
def test_heads_that_look_at_neighbours_are_seen(norm, way):
  config = dataclasses.replace(CONFIG, norm=norm, **way)
  params = make_params(config, looks=(1, -1))
  found = measure(config, params, make_batch([4, 4]))
  # Three of four tokens have such a neighbour.
  for name, share in {'0_+1': 0.75, '1_-1': 0.75, '0_-1': 0, '1_+1': 0}.items():
    assert found[f'attention_{name}'] == pytest.approx(share, abs=1e-3)
  assert set(found) == {
    f'attention_{head}_{offset}'
    for head in (0, 1)
    for offset in ('-2', '-1', '+0', '+1', '+2')
  }


def test_padding_neither_looks_nor_counts():
  params = make_params(CONFIG, looks=())  # scores of 0: all tokens alike
  found = measure(CONFIG, params, make_batch([4] * 3))
  expected = {'-2': 2 / 16, '-1': 3 / 16, '+0': 4 / 16, '+1': 3 / 16}
  for offset, share in expected.items():
    for head in (0, 1):
      assert found[f'attention_{head}_{offset}'] == pytest.approx(share)
  mixed = measure(CONFIG, params, make_batch([4, 2]))
  assert mixed['attention_0_+0'] == pytest.approx((4 / 4 + 2 / 2) / 6)


def test_a_causal_model_looks_back_only():
  config = dataclasses.replace(CONFIG, causal=True)
  found = measure(config, make_params(config, looks=()), make_batch([4]))
  assert found['attention_0_+1'] == found['attention_0_+2'] == 0
  # A half of the second token's, a third of the third's, a quarter.
  assert found['attention_0_-1'] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_pairs_of_a_packed_row_do_not_see_each_other():
  batch = make_batch([6])
  batch['sequence_ids'] = np.array([[1, 1, 1, 1, 2, 2]])
  batch['position_ids'] = np.array([[0, 1, 2, 3, 0, 1]])
  found = measure(CONFIG, make_params(CONFIG, looks=()), batch)
  assert found['attention_0_+1'] == pytest.approx((3 / 4 + 1 / 2) / 6)


def test_rows_may_lie_on_any_devices():
  c = training.small_config()
  state, _ = training.make_step()
  objective, batch = training.make_objective(c), training.make_batch(0)
  found = []
  for devices, model in ((1, 1), (4, 2)):
    mesh = device_mesh.make_mesh(model, jax.devices()[:devices])
    step = jit_eval(c, objective, mesh)
    sums, _ = step(state.params, device_mesh.put_batch(mesh, batch))
    found.append({n: [float(x) for x in pair] for n, pair in sums.items()})
  one, four = found
  assert four.keys() == one.keys()
  for name, pair in one.items():
    assert four[name] == pytest.approx(pair, rel=1e-5)
  assert one['attention_1_-1'][1] == batch['input_mask'].sum()


def test_what_is_said():
  for loss, new, left in (
    (5.91, True, False),
    (5.89, True, True),
    (5.89, False, False),  # it left before
  ):
    found = plateau.has_left(6.9, new, {'mlm_loss': loss})
    assert found == {'plateau_exit': left}
  gain = plateau.compare({False: {'mlm_loss': 5.0}, True: {'mlm_loss': 6.25}})
  assert gain == {'context_gain': 1.25}
  means = {
    **{'attention_0_-1': 0.5, 'attention_1_-1': 0.1},
    **{'attention_0_+1': 0.1, 'attention_1_+1': 0.25, 'attention_1_+0': 0.3},
  }
  assert (
    pretrain.word({**gain, **means, 'mlm_loss': 5, 'mlm_accuracy': 0.25})
    == 'mlm 5.000 acc 25.0% | context gain 1.25, attention -1 50%, '
    'attention +1 25%'
  )


@pytest.mark.parametrize(
  'step, tokens, gain, said',
  [
    (2400, 4_915_200, 0.09, True),
    (2399, 4_915_200, 0.09, False),  # 400 updates of them warm up
    (2400, 3_999_999, 0.09, False),
    (2400, 4_915_200, 0.1, False),
    (2400, 4_915_200, None, False),  # a language model
  ],
)
def test_who_stays_on_the_plateau_is_told_what_helps(step, tokens, gain, said):
  c = configs.pretraining('tiny')
  c.optimizer.warmup_steps, c.phases.batch_size = 400, (32,)
  found = {'tokens': tokens}
  if gain is not None:
    found['context_gain'] = gain
  warning = plateau.warn(c, step, found)
  assert bool(warning) == said
  if said:
    assert warning.startswith(
      'on the plateau: shuffling the context costs 0.09'
    )
    assert 'helps: rows of 64 tokens at first, another' in warning
    c.model.attention_init, c.phases.seq_length = 'random', (64,)
    assert 'helps: model.attention_init=neighbours, another' in plateau.warn(
      c, step, found
    )
    c.init_from = 'runs/mine'
    assert 'helps: another learning rate (' in plateau.warn(c, step, found)
    c.phases.warmups = (401,)
    assert not plateau.warn(c, step, found)
