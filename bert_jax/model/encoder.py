"""BERT's encoder (arXiv 1810.04805, section 3) as Flax modules.

What ModernBERT's body (arXiv 2412.13663) has instead is in `modern`.

Sizes, here and everywhere else:
  B batch      S sequence   P predictions   V vocabulary   T segment types
  D hidden     H heads      K = D / H       F = 4 D, MLP   L layers
  N pairs of a packed row, at most            R positions that a head reads
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model import attention, bert_config, modern
from bert_jax.ops import (
  dropout,
  dropout_rate,
  early_sums,
  layer_norm,
  tied_decoder,
)
from bert_jax.ops.elementwise import add_bias


class Dense(nn.Module):
  """A dense layer: kernel [inputs, features] and, in BERT, bias [features]."""

  config: bert_config.BertConfig
  features: tuple[int, ...]  # sizes of the output's last axes
  inputs: int = 1  # number of the input's last axes to contract
  scale: float = 1.0  # of the initial kernel

  @nn.compact
  def __call__(self, x):
    return self.add(*self.product(x))

  def add(self, x: jax.Array, bias: jax.Array | None):
    """Returns what `product` returns, added."""
    return x if bias is None else add_bias(x, bias, self.config.flat_rows)

  @nn.compact
  def product(self, x: jax.Array, part: slice | None = None):
    """Returns (x kernel, bias), not added, of a part of the features' axis 0.

    The bias is None in the modern body.
    """
    c, kept = self.config, x.ndim - self.inputs
    shape = (*x.shape[kept:], *self.features)
    size = math.prod(self.features)

    def init(key, shape):
      flat = math.prod(shape[: self.inputs]), size
      new = c.kernel_init(key, flat, jnp.float32).reshape(shape)
      return new if self.scale == 1 else self.scale * new

    kernel, bias = self.param('kernel', init, shape).astype(c.dtype), None
    if not c.modern:
      bias = self.param('bias', nn.initializers.zeros, self.features)
    if part is not None:
      kernel = kernel[(slice(None),) * self.inputs + (part,)]
      bias = None if bias is None else bias[part]
      size = math.prod(kernel.shape[self.inputs :])
    x = x.astype(c.dtype)
    if c.separate_heads:
      y = jnp.tensordot(x, kernel, self.inputs)
    else:
      rows = (-1,) if c.flat_rows else x.shape[:kept]
      flat = x.reshape(*rows, math.prod(x.shape[kept:]))
      y = flat @ kernel.reshape(-1, size)
      y = y.reshape(*x.shape[:kept], *kernel.shape[self.inputs :])
    return y, bias


def make_norm(config: bert_config.BertConfig, name: str | None):
  return layer_norm.LayerNorm(
    config.norm_epsilon, config.dtype, not config.modern, name=name
  )


def _init_words(config: bert_config.BertConfig):
  """Returns the initializer of word embeddings; padding rows are zeros."""

  def init(key, shape, dtype):
    words = config.kernel_init(key, (config.vocab_size, shape[1]), dtype)
    return jnp.pad(words, ((0, shape[0] - config.vocab_size), (0, 0)))

  return init


class Embeddings(nn.Module):
  """Sums token, segment and position embeddings (figure 2).

  In the modern body, attention knows the positions, and there are no segments.
  """

  config: bert_config.BertConfig

  def setup(self):
    c = self.config

    def table(rows, init=c.kernel_init):
      return nn.Embed(rows, c.hidden_size, embedding_init=init)

    self.word = table(c.vocab_rows, _init_words(c))
    if not c.modern:
      self.position = table(c.max_positions)
      self.type = table(c.type_vocab_size)
    self.norm = make_norm(c, None)
    self.drop = dropout.Dropout(c.dropout)

  def __call__(self, words, segment_ids, positions, deterministic):
    """Computes hidden states from the tokens' embeddings [B, S, D], float32."""
    if self.config.modern:
      return self.norm(words)
    x = words + self.type(segment_ids) + self.position(positions)
    return self.drop(self.norm(x), deterministic)


def take_rows(x: jax.Array, positions: jax.Array | None):
  """Returns x [B, S, D] at positions [B, R], as [B, R, D]; None is all.

  Computed as a product with a one-hot matrix, which is exact: the gradient of a
  gather would be a scatter, which is sequential on TPUs.
  """
  if positions is None:
    return x
  chosen = jax.nn.one_hot(positions, x.shape[1], dtype=x.dtype)
  return jnp.einsum('bps,bsd->bpd', chosen, x, precision='highest')


class SelfAttention(nn.Module):
  """Multi-head attention; queries, keys and values come from one product."""

  config: bert_config.BertConfig
  layer: int = 0

  @nn.compact
  def __call__(self, x, tokens, deterministic, positions=None, places=None):
    c, window = self.config, self.config.window_of(self.layer)
    turn = functools.partial(modern.rotate, theta=c.theta_of(self.layer))
    project = Dense(c, (3, c.num_heads, c.head_size), name='qkv')
    drops = dropout_rate.count_kept(c.attention_dropout) < 256
    key = None if deterministic or not drops else self.make_rng('dropout')
    sow = functools.partial(self.sow, 'intermediates', 'probabilities')
    if positions is None:
      qkv, bias = project.product(x)  # [B, S, 3, H, K], [3, H, K]
      if c.modern:
        qkv = jnp.concatenate([turn(qkv[:, :, :2], places), qkv[:, :, 2:]], 2)
      # [B, S, H, K]
      mixed = attention.attend(qkv, bias, tokens, key, c, sow, window)
    else:
      asking = take_rows(x, positions)
      # [B, R, 1, H, K] and [B, S, 2, H, K]
      q = project.add(*project.product(asking, slice(1)))
      kv = project.add(*project.product(x, slice(1, 3)))
      if c.modern:
        whole = jnp.broadcast_to(places, x.shape[:2])
        q = turn(q, jnp.take_along_axis(whole, positions, 1))
        kv = jnp.concatenate([turn(kv[:, :, :1], places), kv[:, :, 1:]], 2)
      mixed = attention.attend_from(
        q, kv, positions, tokens, key, c, sow, window
      )
    out = Dense(c, (c.hidden_size,), 2, modern.scale_into(c), name='out')
    return out(mixed)  # [B, S or R, D]


class Layer(nn.Module):
  """A Transformer block with LayerNorm after (BERT) or before each sublayer."""

  config: bert_config.BertConfig
  index: int = 0

  @nn.compact
  def __call__(self, x, tokens, deterministic, positions=None, places=None):
    """Computes hidden states [B, S, D], or [B, R, D] at positions [B, R]."""
    c = self.config

    def mlp(y):
      sizes = (2, c.mlp_size) if c.modern else (c.mlp_size,)
      y = Dense(c, sizes, name='mlp_in')(y)
      if c.modern:
        y = modern.gate(y)
      else:
        y = bert_config.ACTIVATIONS[c.activation](y)
      scale = modern.scale_into(c)
      return Dense(c, (c.hidden_size,), 1, scale, name='mlp_out')(y)

    def attend(y):
      return SelfAttention(c, self.index, name='attention')(
        y, tokens, deterministic, positions, places
      )

    for name, sublayer in (('attention', attend), ('mlp', mlp)):
      norm, rate = make_norm(c, f'{name}_norm'), c.dropout
      if c.modern and name == 'mlp':
        rate = 0.0
      elif c.modern and self.index == 0:  # the embeddings are normalised
        norm = jnp.asarray
      drop = dropout.Dropout(rate, name=f'{name}_drop')
      kept = take_rows(x, positions) if name == 'attention' else x
      if c.norm == 'post':
        x = norm(kept + drop(sublayer(x), deterministic))
      else:
        x = kept + drop(sublayer(norm(x)), deterministic)
    return x


class Encoder(nn.Module):
  """The stack of L Transformer blocks."""

  config: bert_config.BertConfig

  @nn.compact
  def __call__(
    self, x, tokens, deterministic, positions=None, hidden=None, places=None
  ):
    """Computes hidden states [B, S, D], or [B, R, D] at positions [B, R].

    A list `hidden` gets x and what each layer returns. The tokens' places
    [B or 1, S] are for the modern body.
    """
    c, layer, hidden = self.config, Layer, [] if hidden is None else hidden
    hidden.append(x)
    if c.remat != 'none':
      policy = bert_config.REMAT[c.remat]
      layer = nn.remat(Layer, static_argnums=(3,), policy=policy)
    turn = jnp.zeros(())
    for i in range(c.num_layers):
      name = f'layer_{i}'
      asked = positions if i == c.num_layers - 1 else None
      params, kind = self.variables.get('params', {}), layer
      x, turn, own = early_sums.enter(x, turn, params, name)
      if own is not None:
        new = {'params': own}
        kind = nn.map_variables(layer, 'params', lambda _, new=new: new)
      x = kind(c, i, name=name)(x, tokens, deterministic, asked, places)
      hidden.append(x)
    if c.norm == 'pre':
      x = hidden[-1] = make_norm(c, 'final_norm')(x)
    return x


class Bert(nn.Module):
  """Embeddings and encoder, the base of the models with heads."""

  config: bert_config.BertConfig

  def setup(self):
    self.embeddings = Embeddings(self.config)
    self.encoder = Encoder(self.config)

  def encode(
    self,
    batch: dict[str, jax.Array],
    deterministic: bool,
    words: jax.Array | None = None,
    positions: jax.Array | None = None,
    hidden: list[jax.Array] | None = None,
  ):
    """Computes the hidden states of the last layer, [B, S, D].

    Args:
      batch: `input_ids`, `input_mask`, `segment_ids`, integers [B, S];
        input_mask is 1 for tokens. Packed rows have more, see `heads`.
      deterministic: True turns dropout off; otherwise apply needs the random
        stream `dropout`.
      words: the embeddings of `input_ids`, if they were looked up already,
        float32 [B, S, D].
      positions: [B, R], where hidden states are wanted, as [B, R, D]; the last
        layer computes no others. None is everywhere.
      hidden: gets the embeddings and each layer's hidden states, L + 1 arrays
        [B, S, D].
    """
    if words is None:
      table, dtype = self.embeddings.word.embedding, self.config.dtype
      _, words = tied_decoder.look_up(dtype, table, batch['input_ids'])
    places = batch.get('position_ids')  # of packed rows, [B, S]
    if places is None:
      places = jnp.arange(words.shape[1])[None]
    x = self.embeddings(words, batch['segment_ids'], places, deterministic)
    tokens = attention.Tokens(batch['input_mask'], batch.get('sequence_ids'))
    turned = places if self.config.modern else None
    return self.encoder(x, tokens, deterministic, positions, hidden, turned)
