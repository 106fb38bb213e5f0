"""What is to be predicted: masked tokens (section 3.1) or the next token."""

import numpy as np

from bert_jax.data import hashing

# What a hash is for; two draws for one position must differ.
_CHOOSE, _ACTION, _WORD = 1, 2, 3


def mask_tokens(
  batch: dict[str, np.ndarray],
  keys: np.ndarray,
  *,
  rate: float,
  mix: tuple[float, float, float],
  max_predictions: int,
  vocab_size: int,
  mask_id: int,
  special: np.ndarray,
) -> dict[str, np.ndarray]:
  """Chooses tokens to predict and hides them.

  Google's procedure: of n tokens (with [CLS] and [SEP]) round(n · rate), at
  least 1 and at most `max_predictions`, are predicted. Each becomes [MASK], a
  random word of the whole vocabulary or itself, with the shares of `mix`.

  Args:
    batch: `input_ids`, `input_mask`, `segment_ids` [B, S] and others.
    keys: [B] uint64; the masks are a function of them alone.
    rate: share of the tokens to predict.
    mix: shares of [MASK], random word, same word; they sum to 1.
    max_predictions: P.
    vocab_size: V.
    mask_id: id of [MASK].
    special: ids that are never chosen.

  Returns:
    The batch with new `input_ids` and `masked_lm_positions`, `masked_lm_ids`
    (int32) and `masked_lm_weights` (float32) [B, P], positions ascending and
    then zeros of weight 0.
  """
  ids, real = batch['input_ids'], batch['input_mask'] > 0
  rows, length = ids.shape
  position = np.arange(length, dtype=np.uint64)
  keys = keys[:, None]  # [B, 1]
  candidate = real & ~np.isin(ids, special)  # [B, S]
  count = np.rint(real.sum(1) * rate).astype(int)  # half to even, as round()
  count = np.clip(count, 1, max_predictions)
  count = np.minimum(count, candidate.sum(1))

  score = hashing.mix(keys, _CHOOSE, position)
  score[~candidate] = np.iinfo(np.uint64).max
  width = min(max_predictions, length)
  order = np.argsort(score, axis=1, kind='stable')[:, :width]
  used = np.arange(width) < count[:, None]  # [B, P]
  order = np.sort(np.where(used, order, length), axis=1)
  positions = np.where(used, order, 0)
  labels = np.take_along_axis(ids, positions, 1)

  at = positions.astype(np.uint64)
  draw = hashing.uniform(hashing.mix(keys, _ACTION, at))
  word = hashing.mix(keys, _WORD, at) % np.uint64(vocab_size)
  replacement = np.where(
    draw < mix[0], mask_id, np.where(draw < mix[0] + mix[1], word, labels)
  )
  masked = np.concatenate([ids, ids[:, :1]], 1)  # unused writes go past S
  np.put_along_axis(
    masked, order, np.where(used, replacement, 0).astype(ids.dtype), 1
  )

  def padded(x, dtype):
    out = np.zeros((rows, max_predictions), dtype)
    out[:, :width] = np.where(used, x, 0)
    return out

  return {
    **batch,
    'input_ids': masked[:, :length],
    'masked_lm_positions': padded(positions, np.int32),
    'masked_lm_ids': padded(labels, np.int32),
    'masked_lm_weights': padded(1, np.float32),
  }


def next_tokens(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Asks for the following token at every position (left-to-right LM).

  Returns:
    The batch with `masked_lm_positions`, `masked_lm_ids`, `masked_lm_weights`
    [B, S - 1]: position i predicts the token at i + 1 unless that is padding.
  """
  ids, real = batch['input_ids'], batch['input_mask']
  positions = np.arange(ids.shape[1] - 1, dtype=np.int32)
  return {
    **batch,
    'masked_lm_positions': np.broadcast_to(
      positions, (len(ids), len(positions))
    ).copy(),
    'masked_lm_ids': ids[:, 1:],
    'masked_lm_weights': real[:, 1:].astype(np.float32),
  }
