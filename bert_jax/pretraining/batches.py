"""Makes pre-training batches. Does not import jax, for loader processes."""

import dataclasses
import math

import numpy as np
from ml_collections import config_dict

from bert_jax.data import dataset, hashing, manifest_file, masking
from bert_jax.trainer import task

# Tags of hashes, so that different uses of the seed are independent.
_ORDER, _MASK, _EVAL_MASK = 1, 2, 3
_COUNTED = 2**22  # tokens whose words are counted
_AHEAD = 8  # steps whose records are found at once
_AT_ONCE = 1 << 15  # tokens whose arrays stay in the cache
EXAMPLES = 3  # held-out rows that a run ends with


def spread(count: int, size: int) -> np.ndarray:
  """Returns numbers of records, evenly spread over all, [count]."""
  return np.arange(count) * size // count


def count_predictions(
  objective: config_dict.ConfigDict, pack: int, phase: task.Phase
) -> int:
  """Returns P, the maximum of predictions per row."""
  if objective.kind != 'mlm':
    return phase.seq_length - 1
  rates = objective.mask_rate, objective.initial_mask_rate, phase.mask_rate
  return masking.count_predictions(
    phase.seq_length, max(rates), phase.max_predictions, pack
  )


def evaluate_as(
  objective: config_dict.ConfigDict, pack: int, phase: task.Phase
) -> task.Phase:
  """Returns the phase with the predictions that held-out rows need at most.

  They are masked at `objective.mask_rate` in all phases, so that these compare.
  """
  rate = objective.mask_rate
  if pack > 1 or max(phase.mask_rate, objective.initial_mask_rate) <= rate:
    return phase
  most = min(phase.max_predictions, math.ceil(phase.seq_length * rate))
  return dataclasses.replace(phase, max_predictions=most)


def _list_orders(phases: list[task.Phase]) -> list[tuple[int, int]]:
  """Returns, for each phase, what seeds its shuffle, and rows read before it.

  A phase of the same length as the one before goes on with the same shuffle.
  """
  orders = []
  for before, phase in zip([None, *phases], phases, strict=False):
    if before and before.seq_length == phase.seq_length:
      number, rows = orders[-1]
      orders.append((number, rows + before.steps * before.batch_size))
    else:
      orders.append((phase.number, 0))
  return orders


def _choose_evaluated(
  split: dataset.Split, most: int, batch_size: int
) -> list[tuple[str, np.ndarray]]:
  """Returns the input and the records of each batch of held-out data.

  Each input has its share of at most so many rows, spread evenly.
  """
  total, before, batches = len(split.reader), 0, []
  size = min(total, most)
  for name, records in split.inputs.items():
    after = before + len(records)
    n = after * size // total - before * size // total
    rows, before = records[spread(n, len(records))], after
    for k in range(0, n, batch_size):
      batches.append((name, rows[k : k + batch_size]))
  return batches


class Batches:
  """The batches of an experiment, as functions of (phase, step)."""

  def __init__(self, config: config_dict.ConfigDict, directory: str):
    self._seed, self._objective = config.seed, config.objective
    self._pack, self._steps = config.data.pack, sum(config.phases.steps)
    self._words = words = manifest_file.load_tokenizer(directory)
    self._special = np.array([words.cls_id, words.sep_id])
    self._splits = {
      (split, n): dataset.open_split(directory, split, n)
      for split in ('train', 'heldout')
      for n in sorted(set(config.phases.seq_length))
    }
    self._ahead = (), ((), ())  # what was asked for last, and found
    phases = task.list_phases(config)
    self._first_length = phases[0].seq_length
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
    record, epoch = self._find_ahead(phase, step, rows)
    keys = self._keys(self._seed, _MASK, phase.number, epoch, record)
    o = self._objective
    rate, first = phase.mask_rate, o.initial_mask_rate
    if first:  # falls in the course of the run (arXiv 2305.15096)
      rate = first + (rate - first) * (step / self._steps)
    return self._features(split, phase, record, keys, rate)

  def _find_ahead(self, phase, step, rows):
    """Returns `find_records`, of several steps at once, for a fifth of the time."""
    first = step - step % _AHEAD
    asked, places = self._ahead
    if asked != (phase, first, rows.tobytes()):
      places = self.find_records(
        phase, first + np.arange(_AHEAD)[:, None], rows
      )
      self._ahead = (phase, first, rows.tobytes()), places
    record, epoch = places
    return record[step - first], epoch[step - first]

  def find_records(
    self, phase: task.Phase, step: int, rows: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (record, epoch) of rows of a step's global batch, [B] each."""
    order, before = self._orders[phase.number]
    start = before + (step - phase.first) * phase.batch_size
    return hashing.find_records(
      # A seed is an int64, so one bit of the uint64 hash is dropped.
      int(hashing.mix(self._seed, _ORDER, order)[0] >> np.uint64(1)),
      start + rows,
      len(self._splits['train', phase.seq_length].reader),
    )

  def read_sample(self) -> np.ndarray:
    """Reads a sample of the first phase's training rows, evenly spread.

    They are int32 [N, S], about 4M tokens; -1 is padding or a special token.
    """
    length, words = self._first_length, self._words
    reader = self._splits['train', length].reader
    records = np.unique(spread(_COUNTED // length, len(reader)))
    parts = []
    for some in np.array_split(records, -(-len(records) // 1024)):
      batch = reader.rows(some, words.cls_id, words.sep_id)
      ids = batch['input_ids']
      is_text = (batch['input_mask'] > 0) & ~np.isin(ids, self._special)
      parts.append(np.where(is_text, ids, -1))
    return np.concatenate(parts)

  def count_labels(self) -> np.ndarray:
    """Counts the words that are predicted in the sample, integers [V].

    A language model also predicts about one [CLS] and two [SEP] of each row.
    """
    ids, words = self.read_sample(), self._words
    counts = np.bincount(ids[ids >= 0], minlength=words.size)
    if self._objective.kind != 'mlm':
      counts[words.cls_id] += len(ids)
      counts[words.sep_id] += 2 * len(ids)
    return counts

  def eval_batches(self, phase: task.Phase) -> int:
    return len(self._evaluated[phase.number])

  def eval_batch(
    self, phase: task.Phase, i: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of held-out batch i, all of one input."""
    split = self._splits['heldout', phase.seq_length]
    _, records = self._evaluated[phase.number][i]
    row = np.arange(phase.eval_batch_size) if rows is None else rows
    record = records[np.minimum(row, len(records) - 1)]
    keys = self._keys(self._seed, _EVAL_MASK, record)
    rate = self._objective.mask_rate
    evaluated = evaluate_as(self._objective, self._pack, phase)
    batch = self._features(split, evaluated, record, keys, rate)
    for name in (x for x in batch if x.endswith('_weights')):
      batch[name][row >= len(records)] = 0
    return batch

  def name_eval_part(self, phase: task.Phase, i: int) -> str:
    """Returns the input of held-out batch i; '' if there is only one."""
    names = [name for name, _ in self._evaluated[phase.number]]
    return names[i] if len(set(names)) > 1 else ''

  def _keys(self, *parts) -> np.ndarray:
    """Returns hashes of numbers and [B] arrays, [B] or, if packed, [B, N]."""
    if self._pack == 1:
      return hashing.mix(*parts)
    columns = (np.asarray(x)[..., None] for x in parts)
    return hashing.mix(*columns, range(self._pack))

  def _features(self, split, phase, record, keys, rate) -> task.Batch:
    few = max(1, _AT_ONCE // phase.seq_length)
    places = [slice(k, k + few) for k in range(0, len(record), few)]
    ends = self._words.cls_id, self._words.sep_id
    parts = [
      self._mask(split.reader.rows(record[x], *ends), phase, keys[x], rate)
      for x in places
    ]
    if len(parts) == 1:
      return parts[0]
    return {name: np.concatenate([x[name] for x in parts]) for name in parts[0]}

  def _mask(self, batch, phase, keys, rate) -> task.Batch:
    o = self._objective
    if o.kind != 'mlm':
      return masking.predict_next_tokens(batch, o.kind == 'rtl')
    return masking.mask_tokens(
      batch,
      keys,
      unit=o.mask_unit,
      rate=rate,
      mix=o.mask_mix,
      max_predictions=phase.max_predictions,
      size=count_predictions(o, self._pack, phase),
      vocab_size=self._words.size,
      mask_id=self._words.mask_id,
      special=self._special,
      continues=self._words.continues(batch['input_ids']),
    )
