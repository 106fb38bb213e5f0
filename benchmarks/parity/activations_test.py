"""Hidden states, logits and gradients of a random BERT are transformers'."""

import jax
import numpy as np
import pytest

from bert_jax import param_names
from bert_jax.config import SIZES, apply_arguments, model_config, recipes
from bert_jax.interop import rename
from bert_jax.model import heads
from bert_jax.pretraining import pretrain

ACTIVATIONS = {'gelu': 'gelu', 'gelu_tanh': 'gelu_new'}
VOCAB = 30522
LENGTHS = (48, 31, 9, 20)  # tokens; the rest of S=48 is padding
PREDICTIONS = 5


def make_batch():
  """Returns a padded batch; the last row has fewer predictions."""
  rng = np.random.default_rng(0)
  rows, length = len(LENGTHS), max(LENGTHS)
  mask = np.arange(length) < np.array(LENGTHS)[:, None]
  return {
    'input_ids': rng.integers(1000, VOCAB, (rows, length)) * mask,
    'input_mask': mask * 1,
    'segment_ids': (np.arange(length) >= 6) * mask * 1,
    'masked_lm_positions': np.tile([1, 3, 4, 6, 8], (rows, 1)),
    'masked_lm_ids': rng.integers(1000, VOCAB, (rows, PREDICTIONS)),
    'masked_lm_weights': 1 - np.eye(rows, PREDICTIONS, 1, dtype=np.float32),
    'next_sentence_labels': np.array([0, 1, 1, 0]),
    'next_sentence_weights': np.ones(rows, np.float32),
  }


def compute(bert, params, batch):
  """Returns (arrays as in_transformers.py names them, gradient)."""
  module = heads.PretrainingModel(bert)

  def loss(params):
    sums, _ = pretrain.compute_sums(module, params, batch, None)
    counts = pretrain.count_targets(batch, with_nsp=True)
    return sum(sums[name] / counts[name] for name in ('mlm_loss', 'nsp_loss'))

  value, gradient = jax.jit(jax.value_and_grad(loss))(params)
  (mlm, nsp), state = jax.jit(
    lambda p: module.apply({'params': p}, batch, mutable=['intermediates'])
  )(params)
  inside = state['intermediates']
  found = {'loss': value, 'pooled': inside['pooled'][0], 'mlm': mlm, 'nsp': nsp}
  found['hidden_0'] = inside['embeddings']['hidden'][0]
  for i in range(bert.num_layers):
    layer = inside['encoder'][f'layer_{i}']
    found[f'hidden_{i + 1}'] = layer['hidden'][0]
    found[f'probabilities_{i}'] = layer['attention']['probabilities'][0]
  return found, param_names.flatten(gradient)


@pytest.mark.parametrize('size', ['tiny', 'base'])
@pytest.mark.parametrize('activation', ACTIVATIONS)
def test_arrays_agree(in_transformers, size, activation):
  c = apply_arguments(
    recipes.pretraining(size), f'profile=hf,activation={activation}'
  )
  bert, batch = model_config(c), make_batch()
  layers, hidden, head_count = SIZES[size]
  job = {
    'vocab_size': VOCAB,
    'hidden_size': hidden,
    'num_hidden_layers': layers,
    'num_attention_heads': head_count,
    'intermediate_size': 4 * hidden,
    'hidden_act': ACTIVATIONS[activation],
  }
  there = {'weights': {}, 'gradient': {}, 'found': {}}
  for name, x in in_transformers('differentiate', job, batch).items():
    kind, _, name = name.partition('/')
    there[kind][name] = x
  params, _ = rename.from_hf(there['weights'], bert)
  found, gradient = compute(bert, params, batch)
  theirs = param_names.flatten(rename.from_hf(there['gradient'], bert)[0])
  assert found.keys() == there['found'].keys()
  assert gradient.keys() == theirs.keys()
  worst = {}
  for kind, a, b in [
    *(
      (key.rstrip('_0123456789'), found[key], there['found'][key])
      for key in found
    ),
    *(('gradient', gradient[key], theirs[key]) for key in gradient),
  ]:
    assert np.shape(a) == b.shape
    scale = 1 if kind == 'probabilities' else np.abs(b).max()
    worst.setdefault(kind, []).append(float(np.abs(a - b).max() / scale))
  for kind, errors in worst.items():
    limit = 1e-6 if kind == 'probabilities' else 1e-5
    print(f'{kind}: {len(errors)} array(s) differ by {max(errors):.1e}')
    assert max(errors) <= limit, kind
