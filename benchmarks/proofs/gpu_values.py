"""Compares attention, a layer and random bits on a GPU with those of the CPU.

  python benchmarks/proofs/gpu_values.py

Attention of two rows, one of them padded, forward and backward, with the sizes
of --size, in all implementations, plain, causal and packed; and a whole layer,
with the kernels of LayerNorm and GELU. Errors are those of the largest among the
output and the gradients, relative to its norm on the CPU in float32. Prints a
line per comparison; the exit code is 1 if one fails.
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
ROWS = 2


def make_inputs(heads, size, length, pack):
  """Returns (qkv, its gradient's weights, tokens); numpy arrays in float32."""
  rng = np.random.default_rng(0)
  qkv = rng.standard_normal((ROWS, length, 3, heads, size), 'f4')
  cotangent = rng.standard_normal((ROWS, length, heads, size), 'f4')
  mask = np.ones((ROWS, length), 'i4')
  mask[1, length * 3 // 4 :] = 0
  cotangent *= mask[..., None, None]  # what padding gets, nobody reads
  pairs = 1 + np.arange(length) // (length // 3)
  ids = (mask * pairs).astype('i4') if pack else None
  return qkv, cotangent, attention.Tokens(mask, ids)


def attend(qkv, cotangent, tokens, key, c):
  """Returns the output and the gradient of qkv, in float32."""

  def forward(qkv):
    bias = jnp.zeros(qkv.shape[2:], qkv.dtype)
    out = attention.attend(qkv, bias, tokens, key, c)
    return out * tokens.input_mask[..., None, None].astype(out.dtype)

  with jax.default_matmul_precision('float32'):
    out, pull = jax.vjp(forward, qkv.astype(c.dtype))
    (grad,) = pull(cotangent.astype(c.dtype))
  return out.astype(jnp.float32), grad.astype(jnp.float32)


def compute(device, inputs, c, seed):
  """Returns what `attend` gives on a device; dropout unless seed is None."""
  arrays = jax.device_put(inputs, device)
  with jax.default_device(device):
    key = None if seed is None else jax.random.key(seed)
    found = jax.jit(functools.partial(attend, c=c))(*arrays, key)
  return jax.tree.map(np.asarray, found)


def find_error(found, expected):
  return max(
    np.linalg.norm(a - b) / np.linalg.norm(b)
    for a, b in zip(found, expected, strict=True)
  )


def check_attention(device, cpu, args):
  """Compares each implementation; returns whether all agree."""
  _, hidden, heads = SIZES[args.size]
  kinds = {'plain': {}, 'causal': {'causal': True}, 'packed': {}}
  good = True
  for kind, changes in kinds.items():
    inputs = make_inputs(heads, hidden // heads, args.seq_length, 'ed' in kind)
    make = functools.partial(
      bert_config.BertConfig, 30522, hidden, 1, heads, 4 * hidden, **changes
    )
    for seed in (1, None):
      expected = compute(cpu, inputs, make(attention='xla'), seed)
      ways = 'xla', 'recompute', 'flash'
      for dtype, way in itertools.product(ERRORS, ways):
        name = f'{way}, {dtype}, {kind}, {"dropout" if seed else "no dropout"}'
        c = make(attention=way, dtype=dtype)
        error = find_error(compute(device, inputs, c, seed), expected)
        good &= say(
          error <= ERRORS[dtype],
          f'{name}: differs by {error:.1e} (at most {ERRORS[dtype]:.0e})',
        )
  return good


def check_layer(device, cpu, args):
  """Compares a layer; returns whether all agree."""
  _, hidden, heads = SIZES[args.size]
  sizes = 30522, hidden, 1, heads, 4 * hidden
  # As in runs. For products of three axes, XLA for CPUs (jax 0.11 and 0.12) adds
  # the gradients of kernels in bfloat16.
  make = functools.partial(bert_config.BertConfig, *sizes, flat_rows=True)
  rng = np.random.default_rng(0)
  x, cotangent = rng.standard_normal((2, ROWS, args.seq_length, hidden), 'f4')
  mask = np.ones(x.shape[:2], 'i4')
  keys = {'params': jax.random.key(0), 'dropout': jax.random.key(1)}

  def run(where, c):
    def both(params, x):
      def forward(params, x):
        tokens, rngs = attention.Tokens(jnp.asarray(mask)), keys
        return layer.apply(params, x, tokens, False, rngs=rngs)

      out, pull = jax.vjp(forward, params, x)
      return out, pull(cotangent.astype(out.dtype))

    layer = encoder.Layer(c)
    with jax.default_device(where), jax.default_matmul_precision('float32'):
      wide = jnp.asarray(x).astype(c.dtype)
      params = jax.jit(layer.init, static_argnums=3)(
        keys, wide, attention.Tokens(jnp.asarray(mask)), False
      )
      found = jax.jit(both)(params, wide)
    return [np.asarray(x, 'f4') for x in jax.tree.leaves(found)]

  good, expected = True, run(cpu, make())
  for dtype in ERRORS:
    found = run(device, make(attention='flash', dtype=dtype))
    error = find_error(found, expected)
    good &= say(
      error <= ERRORS[dtype],
      f'a layer, {dtype}: differs by {error:.1e} (at most {ERRORS[dtype]:.0e})',
    )
  return good


def check_bits(device, cpu):
  """Compares random bits; returns whether they are equal."""

  def draw(where):
    with jax.default_device(where):
      key = jax.random.key(3)
      words = jax.random.bits(key, (1000, 7), jnp.uint32)
      drawn = words, dropout.draw(key, (2, 64, 128))
      key = jax.random.key(3, impl='rbg')
      draw_kept = functools.partial(kept_bits.draw, key, (128, 512), keep=230)
      kept = [draw_kept(dtype=x) for x in ('uint8', 'uint32')]
      return [np.asarray(x) for x in (*drawn, *kept)]

  equal = all(map(np.array_equal, draw(device), draw(cpu)))
  return say(equal, "bits of threefry and of dropout's masks are the CPU's")


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--platform', default='cuda', help='cpu: compare the CPU with itself')
  add('--size', default='large', choices=SIZES)
  add('--seq_length', type=int, default=512)
  args = parser.parse_args()
  jax.config.update(
    'jax_platforms', ','.join(dict.fromkeys((args.platform, 'cpu')))
  )
  device, cpu = jax.devices()[0], jax.devices('cpu')[0]
  print(f'jax {jax.__version__}, {device.device_kind}')
  good = check_bits(device, cpu)
  good &= check_layer(device, cpu, args)
  good &= check_attention(device, cpu, args)
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
