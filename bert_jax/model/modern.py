"""What ModernBERT's body has in place of BERT's (arXiv 2412.13663, section 2.1).

Rotary positions, an MLP with a gate, and initial weights by depth. LayerNorm is
before each sublayer, nothing but the decoder has a bias, and all layers but every
third look at near tokens only: `BertConfig.window_of`.
"""

import math

import jax
import jax.numpy as jnp

from bert_jax.model import bert_config


def rotate(x: jax.Array, places: jax.Array, theta: float):
  """Turns queries or keys by their positions (RoPE, arXiv 2104.09864).

  Unit j of a head's first half and unit j of its second half are the two numbers
  that are turned together. Computed in float32.

  Args:
    x: [B, S, N, H, K].
    places: positions of the tokens, integers [B or 1, S].
    theta: radians per token fall from 1 to about 1 / theta.
  """
  half = x.shape[-1] // 2
  speeds = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
  where = places[:, :, None, None, None].astype(jnp.float32)
  angles = where * speeds.reshape(1, 1, 1, 1, half)
  cos, sin = jnp.cos(angles), jnp.sin(angles)
  a, b = jnp.split(x.astype(jnp.float32), 2, -1)
  turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
  return turned.astype(x.dtype)


@jax.custom_vjp
def gate(x: jax.Array):
  """Returns GELU(x [..., 0, F]) x [..., 1, F] (GeGLU, arXiv 2002.05202).

  GELU is x times the normal distribution's cumulative function. The gradient
  computes it again: only x is kept.
  """
  a, b = _split(x)
  return (a * _cumulate(a) * b).astype(x.dtype)


def _split(x):
  return (x[..., n, :].astype(jnp.float32) for n in range(2))


def _cumulate(a):
  # With erfc, as `jax.nn.gelu` does it, XLA for CPUs takes twice as long.
  return 0.5 + 0.5 * jax.lax.erf(a * math.sqrt(0.5))


def _gate_backward(x, gradient):
  a, b = _split(x)
  cumulated = _cumulate(a)
  density = jnp.exp(-0.5 * a * a) * (1 / math.sqrt(2 * math.pi))
  gradient = gradient.astype(jnp.float32)
  slopes = b * (cumulated + a * density), a * cumulated
  return (jnp.stack([gradient * s for s in slopes], -2).astype(x.dtype),)


gate.defvjp(lambda x: (gate(x), x), _gate_backward)


def scale_into(config: bert_config.BertConfig) -> float:
  """Returns by what to multiply initial kernels that write to the residual stream.

  ModernBERT's are smaller the deeper it is (its `full_megatron`).
  """
  return 1 / math.sqrt(2 * config.num_layers) if config.modern else 1.0
