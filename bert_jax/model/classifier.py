"""BERT with a dense layer for classes or tags, as GPT has it, or frozen."""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.model import bert_config, encoder, heads
from bert_jax.ops import dropout, tied_decoder

TAGGERS = 'tagging', 'spans'  # tasks with outputs for each token
_LSTM_LAYERS = 2
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


class BiLstm(nn.Module):
  """Two layers of LSTMs in both directions, computed in float32.

  The paper puts one on its left-to-right model (section 5.1, "+ BiLSTM"), and
  on frozen features (section 5.3), with random initial weights.
  """

  units: int  # hidden size U of each direction

  @nn.compact
  def __call__(self, x: jax.Array, input_mask: jax.Array) -> jax.Array:
    """Reads hidden states from both ends.

    Args:
      x: [B, S, D].
      input_mask: integers [B, S], 1 for tokens, which come before padding.

    Returns:
      float32 [B, S, 2 U]: left to right, then right to left. Values at padding
      mean nothing.
    """
    lengths = jnp.sum(input_mask, -1, dtype=jnp.int32)
    x = x.astype(jnp.float32)
    for i in range(_LSTM_LAYERS):
      forward, backward = (
        nn.RNN(nn.OptimizedLSTMCell(self.units, name=f'{name}_{i}'))
        for name in ('forward', 'backward')
      )
      x = nn.Bidirectional(forward, backward)(x, seq_lengths=lengths)
    return x


def summarise_lstm(x: jax.Array, input_mask: jax.Array) -> jax.Array:
  """Returns the last state of each direction, [B, 2 U], of outputs [B, S, 2 U].

  These are the state at the last token, read from left to right, and at the
  first token, read from right to left.
  """
  forward, backward = jnp.split(x, 2, -1)
  last = heads.take_last(forward, input_mask)
  return jnp.concatenate([last, backward[:, 0]], -1)


def count_lstm_flops(length: int, inputs: int, units: int) -> float:
  """Returns the matrix-product FLOPs of one row, forward + backward.

  Four gates of each direction: 6 FLOPs per weight and token.
  """
  sizes = [inputs, *[2 * units] * (_LSTM_LAYERS - 1)]
  return sum(6 * length * 8 * units * (size + units) for size in sizes)


class Headed(encoder.Bert):
  """BERT with a dense layer on some of its hidden states."""

  outputs: int  # C, number of classes or tags; 1 predicts a number
  dropout: float  # rate before the head, rounded to 256ths
  lstm_units: int = 0  # U of each direction of a BiLSTM on the encoder, if any
  tokens: bool = False  # whether it classifies each token, not the whole text

  def setup(self):
    super().setup()
    if self.lstm_units:
      self.bilstm = BiLstm(self.lstm_units)
    self.drop, c = dropout.Dropout(self.dropout), self.config
    init = c.kernel_init
    if c.modern:  # reads what LayerNorm returns
      init = bert_config.INITIALIZERS[c.initializer](c.hidden_size**-0.5)
    # In float32, like the NSP head.
    self.classifier = nn.Dense(
      self.outputs, dtype=jnp.float32, kernel_init=init
    )

  def classify(self, x: jax.Array, deterministic: bool) -> jax.Array:
    """Returns float32 logits [..., C] of x [..., D]."""
    return self.classifier(self.drop(x, deterministic))


class Classifier(Headed):
  """Predicts one of C classes, or a number, for a text or for each token.

  For a text as in section 4.1 of the paper: the classes' logits are a product
  with C, the final vector of [CLS]. Like Google's code, C goes through the
  pooler, which next sentence prediction has trained, and through dropout. A
  left-to-right model is read at the last token, the only one that sees the whole
  text; a right-to-left model at [CLS], which is the last that it reads. The last
  states of a BiLSTM take the place of the pooler. For tokens as in section 5.3,
  from their hidden states alone, without a CRF.

  The modern body has the layers of its MLM head in the pooler's place, for tokens,
  too, and may read the mean of a text's hidden states (`BertConfig.pooling`).
  """

  def setup(self):
    super().setup()
    if self.config.modern:
      self.head = heads.Transform(self.config)
    elif not (self.lstm_units or self.tokens):
      self.pooler = encoder.Dense(self.config, (self.config.hidden_size,))

  def __call__(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ) -> jax.Array:
    """Computes the logits, float32 [B, C] or, of tokens, [B, S, C]."""
    x, mask = self.encode(batch, deterministic), batch['input_mask']
    if self.lstm_units:
      x = self.bilstm(x, mask)  # [B, S, 2 U]
    if not self.tokens:
      x = self._summarise(x, mask)
    if self.config.modern:
      x = self.head.vectors(x)
    return self.classify(x, deterministic)

  def _summarise(self, x, mask):
    if self.lstm_units:
      return summarise_lstm(x, mask)  # [B, 2 U]
    if self.config.pooling == 'mean':
      read = mask[..., None].astype(jnp.float32)  # [B, S, 1]
      # Rows that fill up a batch have no tokens.
      return jnp.sum(x * read, 1) / jnp.maximum(jnp.sum(read, 1), 1)
    if self.config.modern:
      return x[:, 0]
    last = self.config.causal and not self.config.reverse
    return nn.tanh(self.pooler(heads.take_last(x, mask) if last else x[:, 0]))


class GptClassifier(Headed):
  """Predicts one of C classes, or a number, and the tokens of the text.

  As in GPT ("Improving language understanding by generative pre-training",
  section 3.2): the classes' logits are a product with the final hidden state of
  the last token, without a pooler, and the head for tokens keeps learning. The
  model is causal.
  """

  def setup(self):
    super().setup()
    self.mlm = heads.MlmHead(self.config)

  def __call__(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ) -> jax.Array:
    """Computes the logits, float32 [B, C]; args as for `encode`."""
    x = self.encode(batch, deterministic)
    if self.is_initializing():
      self.mlm.vectors(x)
    return self._classify_last(x, batch, deterministic)

  def with_tokens(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ):
    """Computes the logits, and everything before the decoder of tokens.

    Returns:
      The logits, float32 [B, C]; and (x, table, bias, label_rows) for
      `tied_decoder.sum_losses`: position i of S - 1 predicts token i + 1.
    """
    ids = batch['input_ids']
    table, words, labels = tied_decoder.look_up(
      self.config.dtype, self.embeddings.word.embedding, ids, ids[:, 1:]
    )
    x = self.encode(batch, deterministic, words)
    inputs = self.mlm.vectors(x[:, :-1]), table, self.mlm.bias, labels
    return self._classify_last(x, batch, deterministic), inputs

  def _classify_last(self, x, batch, deterministic):
    last = heads.take_last(x, batch['input_mask'])
    return self.classify(last, deterministic)


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


class FeatureClassifier(Headed):
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
    """Computes the logits, as `Classifier` does.

    Of tokens, the BiLSTM reads each word at its first piece, where `label_weights` [B, S]
    is not 0.
    """
    x, mask = self.read(batch), batch['input_mask']
    if not self.tokens:
      x = summarise_lstm(self.bilstm(x, mask), mask)
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


class Spans(NamedTuple):
  """How answers are found in passages; lengths are in tokens."""

  doc_stride: int  # between the beginnings of two windows
  max_query_length: int  # of a question, at most
  max_answer_length: int  # of an answer, at most
  # A question has no answer if [CLS] scores higher than the best answer by more
  # than this; None if every question has an answer.
  threshold: float | None


class Threshold(NamedTuple):
  """When a text has a label, of several that it may have."""

  threshold: float = 0.5  # a label's probability is above it


class Head(NamedTuple):
  """A trained classification head, and what it was trained on."""

  kernel: np.ndarray  # float32 [D, C], or [2 U, C] after a BiLSTM
  bias: np.ndarray  # float32 [C]
  labels: tuple[str, ...]  # names of the classes; () if C = 1 is a number
  max_length: int  # tokens of a row, at most, as asked for in training
  # The columns of the text and of the second text of a pair; for choice, of the
  # text, of the choices' common beginning ('' if none) and of the choices; for
  # tagging, the number of the words' column, () for the first.
  columns: tuple[str, ...]
  # classification or multi_label; choice, whose C is 1; tagging or spans,
  # without a pooler.
  task: str = 'classification'
  bilstm: Any = None  # parameters of the BiLSTM before it, if any
  form: str = 'bert'  # or 'gpt', see `GptClassifier`
  settings: Spans | Threshold | None = None  # of its predictions, if any
  transform: Any = None  # parameters of the modern body's layers before it

  @property
  def lstm_units(self) -> int:
    """Returns U, the hidden size of each direction of the BiLSTM; 0 is none."""
    return 0 if self.bilstm is None else len(self.kernel) // 2

  @property
  def reads_tokens(self) -> bool:
    """Returns whether it has outputs for each token, not for a whole text."""
    return self.task in TAGGERS

  def add_to(self, params: dict) -> dict:
    """Returns the whole model's parameters, given its encoder's."""
    names = ['embeddings', 'encoder']
    added = {'classifier': {'kernel': self.kernel, 'bias': self.bias}}
    if self.transform is not None:
      added['head'] = self.transform
    elif self.bilstm is not None:
      added['bilstm'] = self.bilstm
    elif self.form == 'gpt':
      names.append('mlm')
    elif not self.reads_tokens:
      names.append('pooler')
    return {n: params[n] for n in names} | added
