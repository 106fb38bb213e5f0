"""A language model that classifies by its last token, as GPT does."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model import encoder, heads
from bert_jax.ops import dropout, embedding_rows


class GptClassifier(encoder.Bert):
  """Predicts one of C classes, or a number, and the tokens of the text.

  As in GPT ("Improving language understanding by generative pre-training",
  section 3.2): the classes' logits are a product with the final hidden state of
  the last token, without a pooler, and the head for tokens goes on learning.

  Attributes:
    config: the model's config, which is causal.
    outputs: number of classes; 1 predicts a number.
    dropout: rate before the head, rounded to 256ths.
  """

  outputs: int
  dropout: float

  def setup(self):
    super().setup()
    c = self.config
    self.mlm = heads.MlmHead(c)
    self.drop = dropout.Dropout(self.dropout)
    self.classifier = nn.Dense(
      self.outputs, dtype=jnp.float32, kernel_init=c.kernel_init
    )

  def __call__(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ) -> jax.Array:
    """Computes the logits; args and returns as `classifier.Classifier`."""
    x = self.encode(batch, deterministic)
    if self.is_initializing():
      self.mlm.vectors(x)
    return self._classify(x, batch, deterministic)

  def with_tokens(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ):
    """Computes the logits, and everything before the decoder of tokens.

    Returns:
      The logits, float32 [B, C]; and (x, table, bias, label_rows) for
      `tied_decoder.sum_losses`: position i of S - 1 predicts token i + 1.
    """
    ids = batch['input_ids']
    table, words, labels = embedding_rows.look_up(
      self.embeddings.word.embedding, ids, ids[:, 1:]
    )
    x = self.encode(batch, deterministic, words)
    inputs = self.mlm.vectors(x[:, :-1]), table, self.mlm.bias, labels
    return self._classify(x, batch, deterministic), inputs

  def _classify(self, x, batch, deterministic):
    last = heads.take_last(x, batch['input_mask'])
    return self.classifier(self.drop(last, deterministic))
