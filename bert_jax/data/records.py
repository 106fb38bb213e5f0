"""Unmasked pairs on disk: ArrayRecord files of small binary records.

A record is three little-endian uint16, (is_random, tokens of the first text,
tokens of the second), and the token ids of both, uint16 or, for a vocabulary
of more than 65,536 entries, uint32.
"""

import os
from collections.abc import Iterable, Sequence

import numpy as np
from array_record.python import array_record_data_source, array_record_module

from bert_jax import errors
from bert_jax.data import pairs as pairs_lib

_HEADER = np.dtype('<u2')
# group_size:1 makes random access read one record, and ids compress too little
# to pay for it.
_OPTIONS = 'group_size:1,uncompressed'


def id_type(vocab_size: int) -> np.dtype:
  return np.dtype('<u2') if vocab_size <= 1 << 16 else np.dtype('<u4')


def encode(pair: pairs_lib.Pair, ids: np.dtype) -> bytes:
  header = [pair.is_random, len(pair.first), len(pair.second)]
  tokens = np.array(pair.first + pair.second, ids)
  return np.array(header, _HEADER).tobytes() + tokens.tobytes()


def write(path: str, records: Iterable[bytes]) -> int:
  """Writes records to a temporary name, then renames it; returns how many."""
  temporary = path + '.tmp'
  writer = array_record_module.ArrayRecordWriter(temporary, _OPTIONS)
  count = 0
  for record in records:
    writer.write(record)
    count += 1
  writer.close()
  with open(temporary, 'rb') as file:
    os.fsync(file.fileno())
  os.replace(temporary, path)
  return count


class Reader:
  """Random access to the records of several files, numbered through."""

  def __init__(self, paths: Sequence[str], vocab_size: int):
    self._paths = list(paths)
    self._ids = id_type(vocab_size)
    self._vocab_size = vocab_size
    try:
      self._source = array_record_data_source.ArrayRecordDataSource(self._paths)
      self._count = len(self._source)
    except Exception as error:
      # The library raises bare RuntimeErrors whose text names the file.
      raise errors.UserError(
        f'cannot read the records: {error}; prepare the data again.'
      ) from error

  def __len__(self):
    return self._count

  def rows(
    self, indices: np.ndarray, length: int, cls_id: int, sep_id: int
  ) -> dict[str, np.ndarray]:
    """Reads records into padded arrays.

    Args:
      indices: [B] record numbers.
      length: S; no record may need more.
      cls_id: id of [CLS].
      sep_id: id of [SEP].

    Returns:
      `input_ids`, `input_mask`, `segment_ids` [B, S] and
      `next_sentence_labels` [B], int32; label 1 is a random second text.

    Raises:
      errors.UserError: naming the record that is corrupt or too long.
    """
    ids = np.zeros((len(indices), length), np.int32)
    mask, segments = np.zeros_like(ids), np.zeros_like(ids)
    labels = np.zeros(len(indices), np.int32)
    try:
      found = self._source.__getitems__([int(i) for i in indices])
    except Exception as error:
      raise errors.UserError(
        f'cannot read records {indices.min()} to {indices.max()} of '
        f'{self._paths[0]} and its siblings: {error}; prepare the data again.'
      ) from error
    for row, record in enumerate(found):
      random, a, b = np.frombuffer(record, _HEADER, 3).tolist()
      n = a + b + 3
      tokens = np.frombuffer(record, self._ids, offset=3 * _HEADER.itemsize)
      if len(tokens) != a + b or n > length or random > 1:
        raise errors.UserError(
          f'record {indices[row]} of {self._paths[0]} and its siblings is '
          f'corrupt or longer than {length} tokens; prepare the data again.'
        )
      ids[row, 0] = cls_id
      ids[row, 1 : a + 1] = tokens[:a]
      ids[row, a + 1] = sep_id
      ids[row, a + 2 : n - 1] = tokens[a:]
      ids[row, n - 1] = sep_id
      mask[row, :n] = 1
      segments[row, a + 2 : n] = 1
      labels[row] = random
    if ids.max(initial=0) >= self._vocab_size:
      raise errors.UserError(
        f'a record of {self._paths[0]} and its siblings holds token id '
        f'{ids.max()}, but the vocabulary has {self._vocab_size} entries; '
        'the data was prepared with another vocabulary.'
      )
    return {
      'input_ids': ids,
      'input_mask': mask,
      'segment_ids': segments,
      'next_sentence_labels': labels,
    }
