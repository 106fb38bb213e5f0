"""Compares attention, a layer and random bits on a GPU with those of the CPU.

  python benchmarks/proofs/gpu_values.py

Attention of two rows, one of them padded, forward and backward, with the sizes
of --size, in all implementations, plain, causal and packed; and a whole layer.
Errors are those of the largest among the output and the gradients, relative to its
norm on the CPU in float32. Prints a line per comparison; the exit code is 1 if one
fails.
"""

import argparse
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from gpu_runs import say

from bert_jax.config import SIZES
from bert_jax.model import attention, bert_config, encoder
from bert_jax.ops import dropout, kept_bits
from tests.ops import attentions

ERRORS = {'float32': 1e-5, 'bfloat16': 2e-2}
WAYS = 'xla', 'recompute', 'flash'


def judge(name, found, expected, dtype) -> bool:
  error = max(
    np.linalg.norm(a - b) / np.linalg.norm(b)
    for a, b in zip(found, expected, strict=True)
  )
  most = ERRORS[dtype]
  text = f'{name}, {dtype}: differs by {error:.1e} (at most {most:.0e})'
  return say(error <= most, text)


def check_attention(device, cpu, size, length) -> bool:
  """Compares each implementation; returns whether all agree."""
  _, hidden, heads = SIZES[size]
  shape, tokens = (length, heads, hidden // heads), (length, length * 3 // 4)
  # Queries that see no key, in pairs of padding only, would have few digits.
  pairs = (np.arange(length) > length // 3) * np.ones((2, 1), int)
  good = True
  for kind, seed in itertools.product(('plain', 'causal', 'packed'), (1, None)):
    options = {
      'key': None if seed is None else jax.random.key(seed),
      'causal': kind == 'causal',
      'pairs': pairs if kind == 'packed' else None,
    }

    def run(where, way, dtype, options=options):
      with jax.default_device(where), jax.default_matmul_precision('float32'):
        given = way, shape, tokens
        return attentions.with_gradient(*given, dtype=dtype, **options)

    expected = run(cpu, 'xla', 'float32')
    for dtype, way in itertools.product(ERRORS, WAYS):
      name = f'{way}, {kind}, dropout by {seed}'
      good &= judge(name, run(device, way, dtype), expected, dtype)
  return good


def check_layer(device, cpu, size, length) -> bool:
  """Compares a layer; returns whether all agree."""
  _, hidden, heads = SIZES[size]
  x, grad = np.random.default_rng(0).standard_normal(
    (2, 2, length, hidden), 'f4'
  )
  keys = {'params': jax.random.key(0), 'dropout': jax.random.key(1)}
  tokens = attention.Tokens(jnp.ones(x.shape[:2], jnp.int32))

  def run(where, way, dtype):
    # As in runs. For products of three axes, XLA for CPUs (jax 0.11 and 0.12)
    # adds the gradients of kernels in bfloat16.
    c = bert_config.BertConfig(
      *(30522, hidden, 1, heads, 4 * hidden),
      **{'attention': way, 'dtype': dtype, 'flat_rows': True},
    )
    layer = encoder.Layer(c)

    def both(x):
      wide = x.astype(dtype)
      params = layer.init(keys, wide, tokens, False)
      forward = lambda p, x: layer.apply(p, x, tokens, False, rngs=keys)  # noqa: E731
      out, pull = jax.vjp(forward, params, wide)
      return jax.tree.leaves((out, pull(grad.astype(out.dtype))))

    with jax.default_device(where), jax.default_matmul_precision('float32'):
      return [np.asarray(x, np.float32) for x in jax.jit(both)(x)]

  expected = run(cpu, 'xla', 'float32')
  return all(
    [judge('a layer', run(device, 'flash', x), expected, x) for x in ERRORS]
  )


def draw(where):
  """Returns random bits of threefry and of dropout's masks."""
  with jax.default_device(where):
    key = jax.random.key(3)
    words = jax.random.bits(key, (1000, 7), jnp.uint32)
    drawn = words, dropout.draw(key, (2, 64, 128))
    kept = kept_bits.draw(jax.random.key(3, impl='rbg'), (128, 512), 230)
    return [np.asarray(x) for x in (*drawn, kept)]


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--platform', default='cuda', help='cpu: compare the CPU with itself')
  add('--size', default='large', choices=SIZES)
  add('--seq_length', type=int, default=512)
  args = parser.parse_args()
  platforms = dict.fromkeys((args.platform, 'cpu'))
  jax.config.update('jax_platforms', ','.join(platforms))
  device, cpu = jax.devices()[0], jax.devices('cpu')[0]
  print(f'jax {jax.__version__}, {device.device_kind}')
  given = device, cpu, args.size, args.seq_length
  good = say(
    all(map(np.array_equal, draw(device), draw(cpu))),
    "bits of threefry and of dropout's masks are the CPU's",
  )
  good &= check_layer(*given)
  good &= check_attention(*given)
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
