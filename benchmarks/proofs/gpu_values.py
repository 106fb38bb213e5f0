"""Compares attention, a layer and random bits on a GPU with those of the CPU.

  python benchmarks/proofs/gpu_values.py

Attention of two rows, one of them padded, forward and backward, with the sizes
of --size, in all implementations, plain, causal and packed; and a whole layer.
Errors are those of the largest among the output and the gradients, relative to its
norm on the CPU in float32. Prints a line per comparison; the exit code is 1 if one
fails.
"""

import argparse
import functools
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from gpu_runs import say

from bert_jax.config import SIZES
from bert_jax.model import attention, bert_config, encoder
from bert_jax.ops import dropout, kept_bits

ERRORS = {'float32': 1e-5, 'bfloat16': 2e-2}
WAYS = 'xla', 'recompute', 'flash'


def find_gradient(function, cotangent, *given):
  """Returns what a function gives and its gradients, in float32."""
  with jax.default_matmul_precision('float32'):
    out, pull = jax.vjp(function, *given)
    found = out, pull(cotangent.astype(out.dtype))
  return [x.astype(jnp.float32) for x in jax.tree.leaves(found)]


def compute(where, function, *arrays) -> list[np.ndarray]:
  """Returns what a function of arrays gives on a device."""
  with jax.default_device(where):
    return jax.tree.map(np.asarray, jax.jit(function)(*arrays))


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
  rng = np.random.default_rng(0)
  shape = 2, length, 3, heads, hidden // heads
  qkv, grad = rng.standard_normal(shape, 'f4'), rng.standard_normal(shape, 'f4')
  mask = np.ones((2, length), 'i4')
  mask[1, length * 3 // 4 :] = 0
  # What padding gets, nobody reads.
  seen = mask[..., None, None]
  pairs = (mask * (1 + np.arange(length) // (length // 3))).astype('i4')

  def compare(kind, seed):
    ids = pairs if kind == 'packed' else None

    def attend(qkv, key, c):
      def forward(qkv):
        bias, tokens = (
          jnp.zeros(shape[2:], c.dtype),
          attention.Tokens(mask, ids),
        )
        out = attention.attend(qkv, bias, tokens, key, c)
        return out * seen.astype(out.dtype)

      return find_gradient(forward, grad[:, :, 0] * seen, qkv.astype(c.dtype))

    def run(where, way, dtype):
      c = bert_config.BertConfig(
        *(30522, hidden, 1, heads, 4 * hidden),
        **{'causal': kind == 'causal', 'attention': way, 'dtype': dtype},
      )
      key = None if seed is None else jax.random.key(seed)
      return compute(where, functools.partial(attend, c=c), qkv, key)

    expected = run(cpu, 'xla', 'float32')
    return [
      judge(
        f'{way}, {kind}, dropout by {seed}', run(device, way, x), expected, x
      )
      for x, way in itertools.product(ERRORS, WAYS)
    ]

  cases = itertools.product(('plain', 'causal', 'packed'), (1, None))
  return all([good for case in cases for good in compare(*case)])


def check_layer(device, cpu, size, length) -> bool:
  """Compares a layer; returns whether all agree."""
  _, hidden, heads = SIZES[size]
  rng = np.random.default_rng(0)
  x, grad = rng.standard_normal((2, 2, length, hidden), 'f4')
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
      return find_gradient(forward, grad, params, wide)

    return compute(where, both, x)

  expected, good = run(cpu, 'xla', 'float32'), True
  for dtype in ERRORS:
    good &= judge('a layer', run(device, 'flash', dtype), expected, dtype)
  return good


def draw(where):
  """Returns random bits of threefry and of dropout's masks."""
  with jax.default_device(where):
    key = jax.random.key(3)
    words = jax.random.bits(key, (1000, 7), jnp.uint32)
    drawn = words, dropout.draw(key, (2, 64, 128))
    key = jax.random.key(3, impl='rbg')
    kept = kept_bits.draw(key, (128, 512), 230)
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
