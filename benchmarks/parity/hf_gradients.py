"""Compares activations and gradients of a random BERT with transformers'.

  python benchmarks/parity/hf_gradients.py --torch=PYTHON [--size=tiny|base]

PYTHON is the interpreter of an environment with torch and transformers 4 or 5.
For erf and tanh GELU, random weights are drawn there and a padded batch is run
through both models in float32. It fails unless, relative to the largest value
of each array,

  every hidden state, the pooled vector, MLM and NSP logits agree to 1e-5,
  the gradient of the pre-training loss agrees to 1e-5, parameter by parameter,

and attention probabilities to 1e-6.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

_SIZES = {'tiny': (2, 128, 2), 'base': (12, 768, 12)}
_ACTIVATIONS = {'gelu': 'gelu', 'gelu_tanh': 'gelu_new'}
_VOCAB = 30522
_LENGTHS = (48, 31, 9, 20)  # tokens; the rest of S=48 is padding
_PREDICTIONS = 5


def make_batch():
  """Returns a padded batch; the last row has fewer predictions."""
  rng = np.random.default_rng(0)
  rows, length = len(_LENGTHS), max(_LENGTHS)
  mask = np.arange(length) < np.array(_LENGTHS)[:, None]
  return {
    'input_ids': rng.integers(1000, _VOCAB, (rows, length)) * mask,
    'input_mask': mask * 1,
    'segment_ids': (np.arange(length) >= 6) * mask * 1,
    'masked_lm_positions': np.tile([1, 3, 4, 6, 8], (rows, 1)),
    'masked_lm_ids': rng.integers(1000, _VOCAB, (rows, _PREDICTIONS)),
    'masked_lm_weights': 1 - np.eye(rows, _PREDICTIONS, 1, dtype=np.float32),
    'next_sentence_labels': np.array([0, 1, 1, 0]),
    'next_sentence_weights': np.ones(rows, np.float32),
  }


def theirs(size, activation, directory):
  """Writes random weights, and what transformers computes with them."""
  import torch
  import transformers

  layers, hidden, heads = _SIZES[size]
  torch.manual_seed(0)
  config = transformers.BertConfig(
    vocab_size=_VOCAB,
    hidden_size=hidden,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    intermediate_size=4 * hidden,
    hidden_act=_ACTIVATIONS[activation],
    attn_implementation='eager',  # the others return no probabilities
  )
  bert = transformers.BertForPreTraining(config).eval()
  with torch.no_grad():  # no bias stays 0 and no scale 1, or they could hide
    for parameter in bert.parameters():
      parameter += 0.02 * torch.randn_like(parameter)
  b = make_batch()
  labels = np.full(b['input_ids'].shape, -100)
  ids = np.where(b['masked_lm_weights'] == 1, b['masked_lm_ids'], -100)
  np.put_along_axis(labels, b['masked_lm_positions'], ids, 1)
  out = bert(
    input_ids=torch.tensor(b['input_ids']),
    attention_mask=torch.tensor(b['input_mask']),
    token_type_ids=torch.tensor(b['segment_ids']),
    labels=torch.tensor(labels),
    next_sentence_label=torch.tensor(b['next_sentence_labels']),
    output_hidden_states=True,
    output_attentions=True,
  )
  out.loss.backward()
  at = torch.tensor(b['masked_lm_positions'])[..., None]
  found = {
    'loss': out.loss,
    'pooled': bert.bert.pooler(out.hidden_states[-1]),
    'mlm': torch.take_along_dim(out.prediction_logits, at, 1),
    'nsp': out.seq_relationship_logits,
  }
  for i, x in enumerate(out.hidden_states):
    found[f'hidden_{i}'] = x
  for i, x in enumerate(out.attentions):
    found[f'probabilities_{i}'] = x
  named = dict(bert.named_parameters())
  for name, arrays in (
    ('weights', named),
    ('gradient', {key: x.grad for key, x in named.items()}),
    ('found', found),
  ):
    arrays = {key: x.detach().numpy() for key, x in arrays.items()}
    np.savez(os.path.join(directory, name), **arrays)
  print(f'transformers {transformers.__version__}, torch {torch.__version__}')


def ours(size, activation, weights):
  """Returns (found, gradient): arrays as `theirs` names them, and a tree."""
  import jax

  from bert_jax import config as config_lib
  from bert_jax.interop import rename
  from bert_jax.model import heads
  from bert_jax.pretraining import pretrain

  c = config_lib.apply_arguments(
    config_lib.pretraining(size), f'profile=hf,activation={activation}'
  )
  bert = config_lib.model_config(c)
  params, _ = rename.from_hf(weights, bert)
  module = heads.PretrainingModel(bert)
  batch = make_batch()

  def loss(params):
    sums, _ = pretrain.compute_sums(module, params, batch, None)
    counts = pretrain.count_targets(batch, with_nsp=True)
    return sum(sums[name] / counts[name] for name in ('mlm_loss', 'nsp_loss'))

  value, gradient = jax.jit(jax.value_and_grad(loss))(params)
  (mlm, nsp), state = jax.jit(
    lambda p: module.apply({'params': p}, batch, mutable=['intermediates'])
  )(params)
  inside = state['intermediates']
  found = {
    'loss': value,
    'pooled': inside['pooled'][0],
    'mlm': mlm,
    'nsp': nsp,
    'hidden_0': inside['embeddings']['hidden'][0],
  }
  for i in range(bert.num_layers):
    layer = inside['encoder'][f'layer_{i}']
    found[f'hidden_{i + 1}'] = layer['hidden'][0]
    found[f'probabilities_{i}'] = layer['attention']['probabilities'][0]
  return found, gradient, bert


def compare(size, activation, directory):
  """Prints the largest differences; returns whether all are small enough."""
  from bert_jax import param_names
  from bert_jax.interop import rename

  read = {}
  for name in ('weights', 'gradient', 'found'):
    with np.load(os.path.join(directory, f'{name}.npz')) as file:
      read[name] = dict(file)
  found, gradient, bert = ours(size, activation, read['weights'])
  there = param_names.flatten(rename.from_hf(read['gradient'], bert)[0])
  here = param_names.flatten(gradient)
  if found.keys() != read['found'].keys() or here.keys() != there.keys():
    print('FAIL: the two models do not have the same parts')
    return False
  good = True
  kinds = {'gradient of': [(k, here[k], there[k]) for k in here]}
  for key, value in found.items():
    kind = key.rstrip('0123456789').rstrip('_')
    kinds.setdefault(kind, []).append((key, value, read['found'][key]))
  for kind, arrays in kinds.items():
    limit = 1e-6 if kind == 'probabilities' else 1e-5
    worst, which = 0.0, ''
    for key, a, b in arrays:
      if np.shape(a) != b.shape:
        print(f'FAIL: {key} has shape {np.shape(a)} here, {b.shape} there')
        return False
      scale = 1 if kind == 'probabilities' else np.abs(b).max()
      difference = float(np.abs(a - b).max() / scale)
      if not difference < worst:  # NaN, too
        worst, which = difference, key
    good &= worst <= limit
    print(
      f'{"ok" if worst <= limit else "FAIL":<5}{kind:<14}{len(arrays):>4} '
      f'array(s) differ by {worst:.1e} at most (allowed {limit:.0e}): {which}'
    )
  return good


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--torch', help='interpreter with torch and transformers')
  parser.add_argument('--size', choices=_SIZES, default='tiny')
  parser.add_argument('--theirs', nargs=2, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.theirs:
    theirs(args.size, *args.theirs)
    return 0
  if not args.torch:
    parser.error('--torch is needed')
  good = True
  for activation in _ACTIVATIONS:
    print(f'{args.size}, {activation}', flush=True)
    with tempfile.TemporaryDirectory() as directory:
      command = [args.torch, __file__, f'--size={args.size}', '--theirs']
      subprocess.run([*command, activation, directory], check=True)
      good &= compare(args.size, activation, directory)
  print('PASS' if good else 'FAIL')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
