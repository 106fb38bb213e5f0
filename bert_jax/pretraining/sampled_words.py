"""A sample of the words, among which the decoder finds the masked one.

A sampled softmax (Jean et al., 2015, arXiv 1412.2007) computes the logits of the
most frequent words, which have most of the probability, and that of one random word
of each of several groups of words of similar frequency, which counts once for each
word of its group. So the sum in softmax's denominator is estimated without bias.
docs/plateau.md has what it gains; evaluation always compares all words.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.ops import tied_decoder
from bert_jax.parallel import row_keys

_TAG = 0x776F7264  # of random keys


class Groups(NamedTuple):
  """How a sample is drawn: one word of each group."""

  order: np.ndarray  # int32 [V], words by falling frequency
  firsts: np.ndarray  # int32 [C], where the groups begin in it
  sizes: np.ndarray  # int32 [C], their words


def group(
  count: int, vocab_size: int, word_shares: np.ndarray | None
) -> Groups | None:
  """Groups words: half of the groups are one frequent word each.

  Args:
    count: C, groups; with 0, or V and more, there are none.
    word_shares: of the text, [V]; None if unknown, where only the sizes matter.
  """
  if not 0 < count < vocab_size:
    return None
  order = np.arange(vocab_size)
  if word_shares is not None:
    order = np.argsort(-word_shares, kind='stable')
  common = count // 2
  ends = np.linspace(common, vocab_size, count - common + 1).astype(np.int32)
  ends = np.concatenate([np.arange(common, dtype=np.int32), ends])
  return Groups(order.astype(np.int32), ends[:-1], np.diff(ends))


def draw(groups: Groups, key: jax.Array) -> tied_decoder.Sample:
  """Draws the sample of a micro-batch, by a key from `row_keys.for_rows`.

  With threefry, all devices draw the same; with rbg, each draws its own.
  """
  key = jax.random.fold_in(row_keys.for_batch(key), _TAG)
  sizes = jnp.asarray(groups.sizes)
  chosen = jax.random.bits(key, sizes.shape) % sizes.astype(jnp.uint32)
  words = jnp.asarray(groups.order)[groups.firsts + chosen.astype(jnp.int32)]
  return tied_decoder.Sample(words, jnp.log(sizes.astype(jnp.float32)))
