"""BERT with a classification head, one dense layer."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import bilstm, encoder, heads
from bert_jax.ops import dropout


class Classifier(encoder.Bert):
  """Predicts one of C classes, or a number, for a text or a pair of texts.

  As in section 4.1 of the paper: the classes' logits are a product with C, the
  final vector of [CLS]. Like Google's code, C goes through the pooler, which
  next sentence prediction has trained, and through dropout. A left-to-right
  model is read at the last token, the only one that sees the whole text; a
  right-to-left model at [CLS], which is the last that it reads.

  Attributes:
    config: the model's config.
    outputs: number of classes; 1 predicts a number.
    dropout: rate before the head, rounded to 256ths.
    lstm_units: hidden size of each direction of a BiLSTM on the encoder, whose
      last states take the place of the pooler; 0 is none.
  """

  outputs: int
  dropout: float
  lstm_units: int = 0

  def setup(self):
    super().setup()
    c = self.config
    if self.lstm_units:
      self.bilstm = bilstm.BiLstm(self.lstm_units)
    else:
      self.pooler = encoder.Dense(c, (c.hidden_size,))
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
      batch: as for `encode`.
      deterministic: as for `encode`.

    Returns:
      float32 [B, C].
    """
    x, mask = self.encode(batch, deterministic), batch['input_mask']
    if self.lstm_units:
      pooled = bilstm.summarize(self.bilstm(x, mask), mask)  # [B, 2 U]
    else:
      pooled = nn.tanh(self.pooler(self._choose(x, mask)))  # [B, D]
    return self.classifier(self.drop(pooled, deterministic))

  def _choose(self, x, mask):
    """Returns the hidden state that has seen the whole text, [B, D]."""
    if self.config.causal and not self.config.reverse:
      return heads.take_last(x, mask)
    return x[:, 0]


class Spans(NamedTuple):
  """How answers are found in passages.

  Attributes:
    doc_stride: tokens between the beginnings of two windows.
    max_query_length: tokens of a question, at most.
    max_answer_length: tokens of an answer, at most.
    threshold: a question has no answer if that scores higher by more than this
      than the best one; None if every question has an answer.
  """

  doc_stride: int
  max_query_length: int
  max_answer_length: int
  threshold: float | None


class Head(NamedTuple):
  """A trained classification head, and what it was trained on.

  Attributes:
    kernel: float32 [D, C], or [2 U, C] after a BiLSTM.
    bias: float32 [C].
    labels: names of the classes; () if C is 1 and the output is a number.
    max_length: tokens of a row, at most, as asked for in training.
    columns: the text's column, and that of the second text of a pair; for
      choice, those of the text, of what all choices begin with ('' if of
      nothing) and of the choices; for tagging, the number of the words' column,
      () for the first one.
    task: what it was trained for: classification; choice, whose C is 1; or
      tagging or spans, whose model has no pooler (`tagger.Tagger`).
    bilstm: parameters of the BiLSTM before it; None without one.
    form: `bert`, or `gpt`, see `gpt_classifier.GptClassifier`.
    spans: how answers are found; None for other tasks.
  """

  kernel: np.ndarray
  bias: np.ndarray
  labels: tuple[str, ...]
  max_length: int
  columns: tuple[str, ...]
  task: str = 'classification'
  bilstm: Any = None
  form: str = 'bert'
  spans: Spans | None = None

  @property
  def lstm_units(self) -> int:
    """Returns U, the hidden size of each direction of the BiLSTM; 0 is none."""
    return 0 if self.bilstm is None else len(self.kernel) // 2

  @property
  def reads_tokens(self) -> bool:
    """Returns whether it has outputs for each token, not for a whole text."""
    return self.task in ('tagging', 'spans')

  def add_to(self, params: dict) -> dict:
    """Returns the whole model's parameters, given its encoder's."""
    names = ['embeddings', 'encoder']
    added = {'classifier': {'kernel': self.kernel, 'bias': self.bias}}
    if self.bilstm is not None:
      added['bilstm'] = self.bilstm
    elif self.form == 'gpt':
      names.append('mlm')
    elif not self.reads_tokens:
      names.append('pooler')
    return {n: params[n] for n in names} | added
