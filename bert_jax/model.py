"""BERT's encoder (arXiv 1810.04805, section 3) as Flax modules.

Sizes, here and everywhere else:
  B batch      S sequence   P predictions   V vocabulary   T segment types
  D hidden     H heads      K = D / H       F = 4 D, MLP   L layers
  N pairs of a packed row, at most
"""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

ACTIVATIONS = {
  'gelu': functools.partial(nn.gelu, approximate=False),
  'gelu_tanh': functools.partial(nn.gelu, approximate=True),
  'relu': nn.relu,
}
INITIALIZERS = {
  # jax's truncated_normal does not rescale, and neither did Google's code:
  # cut at two standard deviations, 0.02 becomes a true deviation of 0.0176.
  'truncated_normal': lambda std: nn.initializers.truncated_normal(std),
  'normal': lambda std: nn.initializers.normal(std),
}
NORMS = ('post', 'pre')


@dataclasses.dataclass(frozen=True)
class BertConfig:
  """What the model is; see `bert_jax.config` for the meaning of each field."""

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  mlp_size: int
  max_positions: int = 512
  type_vocab_size: int = 2
  dropout: float = 0.1
  attention_dropout: float = 0.1
  activation: str = 'gelu_tanh'
  norm: str = 'post'
  norm_epsilon: float = 1e-12
  initializer: str = 'truncated_normal'
  initializer_std: float = 0.02
  dtype: str = 'float32'
  mask_value: float = -10_000.0
  causal: bool = False

  @property
  def head_size(self) -> int:
    return self.hidden_size // self.num_heads

  @property
  def kernel_init(self):
    return INITIALIZERS[self.initializer](self.initializer_std)

  def flops_per_sequence(
    self, length: int, predictions: int, pairs: int = 1
  ) -> float:
    """Returns the matrix-product FLOPs of one row, forward + backward.

    6 FLOPs per weight and token; attention's two products are 12 S² D, also
    where a row holds several pairs.
    """
    s, p, d, f = length, predictions, self.hidden_size, self.mlp_size
    encoder = 6 * self.num_layers * (4 * d * d + 2 * d * f) * s
    attention = 12 * self.num_layers * d * s * s
    heads = 6 * p * (d * d + d * self.vocab_size) + 6 * pairs * d * d
    return encoder + attention + heads


class Dropout(nn.Module):
  """Drops with probability `rate`, from eight random bits per value.

  flax.linen.Dropout draws 32 bits per value; a byte is four times cheaper and
  rounds 0.1 to 26/256. What is kept is scaled by the rounded probability, so
  the expectation stays exact.
  """

  rate: float

  @nn.compact
  def __call__(self, x, deterministic: bool):
    keep = round((1 - self.rate) * 256)
    if deterministic or keep == 256:
      return x
    bits = _random_bytes(self.make_rng('dropout'), x.shape)
    return jnp.where(bits < keep, x * (256 / keep), jnp.zeros_like(x))


def _random_bytes(key, shape):
  """Returns uniform uint8 values, four from each 32-bit draw if they fit."""
  *rest, last = shape
  if last % 4:
    return jax.random.bits(key, shape, jnp.uint8)
  words = jax.random.bits(key, (*rest, last // 4), jnp.uint32)
  return jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(shape)


def _dense(config: BertConfig, features, name: str, axis=-1):
  return nn.DenseGeneral(
    features,
    axis=axis,
    dtype=config.dtype,
    kernel_init=config.kernel_init,
    name=name,
  )


def layer_norm(config: BertConfig, name: str):
  return nn.LayerNorm(
    epsilon=config.norm_epsilon, dtype=config.dtype, name=name
  )


class Embeddings(nn.Module):
  """Sums token, segment and position embeddings (figure 2)."""

  config: BertConfig

  def setup(self):
    c = self.config

    def table(rows):
      return nn.Embed(
        rows, c.hidden_size, embedding_init=c.kernel_init, dtype=c.dtype
      )

    self.word = table(c.vocab_size)
    self.position = table(c.max_positions)
    self.type = table(c.type_vocab_size)
    if c.norm == 'post':
      self.norm = layer_norm(c, None)
    self.drop = Dropout(c.dropout)

  def __call__(self, input_ids, segment_ids, positions, deterministic):
    x = self.word(input_ids) + self.type(segment_ids)  # [B, S, D]
    x = x + self.position(positions)
    if self.config.norm == 'post':
      x = self.norm(x)
    x = self.drop(x, deterministic)
    self.sow('intermediates', 'hidden', x)
    return x


def positions(batch):
  """Returns each token's place in its own pair, [1, S] or, packed, [B, S]."""
  if 'position_ids' in batch:
    return batch['position_ids']
  return jnp.arange(batch['input_ids'].shape[1])[None]


def visible(batch, causal: bool):
  """Says what attention may look at, bool [B, 1, 1 or S, S] (from, to).

  Each token sees the tokens of its row; where `sequence_ids` [B, S] say that
  the row is packed, only those of its own pair; a causal one none that follow.
  """
  mask = batch['input_mask'][:, None, None, :].astype(bool)  # [B, 1, 1, S]
  if causal:
    length = mask.shape[-1]
    mask = mask & jnp.tri(length, dtype=bool)[None, None]  # [B, 1, S, S]
  if 'sequence_ids' in batch:
    pair = batch['sequence_ids'][:, None]
    mask = mask & (pair[..., None] == pair[:, :, None])  # [B, 1, S, S]
  return mask


class SelfAttention(nn.Module):
  """Multi-head attention; query, key and value in one product."""

  config: BertConfig

  @nn.compact
  def __call__(self, x, visible, deterministic):
    c = self.config
    qkv = _dense(c, (3, c.num_heads, c.head_size), 'qkv')(x)  # [B, S, 3, H, K]
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    q = q / jnp.sqrt(c.head_size).astype(q.dtype)
    scores = jnp.einsum(
      'bqhk,bshk->bhqs', q, k, preferred_element_type=jnp.float32
    )
    # exp of -10000 is 0 in float32.
    scores = scores + jnp.where(visible, 0.0, c.mask_value)
    weights = nn.softmax(scores).astype(v.dtype)  # [B, H, S, S]
    self.sow('intermediates', 'probabilities', weights)
    weights = Dropout(c.attention_dropout)(weights, deterministic)
    mixed = jnp.einsum('bhqs,bshk->bqhk', weights, v)
    return _dense(c, c.hidden_size, 'out', axis=(-2, -1))(mixed)  # [B, S, D]


class Layer(nn.Module):
  """One Transformer block, normalised after (BERT) or before each sublayer."""

  config: BertConfig

  @nn.compact
  def __call__(self, x, visible, deterministic):
    c = self.config

    def mlp(y):
      y = _dense(c, c.mlp_size, 'mlp_in')(y)  # [B, S, F]
      return _dense(c, c.hidden_size, 'mlp_out')(ACTIVATIONS[c.activation](y))

    def attend(y):
      attention = SelfAttention(c, name='attention')
      return attention(y, visible, deterministic)

    for name, sublayer in (('attention', attend), ('mlp', mlp)):
      norm = layer_norm(c, f'{name}_norm')
      drop = Dropout(c.dropout, name=f'{name}_drop')
      if c.norm == 'post':
        x = norm(x + drop(sublayer(x), deterministic))
      else:
        x = x + drop(sublayer(norm(x)), deterministic)
    self.sow('intermediates', 'hidden', x)
    return x


class Encoder(nn.Module):
  """The L blocks."""

  config: BertConfig

  @nn.compact
  def __call__(self, x, visible, deterministic):
    c = self.config
    for i in range(c.num_layers):
      x = Layer(c, name=f'layer_{i}')(x, visible, deterministic)
    if c.norm == 'pre':
      x = layer_norm(c, 'final_norm')(x)
    return x
