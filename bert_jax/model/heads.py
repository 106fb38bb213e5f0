"""The pre-training heads, from hidden states to logits."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model import bert_config, encoder
from bert_jax.ops import tied_decoder


class MlmHead(nn.Module):
  """Predicts tokens at chosen positions with the tied word embeddings."""

  config: bert_config.BertConfig

  def setup(self):
    c = self.config
    self.transform = encoder.Dense(c, (c.hidden_size,))
    self.norm = encoder.layer_norm(c, None)
    self.bias = self.param('bias', nn.initializers.zeros, (c.vocab_rows,))

  def vectors(self, x: jax.Array):
    """Returns the decoder's inputs [B, P, D] from hidden states x [B, P, D]."""
    activate = bert_config.ACTIVATIONS[self.config.activation]
    return self.norm(activate(self.transform(x)))

  def __call__(self, x, embedding):
    """Returns float32 logits [B, P, V] from hidden states x [B, P, D]."""
    x, size = self.vectors(x), self.config.vocab_size
    return tied_decoder.compute_logits(x, embedding, self.bias, size)


def _rows(x, positions):
  """Returns x [B, S, D] at positions [B, P], as [B, P, D].

  Computed as a product with a one-hot matrix, which is exact: the gradient of a
  gather would be a scatter, which is sequential on TPUs.
  """
  chosen = jax.nn.one_hot(positions, x.shape[1], dtype=x.dtype)
  return jnp.einsum('bps,bsd->bpd', chosen, x, precision='highest')


def take_last(x: jax.Array, input_mask: jax.Array):
  """Returns x [B, S, D] at the last token of each row, as [B, D]."""
  last = jnp.sum(input_mask, -1, keepdims=True) - 1
  return _rows(x, last)[:, 0]


class PretrainingModel(encoder.Bert):
  """BERT with its pre-training heads (section 3.1)."""

  with_nsp: bool = True

  def setup(self):
    super().setup()
    c = self.config
    self.mlm = MlmHead(c)
    if self.with_nsp:
      self.pooler = encoder.Dense(c, (c.hidden_size,))
      self.nsp = nn.Dense(2, dtype=jnp.float32, kernel_init=c.kernel_init)

  def __call__(self, batch, deterministic: bool = True):
    """Computes the logits.

    Args:
      batch: as for `encode`, with `masked_lm_positions` [B, P], integers.
        Packed rows also have `sequence_ids` [B, S] (0 for padding, k + 1 in
        pair k), `position_ids` [B, S] (from 0 in each pair) and
        `cls_positions` [B, N].

    Returns:
      (mlm, nsp), float32 logits: [B, P, V]; and [B, 2] or, for packed rows,
      [B, N, 2], None without NSP. NSP class 1 means a random second text.
    """
    chosen, nsp = self._encode(batch, deterministic)
    return self.mlm(chosen, self.embeddings.word.embedding), nsp

  def before_decoder(
    self, batch: dict[str, jax.Array], deterministic: bool = True
  ):
    """Computes everything before the MLM decoder.

    Args:
      batch: as for `__call__`, with `masked_lm_ids` [B, P].

    Returns:
      (x, table, bias, label_rows) for `tied_decoder.sum_losses`, and the NSP
      logits.
    """
    ids = batch['input_ids'], batch['masked_lm_ids']
    table, words, labels = tied_decoder.look_up(
      self.embeddings.word.embedding, *ids
    )
    chosen, nsp = self._encode(batch, deterministic, words)
    return (self.mlm.vectors(chosen), table, self.mlm.bias, labels), nsp

  def _encode(self, batch, deterministic, words=None):
    """Returns hidden states at predictions [B, P, D], and the NSP logits."""
    x = self.encode(batch, deterministic, words)  # [B, S, D]
    chosen = _rows(x, batch['masked_lm_positions'])  # [B, P, D]
    if not self.with_nsp:
      return chosen, None
    first = x[:, 0]  # [B, D]
    if 'cls_positions' in batch:
      first = _rows(x, batch['cls_positions'])  # [B, N, D]
    pooled = nn.tanh(self.pooler(first))
    self.sow('intermediates', 'pooled', pooled)
    return chosen, self.nsp(pooled)
