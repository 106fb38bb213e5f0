"""The heads that turn the encoder's vectors into logits."""

import flax.linen as nn
import jax.numpy as jnp

from bert_jax import model


class MlmHead(nn.Module):
  """Predicts tokens at chosen positions with the tied word embeddings."""

  config: model.BertConfig

  @nn.compact
  def __call__(self, x, embedding):
    """Returns float32 logits [B, P, V] of vectors x [B, P, D]."""
    c = self.config
    x = nn.Dense(
      c.hidden_size,
      dtype=c.dtype,
      kernel_init=c.kernel_init,
      name='transform',
    )(x)
    x = model.layer_norm(c, 'norm')(model.ACTIVATIONS[c.activation](x))
    bias = self.param('bias', nn.initializers.zeros, (c.vocab_size,))
    # Rounded to bfloat16, every thirtieth row of logits would tie at its top.
    logits = jnp.einsum(
      'bpd,vd->bpv',
      x,
      embedding.astype(x.dtype),
      preferred_element_type=jnp.float32,
    )
    return logits + bias[None, None]


class PretrainingModel(nn.Module):
  """BERT with its pre-training heads (section 3.1)."""

  config: model.BertConfig
  with_nsp: bool = True

  def setup(self):
    c = self.config
    self.embeddings = model.Embeddings(c)
    self.encoder = model.Encoder(c)
    self.mlm = MlmHead(c)
    if self.with_nsp:
      self.pooler = nn.Dense(
        c.hidden_size, dtype=c.dtype, kernel_init=c.kernel_init
      )
      self.nsp = nn.Dense(2, dtype=jnp.float32, kernel_init=c.kernel_init)

  def __call__(self, batch, deterministic: bool = True):
    """Computes the logits.

    Args:
      batch: `input_ids`, `input_mask`, `segment_ids` [B, S] and
        `masked_lm_positions` [B, P], integers; input_mask is 1 on tokens.
        Rows of several pairs also have `sequence_ids` (0 on padding, k + 1 in
        pair k), `position_ids` (from 0 in each pair) [B, S] and
        `cls_positions` [B, N].
      deterministic: True turns dropout off; otherwise the `dropout` stream of
        random numbers is needed.

    Returns:
      MLM logits [B, P, V] and NSP logits [B, 2] (None without NSP), float32;
      NSP class 1 means a random second text. Of packed rows [B, N, 2].
    """
    x = self.embeddings(
      batch['input_ids'],
      batch['segment_ids'],
      model.positions(batch),
      deterministic,
    )
    visible = model.visible(batch, self.config.causal)
    x = self.encoder(x, visible, deterministic)  # [B, S, D]
    positions = batch['masked_lm_positions'][..., None]  # [B, P, 1]
    chosen = jnp.take_along_axis(x, positions, axis=1)  # [B, P, D]
    mlm = self.mlm(chosen, self.embeddings.word.embedding)
    if not self.with_nsp:
      return mlm, None
    first = x[:, 0]  # [B, D]
    if 'cls_positions' in batch:
      starts = batch['cls_positions'][..., None]  # [B, N, 1]
      first = jnp.take_along_axis(x, starts, axis=1)  # [B, N, D]
    pooled = nn.tanh(self.pooler(first))
    self.sow('intermediates', 'pooled', pooled)
    return mlm, self.nsp(pooled)
