"""The model's config: sizes, variants, and how it is computed."""

import dataclasses
import functools
import math

import flax.linen as nn
import jax

from bert_jax.ops import elementwise

ACTIVATIONS = {
  'gelu': functools.partial(nn.gelu, approximate=False),
  'gelu_tanh': elementwise.gelu_tanh,
  'relu': nn.relu,
}
INITIALIZERS = {
  'truncated_normal': nn.initializers.truncated_normal,
  'normal': nn.initializers.normal,
}
# Like Google's code, jax's truncated_normal does not rescale: truncated at two
# standard deviations, 0.02 has a standard deviation of 0.0176.
_DEVIATIONS = {'truncated_normal': 0.8796, 'normal': 1.0}
# Initial weights of attention: random, like all other matrices; values and outputs
# wider; and, too, a first layer that looks at neighbouring tokens. The last two are
# in `initial_attention`.
ATTENTION_INITS = ('neighbours', 'wide', 'random')
NORMS = ('post', 'pre')
BODIES = ('classic', 'modern')
# What a block keeps for the backward pass: all; results of products with
# weights; its input only.
REMAT = {
  'none': None,
  'products': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  'layer': jax.checkpoint_policies.nothing_saveable,
}


@dataclasses.dataclass(frozen=True)
class BertConfig:
  """The model's config; `bert_jax.config` has the meaning of each field."""

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
  body: str = 'classic'  # BERT's, or ModernBERT's (`modern`)
  norm: str = 'post'
  norm_epsilon: float = 1e-12
  initializer: str = 'truncated_normal'
  initializer_std: float = 0.02
  attention_init: str = 'random'
  dtype: str = 'float32'
  mask_value: float = -10_000.0
  causal: bool = False  # tokens do not see later ones
  reverse: bool = False  # with causal: they do not see earlier ones instead
  # Of the modern body, see `window_of` and `theta_of`.
  window: int = 128
  global_every: int = 3
  rope_theta: float = 10_000.0
  local_rope_theta: float = 10_000.0
  pooling: str = 'cls'  # or 'mean': what of a text its head for classes reads
  # How it is computed:
  vocab_multiple: int = 1
  attention: str = 'xla'
  separate_heads: bool = False  # kernels have axes H and K in products
  flat_rows: bool = False  # products are of [B S, D], not of [B, S, D]
  remat: str = 'none'
  last_layer: str = 'all'  # or 'predicted': only where a head reads it

  @property
  def vocab_rows(self) -> int:
    """Returns the number of rows of the word embeddings, padding included."""
    multiple = self.vocab_multiple
    return math.ceil(self.vocab_size / multiple) * multiple

  @property
  def head_size(self) -> int:
    return self.hidden_size // self.num_heads

  @property
  def modern(self) -> bool:
    return self.body == 'modern'

  def window_of(self, layer: int) -> int | None:
    """Returns how many tokens away a layer looks, at most; None is any."""
    if not self.modern or layer % self.global_every == 0:
      return None
    return self.window // 2

  def theta_of(self, layer: int) -> float:
    """Returns the base of a layer's rotary wavelengths."""
    if self.window_of(layer) is None:
      return self.rope_theta
    return self.local_rope_theta

  @property
  def kind(self) -> str:
    """Returns `objective.kind` of such a model: mlm, ltr or rtl."""
    if not self.causal:
      return 'mlm'
    return 'rtl' if self.reverse else 'ltr'

  @property
  def target_offset(self) -> int:
    """Returns the offset from a hidden state to the token that it predicts."""
    return self.causal - 2 * self.reverse

  @property
  def kernel_init(self):
    return INITIALIZERS[self.initializer](self.initializer_std)

  @property
  def kernel_std(self) -> float:
    """Returns the standard deviation of what `kernel_init` draws."""
    return self.initializer_std * _DEVIATIONS[self.initializer]

  def flops_per_sequence(
    self, length: int, predictions: int, pairs: int = 1
  ) -> float:
    """Returns the matrix-product FLOPs of one row, forward + backward.

    6 FLOPs per weight and token, and 12 S² D per layer for attention's two
    products, also in packed rows; in a window, 12 S D times its tokens.
    """
    s, p, d = length, predictions, self.hidden_size
    mlp = (3 if self.modern else 2) * d * self.mlp_size
    encoder = 6 * self.num_layers * (4 * d * d + mlp) * s
    windows = [self.window_of(i) for i in range(self.num_layers)]
    seen = [s if w is None else min(2 * w + 1, s) for w in windows]
    attention = 12 * d * s * sum(seen)
    heads = 6 * p * (d * d + d * self.vocab_size)
    heads += 0 if self.modern else 6 * pairs * d * d
    if self.last_layer == 'predicted':  # keys and values of all tokens
      left_out = max(s - p - pairs, 0)
      encoder -= 6 * (2 * d * d + mlp) * left_out
      attention -= 12 * d * seen[-1] * left_out
    return encoder + attention + heads
