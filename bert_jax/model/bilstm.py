"""A bidirectional LSTM between an encoder and a head.

The paper puts one on its left-to-right model (section 5.1, "+ BiLSTM"), and on
frozen features (section 5.3): two layers, randomly initialised.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model import heads

LAYERS = 2


class BiLstm(nn.Module):
  """Two layers of LSTMs in both directions, computed in float32.

  Attributes:
    units: hidden size U of each direction.
  """

  units: int

  @nn.compact
  def __call__(self, x: jax.Array, input_mask: jax.Array) -> jax.Array:
    """Reads hidden states from both ends.

    Args:
      x: [B, S, D].
      input_mask: integers [B, S], 1 for tokens, which come before padding.

    Returns:
      float32 [B, S, 2 U]: left to right, then right to left. Values at padding
      mean nothing.
    """
    lengths = jnp.sum(input_mask, -1, dtype=jnp.int32)
    x = x.astype(jnp.float32)
    for i in range(LAYERS):
      forward, backward = (
        nn.RNN(nn.OptimizedLSTMCell(self.units, name=f'{name}_{i}'))
        for name in ('forward', 'backward')
      )
      x = nn.Bidirectional(forward, backward)(x, seq_lengths=lengths)
    return x


def summarize(x: jax.Array, input_mask: jax.Array) -> jax.Array:
  """Returns the last state of each direction, [B, 2 U], of outputs [B, S, 2 U].

  That is the state at the last token from left to right, and at the first token
  from right to left.
  """
  forward, backward = jnp.split(x, 2, -1)
  last = heads.take_last(forward, input_mask)
  return jnp.concatenate([last, backward[:, 0]], -1)


def flops_per_sequence(length: int, inputs: int, units: int) -> float:
  """Returns the matrix-product FLOPs of one row, forward + backward.

  Four gates of each direction: 6 FLOPs per weight and token.
  """
  sizes = [inputs, *[2 * units] * (LAYERS - 1)]
  return sum(6 * length * 8 * units * (size + units) for size in sizes)
