"""BERT with a classification head: the pooled [CLS], then one dense layer."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import attention, bert_config, encoder
from bert_jax.ops import dropout


class Classifier(nn.Module):
  """Predicts one of C classes, or a number, for a text or a pair of texts.

  As in section 4.1 of the paper: the classes' logits are a product with C, the
  final vector of [CLS]. Like Google's code, C goes through the pooler, which
  next sentence prediction has trained, and through dropout.

  Attributes:
    config: the model's config.
    outputs: number of classes; 1 predicts a number.
    dropout: rate between pooler and head, rounded to 256ths.
  """

  config: bert_config.BertConfig
  outputs: int
  dropout: float

  def setup(self):
    c = self.config
    self.embeddings = encoder.Embeddings(c)
    self.encoder = encoder.Encoder(c)
    self.pooler = nn.Dense(
      c.hidden_size, dtype=c.dtype, kernel_init=c.kernel_init
    )
    self.drop = dropout.Dropout(self.dropout)
    # In float32, like the NSP head.
    self.classifier = nn.Dense(
      self.outputs, dtype=jnp.float32, kernel_init=c.kernel_init
    )

  def __call__(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ) -> jax.Array:
    """Computes the logits.

    Args:
      batch: `input_ids`, `input_mask`, `segment_ids`, integers [B, S];
        input_mask is 1 for tokens.
      deterministic: True turns dropout off; otherwise apply needs the random
        stream `dropout`.

    Returns:
      float32 [B, C].
    """
    x = self.embeddings(
      batch['input_ids'],
      batch['segment_ids'],
      encoder.get_positions(batch),
      deterministic,
    )
    tokens = attention.get_tokens(batch)
    x = self.encoder(x, tokens, deterministic)  # [B, S, D]
    pooled = nn.tanh(self.pooler(x[:, 0]))  # [B, D]
    return self.classifier(self.drop(pooled, deterministic))


class Head(NamedTuple):
  """A trained classification head, and what it was trained on.

  Attributes:
    kernel: float32 [D, C].
    bias: float32 [C].
    labels: names of the classes; () if C is 1 and the output is a number.
    max_length: tokens of the rows it was trained on, at most.
    columns: the text's column, and that of the second text of a pair.
    task: what it was trained for: classification, or tagging, whose model has
      no pooler (`tagger.Tagger`).
  """

  kernel: np.ndarray
  bias: np.ndarray
  labels: tuple[str, ...]
  max_length: int
  columns: tuple[str, ...]
  task: str = 'classification'

  def add_to(self, params: dict) -> dict:
    """Returns the whole model's parameters, from those of its encoder."""
    names = ['embeddings', 'encoder']
    if self.task != 'tagging':
      names.append('pooler')
    head = {'kernel': self.kernel, 'bias': self.bias}
    return {n: params[n] for n in names} | {'classifier': head}
