"""Times attention alone on a GPU: our kernels, XLA's and cuDNN's.

  python benchmarks/measure/gpu_attention.py
  python benchmarks/measure/gpu_attention.py --heads=12 --tokens=32768

Heads of 64, bfloat16, no padding; for each length as many rows as make --tokens.
Times are microseconds of one call in a loop of 20, the least of --rounds; with
dropout of 0.1 they include drawing what is kept. The backward pass is the time of
both directions less that of the forward one; in our kernels it includes the
gradients of the biases. cuDNN's attention (`jax.nn.dot_product_attention`) has no
biases and no dropout that a resumed run repeats, so it is timed without.
"""

import argparse
import time

import jax
import jax.numpy as jnp

from bert_jax.model import attention, bert_config

SIZE, RATE, CALLS = 64, 0.1, 20
# (implementation, dropout), in the order of the table.
WAYS = (
  *(('flash', RATE), ('xla', RATE), ('recompute', RATE)),
  *(('flash', 0.0), ('cudnn', 0.0)),
)


def make_attention(way, rate, heads):
  """Returns attend(qkv, bias, key), of [B, S, 3, H, K] and [3, H, K]."""
  c = bert_config.BertConfig(
    *(30522, heads * SIZE, 1, heads, 4 * heads * SIZE),
    attention=way,
    attention_dropout=rate,
    dtype='bfloat16',
    flat_rows=True,
  )

  def attend(qkv, bias, key):
    if way == 'cudnn':
      parts = (qkv[:, :, n] for n in range(3))
      return jax.nn.dot_product_attention(*parts, implementation='cudnn')
    tokens = attention.Tokens(jnp.ones(qkv.shape[:2], jnp.int32))
    return attention.attend(qkv, bias, tokens, key if rate else None, c)

  return attend


def measure(step, arrays, rounds):
  """Returns the microseconds of step(*arrays, key) in a loop, at the least."""

  def call(before, key):
    # Depends on the call before, so that none is moved out of the loop.
    own, _ = jax.lax.optimization_barrier((arrays, before[0].ravel()[0]))
    return jax.tree.leaves(step(*own, key)), None

  @jax.jit
  def loop():
    first, *rest = jax.random.split(jax.random.key(0, impl='rbg'), CALLS)
    found = jax.tree.leaves(step(*arrays, first))
    return jax.lax.scan(call, found, jnp.stack(rest))[0]

  jax.block_until_ready(loop())  # compiles
  seconds = []
  for _ in range(rounds):
    start = time.perf_counter()
    jax.block_until_ready(loop())
    seconds.append(time.perf_counter() - start)
  return min(seconds) / CALLS * 1e6


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--lengths', type=int, nargs='+', default=[128, 512])
  add('--heads', type=int, default=16)
  add('--tokens', type=int, default=16384)
  add('--rounds', type=int, default=7)
  args = parser.parse_args()
  print(f'{jax.devices()[0].device_kind}, jax {jax.__version__}')
  print('| length | attention | dropout | forward us | backward us |')
  print('|---|---|---|---|---|')
  for length in args.lengths:
    shape = args.tokens // length, length, 3, args.heads, SIZE
    qkv, grad = (
      jax.random.normal(jax.random.key(i), shape, 'bfloat16') for i in (1, 2)
    )
    bias = jnp.zeros(shape[2:], 'bfloat16')
    for way, rate in WAYS:
      attend = make_attention(way, rate, args.heads)

      def both(qkv, bias, grad, key, attend=attend):
        out, pull = jax.vjp(lambda *x: attend(*x, key), qkv, bias)
        return pull(grad), out

      forward = measure(attend, (qkv, bias), args.rounds)
      whole = measure(both, (qkv, bias, grad[:, :, 0]), args.rounds)
      print(
        f'| {length} | {way} | {rate} | {forward:.0f} | {whole - forward:.0f} |',
        flush=True,
      )


if __name__ == '__main__':
  main()
