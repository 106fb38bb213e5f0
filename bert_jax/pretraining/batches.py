"""Makes pre-training batches. Does not import jax, for loader processes."""

import dataclasses
import math

import numpy as np
from ml_collections import config_dict

from bert_jax.data import dataset, hashing, manifest_file, masking
from bert_jax.train import task

# Tags of hashes, so that different uses of the seed are independent.
_ORDER, _MASK, _EVAL_MASK = 1, 2, 3
_COUNTED = 2**22  # tokens whose words are counted
_AHEAD = 8  # steps whose records are found at once
_AT_ONCE = 1 << 15  # tokens whose arrays stay in the cache
EXAMPLES = 3  # held-out rows that a run ends with


def spread(count: int, size: int) -> np.ndarray:
  """Returns numbers of records, evenly spread over all, [count]."""
  return np.arange(count) * size // count


def count_predictions(config: config_dict.ConfigDict, phase: task.Phase) -> int:
  """Returns P, the maximum of predictions per row."""
  if config.objective.kind != 'mlm':
    return phase.seq_length - 1
  o = config.objective
  rate = max(o.mask_rate, o.initial_mask_rate)
  return masking.count_predictions(
    phase.seq_length, rate, phase.max_predictions, config.data.pack
  )


def evaluate_as(
  config: config_dict.ConfigDict, phase: task.Phase
) -> task.Phase:
  """Returns the phase with the predictions that held-out rows need at most.

  They are masked at mask_rate. Where training begins with more predictions, phases
  that differ in nothing else share the program of the evaluation, which is cheaper.
  """
  o = config.objective
  if config.data.pack > 1 or o.initial_mask_rate <= o.mask_rate:
    return phase
  most = min(phase.max_predictions, math.ceil(phase.seq_length * o.mask_rate))
  return dataclasses.replace(phase, max_predictions=most)


def compute_mask_rate(config: config_dict.ConfigDict, step: int) -> float:
  """Returns the share of tokens to predict in a step (arXiv 2305.15096)."""
  last, first = config.objective.mask_rate, config.objective.initial_mask_rate
  done = step / sum(config.phases.steps)
  return first + (last - first) * done if first else last


def _list_orders(phases: list[task.Phase]) -> list[tuple[int, int]]:
  """Returns, for each phase, what seeds its shuffle, and rows read before it.

  A phase of the same length as the one before goes on with the same shuffle.
  """
  found = []
  for before, phase in zip([None, *phases], phases, strict=False):
    if before and before.seq_length == phase.seq_length:
      number, rows = found[-1]
      found.append((number, rows + before.steps * before.batch_size))
    else:
      found.append((phase.number, 0))
  return found


def _choose_evaluated(
  split: dataset.Split, most: int, batch_size: int
) -> list[tuple[str, np.ndarray]]:
  """Returns the input and the records of each batch of held-out data.

  Each input has its share of at most so many rows, spread evenly.
  """
  total, before, found = len(split.reader), 0, []
  size = min(total, most)
  for name, records in split.inputs.items():
    after = before + len(records)
    n = after * size // total - before * size // total
    rows = records[spread(n, len(records))]
    for k in range(0, n, batch_size):
      found.append((name, rows[k : k + batch_size]))
    before = after
  return found


class Batches:
  """The batches of an experiment, as functions of (phase, step).

  It can be pickled; the copy opens the files again.
  """

  def __init__(self, config: config_dict.ConfigDict, directory: str):
    self._config = config
    words = manifest_file.load_tokenizer(directory)
    self._words = words
    self._special = np.array([words.cls_id, words.sep_id])
    self._continues = np.array([w.startswith('##') for w in words.vocab])
    self._splits = {
      (split, n): dataset.open_split(directory, split, n)
      for split in ('train', 'heldout')
      for n in sorted(set(config.phases.seq_length))
    }
    self._ahead = (), ((), ())  # what was asked for last, and found
    phases = task.list_phases(config)
    self._orders = _list_orders(phases)
    self._evaluated = [
      _choose_evaluated(
        self._splits['heldout', phase.seq_length],
        config.eval.sequences,
        phase.eval_batch_size,
      )
      for phase in phases
    ]

  def train_batch(
    self, phase: task.Phase, step: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of a step's global batch; None means all rows."""
    split = self._splits['train', phase.seq_length]
    if rows is None:
      rows = np.arange(phase.batch_size)
    seed = self._config.seed
    record, epoch = self._find_ahead(phase, step, rows)
    keys = self._keys(seed, _MASK, phase.number, epoch, record)
    rate = compute_mask_rate(self._config, step)
    return self._features(split, phase, record, keys, rate)

  def _find_ahead(self, phase, step, rows):
    """Returns `find_records`, of several steps at once, for a fifth of the time."""
    first = step - step % _AHEAD
    asked, found = self._ahead
    if asked != (phase, first, rows.tobytes()):
      found = self.find_records(phase, first + np.arange(_AHEAD)[:, None], rows)
      self._ahead = (phase, first, rows.tobytes()), found
    record, epoch = found
    return record[step - first], epoch[step - first]

  def find_records(
    self, phase: task.Phase, step: int, rows: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (record, epoch) of rows of a step's global batch, [B] each."""
    order, before = self._orders[phase.number]
    start = before + (step - phase.first) * phase.batch_size
    return hashing.find_records(
      # A seed is an int64, so one bit of the uint64 hash is dropped.
      int(hashing.mix(self._config.seed, _ORDER, order)[0] >> np.uint64(1)),
      start + rows,
      len(self._splits['train', phase.seq_length].reader),
    )

  def read_sample(self) -> np.ndarray:
    """Reads a sample of the first phase's training rows, evenly spread.

    Returns:
      int32 [N, S], about 4M tokens; -1 is padding or a special token.
    """
    length, words = self._config.phases.seq_length[0], self._words
    reader = self._splits['train', length].reader
    records = np.unique(spread(_COUNTED // length, len(reader)))
    found = []
    for some in np.array_split(records, -(-len(records) // 1024)):
      batch = reader.rows(some, words.cls_id, words.sep_id)
      ids = batch['input_ids']
      is_text = (batch['input_mask'] > 0) & ~np.isin(ids, self._special)
      found.append(np.where(is_text, ids, -1))
    return np.concatenate(found)

  def count_labels(self) -> np.ndarray:
    """Counts the words that are predicted in the sample, integers [V].

    A language model also predicts special tokens: in each row about one [CLS]
    and two [SEP].
    """
    ids, words = self.read_sample(), self._words
    counts = np.bincount(ids[ids >= 0], minlength=words.size)
    if self._config.objective.kind != 'mlm':
      counts[words.cls_id] += len(ids)
      counts[words.sep_id] += 2 * len(ids)
    return counts

  def eval_batches(self, phase: task.Phase) -> int:
    return len(self._evaluated[phase.number])

  def eval_batch(
    self,
    phase: task.Phase,
    i: int,
    rows: np.ndarray | None = None,
  ) -> task.Batch:
    """Returns the given rows of held-out batch i; None means all rows.

    All come from one input.
    """
    split = self._splits['heldout', phase.seq_length]
    _, records = self._evaluated[phase.number][i]
    row = np.arange(phase.eval_batch_size) if rows is None else rows
    record = records[np.minimum(row, len(records) - 1)]
    keys = self._keys(self._config.seed, _EVAL_MASK, record)
    rate = self._config.objective.mask_rate
    evaluated = evaluate_as(self._config, phase)
    batch = self._features(split, evaluated, record, keys, rate)
    for name in ('masked_lm_weights', 'next_sentence_weights'):
      batch[name][row >= len(records)] = 0
    return batch

  def name_eval_part(self, phase: task.Phase, i: int) -> str:
    """Returns the input of held-out batch i; '' if there is only one."""
    names = [name for name, _ in self._evaluated[phase.number]]
    return names[i] if len(set(names)) > 1 else ''

  def _keys(self, *parts) -> np.ndarray:
    """Returns hashes of numbers and [B] arrays, [B] or, if packed, [B, N]."""
    pack = self._config.data.pack
    if pack == 1:
      return hashing.mix(*parts)
    return hashing.mix(*(np.asarray(x)[..., None] for x in parts), range(pack))

  def _features(self, split, phase, record, keys, rate) -> task.Batch:
    few = max(1, _AT_ONCE // phase.seq_length)
    parts = [
      self._few_features(
        split, phase, record[k : k + few], keys[k : k + few], rate
      )
      for k in range(0, len(record), few)
    ]
    if len(parts) == 1:
      return parts[0]
    return {name: np.concatenate([x[name] for x in parts]) for name in parts[0]}

  def _few_features(self, split, phase, record, keys, rate) -> task.Batch:
    c, words = self._config, self._words
    batch = split.reader.rows(record, words.cls_id, words.sep_id)
    if c.objective.kind != 'mlm':
      reverse = c.objective.kind == 'rtl'
      return masking.predict_next_tokens(batch, reverse)
    return masking.mask_tokens(
      batch,
      keys,
      unit=c.objective.mask_unit,
      rate=rate,
      mix=c.objective.mask_mix,
      max_predictions=phase.max_predictions,
      size=count_predictions(c, phase),
      vocab_size=words.size,
      mask_id=words.mask_id,
      special=self._special,
      continues=self._continues,
    )
