"""Predicts masked tokens by counting neighbours: a baseline to beat.

  python benchmarks/measure/neighbour_counts.py --config=configs/tiny.py \\
    --config.data.dir=DATA

DATA is prepared data. How often each token stands between two others, beside
one and anywhere is counted in the training rows of the first phase's length; with
that, each token to predict in the held-out rows of a run with this config gets a
probability, in nats:

  unigram   how frequent the token is
  left      the token to the left, backed off to the unigram
  right     the token to the right
  either    the mean of left and right
  window    both tokens together, backed off to the mean

A neighbour that is itself to be predicted is not used. Backing off subtracts a
discount from each count (absolute discounting), chosen on the rows with even
numbers; the losses are those of the rows with odd numbers. The second column
also uses what the model is shown in place of the token: not [MASK] means, by
Bayes' rule, that the token was probably kept (`objective.mask_mix`).

Needs memory for the counts of pairs that occur and for what stands between the
neighbours of held-out tokens, not for the text.
"""

import itertools
import resource
import time

import numpy as np
from absl import flags
from ml_collections import config_flags

from bert_jax.data import dataset, manifest_file
from bert_jax.pretraining import batches
from bert_jax.runtime import cli, progress
from bert_jax.train import task

_AT_ONCE = 16384  # rows
_DISCOUNTS = (0.3, 0.5, 0.7, 0.8, 0.9)
_HIDDEN = -1  # the context of a neighbour that is to be predicted


class Counts:
  """How often tokens occur in contexts, numbers from 0.

  Args:
    contexts: number of contexts.
    size: V.
  """

  def __init__(self, contexts: int, size: int):
    self._contexts, self._size = contexts, size
    self._keys, self._counts = np.zeros((2, 0), np.int64)

  def add(self, context: np.ndarray, token: np.ndarray):
    """Counts tokens in their contexts, [N] each."""
    keys, counts = np.unique(context * self._size + token, return_counts=True)
    keys = np.concatenate([self._keys, keys])
    counts = np.concatenate([self._counts, counts])
    order = np.argsort(keys, kind='stable')  # both parts are sorted: a merge
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    self._keys, self._counts = keys[first], np.add.reduceat(counts, first)

  def finish(self, passes: int):
    """Divides the counts by how often the text was read."""
    self._counts = self._counts / passes
    self._totals = self._sum(self._counts)

  def _sum(self, values):
    """Returns the sum over the tokens of each context."""
    return np.bincount(self._keys // self._size, values, self._contexts)

  def back_off(self, context, token, lower, discount):
    """Returns the probability of tokens in contexts, [N].

    Args:
      context: [N]; in those of `_HIDDEN` and those never seen, it is `lower`.
      token: [N].
      lower: probabilities without the context, [N].
      discount: subtracted from each count, and given to `lower`.
    """
    at = np.searchsorted(self._keys, context * self._size + token)
    at = np.minimum(at, len(self._keys) - 1)
    found = self._keys[at] == context * self._size + token
    count = np.maximum(self._counts[at] * found - discount, 0)
    total = self._totals[context]
    taken = self._sum(np.minimum(self._counts, discount))[context]
    known = (context != _HIDDEN) & (total > 0)
    total = np.where(known, total, 1)
    return np.where(known, (count + taken * lower) / total, lower)


def read_targets(data: batches.Batches, phase: task.Phase) -> dict:
  """Returns the held-out tokens to predict.

  Returns:
    `token`, what is `shown` in its place, its neighbours `left` and `right`
    (`_HIDDEN` if they are to be predicted), and its `row`, [N] each.
  """
  found = []
  for i in range(data.eval_batches(phase)):
    batch = data.eval_batch(phase, i)
    row, k = np.nonzero(batch['masked_lm_weights'])
    at = batch['masked_lm_positions'][row, k]
    ids = batch['input_ids'].astype(np.int64)
    seen = ids.copy()
    seen[row, at] = _HIDDEN
    values = (
      batch['masked_lm_ids'][row, k].astype(np.int64),
      ids[row, at],
      seen[row, at - 1],  # [CLS] and [SEP] are never predicted
      seen[row, at + 1],
      row + i * phase.eval_batch_size,
    )
    found.append(values)
  names = 'token', 'shown', 'left', 'right', 'row'
  joined = map(np.concatenate, zip(*found, strict=True))
  return dict(zip(names, joined, strict=True))


def count(config, phase: task.Phase, targets: dict):
  """Counts the neighbours of the training tokens.

  Returns:
    (frequencies [V], counts by the left token, by the right token, and by
    window, and the number of each target's window).
  """
  directory, length = config.data.dir, phase.seq_length
  words = manifest_file.load_tokenizer(directory)
  size, special = words.size, [words.cls_id, words.sep_id]
  windows = targets['left'] * size + targets['right']
  both = (targets['left'] != _HIDDEN) & (targets['right'] != _HIDDEN)
  windows = np.where(both, windows, _HIDDEN)
  known = np.unique(windows[both])
  left, right = Counts(size, size), Counts(size, size)
  between = Counts(len(known), size)
  frequency = np.zeros(size)
  reader = dataset.open_split(directory, 'train', length).reader
  with progress.Progress(len(reader), 'rows', 'counting') as bar:
    for start in range(0, len(reader), _AT_ONCE):
      which = np.arange(start, min(start + _AT_ONCE, len(reader)))
      rows = reader.rows(which, *special)
      real = rows['input_mask'] > 0
      inner = real & ~np.isin(rows['input_ids'], special)
      ids = rows['input_ids'].ravel().astype(np.int64)
      at = np.flatnonzero(inner)
      token, before, after = ids[at], ids[at - 1], ids[at + 1]
      frequency += np.bincount(token, minlength=size)
      left.add(before, token)
      right.add(after, token)
      window = before * size + after
      place = np.minimum(np.searchsorted(known, window), len(known) - 1)
      mine = known[place] == window
      between.add(place[mine], token[mine])
      bar.update(len(which))
  passes = manifest_file.read(directory)['recipe']['passes']
  for counts in (left, right, between):
    counts.finish(passes)
  place = np.where(both, np.searchsorted(known, windows), _HIDDEN)
  return frequency, left, right, between, place


def compute_probabilities(token, targets, counted, discounts) -> dict:
  """Returns {kind of counts: probabilities of tokens, [N]} of targets.

  Args:
    token: [N], which need not be the targets' own.
    targets: from `read_targets`.
    counted: from `count`.
    discounts: of pairs and of windows.
  """
  frequency, left, right, between, place = counted
  share = (frequency + 1) / (frequency.sum() + len(frequency))
  unigram = share[token]
  pair, window = discounts
  by_left = left.back_off(targets['left'], token, unigram, pair)
  by_right = right.back_off(targets['right'], token, unigram, pair)
  weight = (targets['left'] != _HIDDEN) + 0.0
  other = (targets['right'] != _HIDDEN) + 0.0
  some = np.maximum(weight + other, 1)
  either = (weight * by_left + other * by_right) / some
  either = np.where(weight + other > 0, either, unigram)
  return {
    'unigram': unigram,
    'left': by_left,
    'right': by_right,
    'either': either,
    'window': between.back_off(place, token, either, window),
  }


def use_shown(own, of_shown, targets, mix, size, mask_id):
  """Returns probabilities that also use what stands in a token's place.

  Args:
    own: probabilities of the tokens, [N].
    of_shown: probabilities of what is shown in their places, [N].
    targets: from `read_targets`.
    mix: shares of [MASK], of random entries, of kept tokens.
    size: V.
    mask_id: id of [MASK].
  """
  _, random, kept = mix
  same = targets['shown'] == targets['token']
  whole = kept * of_shown + random / size
  told = own * (kept * same + random / size) / np.maximum(whole, 1e-300)
  return np.where(targets['shown'] == mask_id, own, told)


def main():
  begin, config = time.monotonic(), flags.FLAGS.config
  phase = task.list_phases(config)[0]
  data = batches.Batches(config, config.data.dir)
  targets = read_targets(data, phase)
  counted = count(config, phase, targets)
  mask_id = manifest_file.load_tokenizer(config.data.dir).mask_id
  even = targets['row'] % 2 == 0

  def measure(rows, discounts):
    """Returns {kind: (loss, loss with what is shown)} of some rows."""
    own = compute_probabilities(targets['token'], targets, counted, discounts)
    seen = compute_probabilities(targets['shown'], targets, counted, discounts)
    losses = {}
    for kind in own:
      told = use_shown(
        *(own[kind], seen[kind], targets, config.objective.mask_mix),
        *(len(counted[0]), mask_id),
      )
      losses[kind] = tuple(-np.log(x[rows]).mean() for x in (own[kind], told))
    return losses

  pairs = itertools.product(_DISCOUNTS, _DISCOUNTS)
  best = min(pairs, key=lambda pair: measure(even, pair)['window'][0])
  entropy = manifest_file.read(config.data.dir)['unigram_entropy']
  print(f'unigram entropy of the corpus {entropy:.3f} nats')
  print(f'{(~even).sum():,} held-out tokens, discounts {best}; nats per token')
  print('counts    alone  with what is shown')
  losses = measure(~even, best)
  for kind, (alone, told) in losses.items():
    print(f'{kind:8} {alone:6.3f} {told:6.3f}')
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
  print(f'{time.monotonic() - begin:.0f} s, {peak:.2f} GiB at most')


if __name__ == '__main__':
  config_flags.DEFINE_config_file('config', 'configs/tiny.py')
  cli.run(main)
