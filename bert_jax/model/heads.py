"""The pre-training heads, from hidden states to logits."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model import bert_config, encoder, modern
from bert_jax.ops import tied_decoder


class Transform(nn.Module):
  """What is between the encoder and logits of words or, in ModernBERT, of classes."""

  config: bert_config.BertConfig

  def setup(self):
    c = self.config
    scale = modern.scale_into(c)
    self.transform = encoder.Dense(c, (c.hidden_size,), 1, scale)
    self.norm = encoder.make_norm(c, None)

  def vectors(self, x: jax.Array):
    """Returns the inputs [..., D] of the logits from hidden states x [..., D]."""
    activate = bert_config.ACTIVATIONS[self.config.activation]
    return self.norm(activate(self.transform(x)))


class MlmHead(Transform):
  """Predicts tokens at chosen positions with the tied word embeddings."""

  def setup(self):
    super().setup()
    shape = (self.config.vocab_rows,)
    self.bias = self.param('bias', nn.initializers.zeros, shape)

  def __call__(self, x, embedding):
    """Returns float32 logits [B, P, V] from hidden states x [B, P, D]."""
    x, size = self.vectors(x), self.config.vocab_size
    return tied_decoder.compute_logits(x, embedding, self.bias, size)


def take_last(x: jax.Array, input_mask: jax.Array):
  """Returns x [B, S, D] at the last token of each row, as [B, D]."""
  last = jnp.sum(input_mask, -1, keepdims=True) - 1
  return encoder.take_rows(x, last)[:, 0]


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
    self,
    batch: dict[str, jax.Array],
    deterministic: bool = True,
    compared: jax.Array | None = None,
  ):
    """Computes everything before the MLM decoder.

    Args:
      batch: as for `__call__`, with `masked_lm_ids` [B, P].
      compared: [C], words that the labels are compared with; None is all.

    Returns:
      (x, table, bias, label_rows) for `tied_decoder.sum_losses`, where `table`
      has the rows of `compared`, and the NSP logits.
    """
    ids = [batch['input_ids'], batch['masked_lm_ids']]
    if compared is not None:
      ids.append(compared)
    table, words, labels, *others = tied_decoder.look_up(
      self.config.dtype, self.embeddings.word.embedding, *ids
    )
    table = others[0] if others else table
    chosen, nsp = self._encode(batch, deterministic, words)
    return (self.mlm.vectors(chosen), table, self.mlm.bias, labels), nsp

  def _encode(self, batch, deterministic, words=None):
    """Returns hidden states at predictions [B, P, D], and the NSP logits."""
    masked, starts = batch['masked_lm_positions'], batch.get('cls_positions')
    if self.config.last_layer == 'predicted':
      asked = [masked]
      if self.with_nsp:
        asked += [jnp.zeros_like(masked[:, :1]) if starts is None else starts]
      x = self.encode(batch, deterministic, words, jnp.concatenate(asked, 1))
      chosen, first = jnp.split(x, [masked.shape[1]], 1)
      if self.with_nsp and starts is None:
        first = first[:, 0]
    else:
      x = self.encode(batch, deterministic, words)  # [B, S, D]
      chosen = encoder.take_rows(x, masked)  # [B, P, D]
      first = x[:, 0] if starts is None else encoder.take_rows(x, starts)
    if not self.with_nsp:
      return chosen, None
    pooled = nn.tanh(self.pooler(first))  # [B, D] or [B, N, D]
    self.sow('intermediates', 'pooled', pooled)
    return chosen, self.nsp(pooled)
