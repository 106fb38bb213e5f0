"""The model trained on a model's frozen features (section 5.3, table 7)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model import bert_config, classifier
from bert_jax.ops import dropout

# {name: which of the L + 1 hidden states, the embeddings first}.
LAYERS = {
  'embeddings': slice(0, 1),
  'second_to_last': slice(-2, -1),
  'last': slice(-1, None),
  'weighted_sum_last_4': slice(-4, None),
  'concat_last_4': slice(-4, None),
  'weighted_sum_all': slice(1, None),
}


def list_layers(features: str, num_layers: int) -> tuple[int, ...]:
  """Returns the numbers of the hidden states of `LAYERS`, 0 the embeddings."""
  return tuple(range(num_layers + 1)[LAYERS[features]])


class Mix(nn.Module):
  """Joins K layers of features into one vector per token.

  A weighted sum is ELMo's (arXiv 1802.05365, equation 1): softmax of
  learnt weights, times a learnt scale.
  """

  features: str  # one of `LAYERS`

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Returns [B, S, D], or [B, S, K D] if concatenated, of x [B, S, K, D]."""
    b, s, k, d = x.shape
    if not self.features.startswith('weighted_sum'):
      return x.reshape(b, s, k * d)
    weights = self.param('weights', nn.initializers.zeros, (k,))
    scale = self.param('scale', nn.initializers.ones, (1,))
    return jnp.einsum('bskd,k->bsd', x, nn.softmax(weights) * scale)


class FeatureModel(nn.Module):
  """A BiLSTM and a classifier, for each token or for the whole text."""

  config: bert_config.BertConfig
  # As in `classifier.Classifier`.
  outputs: int
  dropout: float
  lstm_units: int
  features: str  # one of `LAYERS`
  shape: tuple[int, int]  # K, D of the features of a token
  tokens: bool  # whether it classifies each token

  def setup(self):
    self.mix = Mix(self.features)
    self.bilstm = classifier.BiLstm(self.lstm_units)
    self.drop = dropout.Dropout(self.dropout)
    self.classifier = nn.Dense(
      self.outputs, dtype=jnp.float32, kernel_init=self.config.kernel_init
    )

  def __call__(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ) -> jax.Array:
    """Computes the logits, float32 [B, S, C] or, for whole texts, [B, C].

    Args:
      batch: `features`, float32 [B, S, K, D], and `input_mask`, integers
        [B, S], 1 for tokens.
      deterministic: as in `encoder.Bert.encode`.
    """
    x = self.bilstm(self.mix(batch['features']), batch['input_mask'])
    if not self.tokens:
      x = classifier.summarise_lstm(x, batch['input_mask'])
    return self.classifier(self.drop(x, deterministic))


def init(module: FeatureModel, key: jax.Array):
  """Returns new parameters."""
  batch = {
    'features': jnp.zeros((1, 8, *module.shape)),
    'input_mask': jnp.ones((1, 8), jnp.int32),
  }
  return module.init(key, batch)['params']
