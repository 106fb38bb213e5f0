"""A BiLSTM and a classifier on a frozen model (section 5.3, table 7)."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax import errors
from bert_jax.model import bert_config, classifier, encoder

# {name: which of the L + 1 hidden states, the embeddings first}; most of table 7.
LAYERS = {
  'embeddings': slice(0, 1),
  'second_to_last': slice(-2, -1),
  'last': slice(-1, None),
  'sum_last_4': slice(-4, None),
  'weighted_sum_last_4': slice(-4, None),
  'concat_last_4': slice(-4, None),
  'weighted_sum_all': slice(1, None),
  'all': slice(None),
}


def check_layers(field: str, name: str, layers: int):
  """Raises errors.UserError if a model has too few layers for one of `LAYERS`."""
  least = -(LAYERS[name].start or 0)
  if layers < least:
    raise errors.UserError(
      f'{field}={name} needs {least} layers, the model has {layers}; use last.'
    )


class Mix(nn.Module):
  """ELMo's weighted sum of K layers of features (arXiv 1802.05365, equation 1)."""

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Returns [B, S, D] of x [B, S, K, D]: by a learnt softmax, times a scale."""
    weights = self.param('weights', nn.initializers.zeros, (x.shape[2],))
    scale = self.param('scale', nn.initializers.ones, (1,))
    return jnp.einsum('bskd,k->bsd', x, nn.softmax(weights) * scale)


def turn(config: bert_config.BertConfig) -> bert_config.BertConfig:
  """Returns the config of the model beside one: of the other direction, if any."""
  return dataclasses.replace(config, reverse=config.causal != config.reverse)


class FeatureClassifier(classifier.Headed):
  """A BiLSTM and a classifier on hidden states of a frozen model (section 5.3).

  Of two models, as ELMo has, the hidden states are concatenated; if the first
  reads one way, the second, `beside`, reads the other.
  """

  features: str = 'last'  # one of `LAYERS`
  two: bool = False

  def setup(self):
    super().setup()
    if self.two:
      self.beside = encoder.Bert(turn(self.config))
    if self.features.startswith('weighted_sum'):
      self.mix = Mix()

  def __call__(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ) -> jax.Array:
    """Computes the logits, as `classifier.Classifier` does.

    Of tokens, the BiLSTM reads each word at its first piece, where `label_weights` [B, S]
    is not 0.
    """
    x, mask = self.read(batch), batch['input_mask']
    if not self.tokens:
      x = classifier.summarise_lstm(self.bilstm(x, mask), mask)
      return self.classify(x, deterministic)
    first = batch.get('label_weights', mask) > 0
    order = jnp.argsort(~first)[..., None]  # words before all else
    x = self.bilstm(jnp.take_along_axis(x, order, 1), first)
    x = self.classify(x, deterministic)
    return jnp.take_along_axis(x, jnp.argsort(order, 1), 1)

  def read(self, batch: dict[str, jax.Array]) -> jax.Array:
    """Returns the features of each token, without a gradient, [B, S, D]."""
    found = []
    for model in (self, self.beside) if self.two else (self,):
      hidden: list[jax.Array] = []
      model.encode(batch, True, hidden=hidden)
      found.append(jnp.stack(hidden[LAYERS[self.features]], -2))
    x = jax.lax.stop_gradient(jnp.concatenate(found, -1))  # [B, S, K, D]
    if self.features.startswith('weighted_sum'):
      return self.mix(x)
    return x.reshape(*x.shape[:2], -1)
