"""Rows of a split: their batches, what is kept of predictions, and files."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from bert_jax.finetuning import encode
from bert_jax.train import task

# Of names of arrays: begins those of `encoded`; ends those that hold JSON.
_ENCODED, _JSON = 'encoded.', '.json'


@dataclasses.dataclass(frozen=True)
class Rows:
  """N rows. A task may add fields, which are arrays or values of JSON.

  Attributes:
    encoded: N rows of ids, or `features.FeatureRows`.
    labels: what is to be learnt of each row; None if unknown.
    label_shape: of the labels of a row.
  """

  encoded: Any
  labels: np.ndarray | None
  label_shape: ClassVar[tuple[int, ...]] = ()

  @property
  def size(self) -> int:
    """Returns N."""
    return len(self.encoded.ends)

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int [N]."""
    return self.encoded.lengths

  def count(self) -> int:
    """Returns how many predictions there are, such as of words."""
    return self.size

  def list_ids(self) -> Sequence[Any]:
    """Returns the names of the rows in files of predictions: their numbers."""
    return range(self.size)

  def make_inputs(
    self, rows: np.ndarray, length: int, pad_id: int
  ) -> dict[str, np.ndarray]:
    """Returns what a model reads of some rows, see `Encoded.make_batch`."""
    return self.encoded.make_batch(rows, length, pad_id)

  def make_batch(
    self, rows: np.ndarray, length: int, pad_id: int
  ) -> task.Batch:
    """Returns the batch of some rows.

    Args:
      rows: their numbers, [b].
      length: tokens that they are padded to.

    Returns:
      What the model reads, [b, ...]; `labels`, 0 if unknown; and `label_weights`,
      1 where a label counts.
    """
    labels = np.zeros((len(rows), *self.label_shape), np.int32)
    return self.make_inputs(rows, length, pad_id) | {
      'labels': labels if self.labels is None else self.labels[rows],
      'label_weights': np.ones(len(rows), np.float32),
    }

  def keep(
    self,
    kept: Any,
    rows: np.ndarray,
    found: dict[str, np.ndarray],
    whole: bool = False,
  ) -> Any:
    """Keeps what is needed of the predictions for some rows.

    Here that is, of `logits` [B, C], what is `chosen`, the likeliest class or
    choice, and its `probability`, float64; if C is 1, the number itself.

    Args:
      kept: what was kept so far, of all rows; None at first.
      rows: numbers of the batch's rows, [b].
      found: {name: [B, ...]}, of which the first b are of these rows.
      whole: whether to keep the logits of classes, too. Those of many rows, of
        many classes, need not fit into memory.
    """
    logits = found['logits']
    if logits.shape[1] == 1:
      return self.fill(kept, rows, {'chosen': logits[:, 0]})
    likely = to_probabilities(logits).max(-1)
    chosen = {'chosen': logits.argmax(-1), 'probability': likely}
    return self.fill(kept, rows, chosen | (found if whole else {}))

  def fill(
    self,
    kept: dict[str, np.ndarray] | None,
    rows: np.ndarray,
    found: dict[str, np.ndarray],
  ) -> dict[str, np.ndarray]:
    """Puts values of a batch, as of `keep`, where they belong among all, [N, ...]."""
    if kept is None:
      kept = {
        name: np.zeros((self.size, *x.shape[1:]), x.dtype)
        for name, x in found.items()
      }
    for name, x in found.items():
      kept[name][rows] = x[: len(rows)]
    return kept

  def list_tokens(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns which tokens a model on frozen features reads: here, all.

    Returns:
      (positions of the tokens, each in its row, int [T]; where the tokens of
      each row end in them, int64 [N]).
    """
    return count_within(self.encoded.ends), self.encoded.ends

  def replace_ids(self, features: Any) -> Self:
    """Returns the rows with the features of `list_tokens` in place of ids."""
    return dataclasses.replace(self, encoded=features)

  def pack(self) -> dict[str, np.ndarray]:
    """Returns all fields as arrays by name, to be written; see `unpack`."""
    fields = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
    encoded = fields.pop('encoded')._asdict()
    fields |= {_ENCODED + name: x for name, x in encoded.items()}
    found = {}
    for name, x in fields.items():
      if isinstance(x, np.ndarray):
        found[name] = x
      else:  # as ASCII, which holds any text, also one that is not valid Unicode
        found[name + _JSON] = np.frombuffer(json.dumps(x).encode(), np.uint8)
    return found

  @classmethod
  def unpack(cls, arrays: dict[str, np.ndarray]) -> Self:
    """Returns the rows that `pack` made arrays of."""
    fields = {}
    for name, x in arrays.items():
      known = json.loads(x.tobytes()) if name.endswith(_JSON) else x
      fields[name.removesuffix(_JSON)] = known
    encoded = encode.Encoded(
      *(fields.pop(_ENCODED + x) for x in encode.Encoded._fields)
    )
    return cls(encoded, **fields)


def count_within(ends: np.ndarray) -> np.ndarray:
  """Returns 0, 1, ... for each row, end to end, int64 [T].

  >>> count_within(np.array([2, 5])).tolist()
  [0, 1, 0, 1, 2]
  """
  lengths = np.diff(ends, prepend=0)
  return np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)


def to_probabilities(logits: np.ndarray) -> np.ndarray:
  """Returns the softmax of logits [..., C], in float64."""
  shifted = np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64)
  return shifted / shifted.sum(-1, keepdims=True)
