"""BERT with a tag for each token (arXiv 1810.04805, section 5.3)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model import bilstm, encoder
from bert_jax.ops import dropout


class Tagger(encoder.Bert):
  """Predicts a tag for each token from its hidden state alone, without a CRF.

  Attributes:
    config: the model's config.
    outputs: number of tags.
    dropout: rate before the head, rounded to 256ths.
    lstm_units: hidden size of each direction of a BiLSTM on the encoder; 0 is
      none.
  """

  outputs: int
  dropout: float
  lstm_units: int = 0

  def setup(self):
    super().setup()
    if self.lstm_units:
      self.bilstm = bilstm.BiLstm(self.lstm_units)
    self.drop = dropout.Dropout(self.dropout)
    # In float32, like the other heads.
    self.classifier = nn.Dense(
      self.outputs, dtype=jnp.float32, kernel_init=self.config.kernel_init
    )

  def __call__(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ) -> jax.Array:
    """Computes the logits.

    Args: as `classifier.Classifier`.

    Returns:
      float32 [B, S, C].
    """
    x = self.encode(batch, deterministic)
    if self.lstm_units:
      x = self.bilstm(x, batch['input_mask'])  # [B, S, 2 U]
    return self.classifier(self.drop(x, deterministic))
