"""Writes and reads ArrayRecord files of unmasked pairs, see `row_format`."""

import collections
import contextlib
import errno
import resource
import sys
from collections.abc import Iterable, Sequence

import numpy as np
from array_record.python import array_record_module

from bert_jax import errors
from bert_jax.data import row_format
from bert_jax.runtime import storage
from bert_jax.tokenization import tokenizer

# group_size:1 lets random access read a single record (Grain requires it), and
# ids compress too little to be worth the time: see docs/records.md.
_WRITE = 'group_size:1,uncompressed'
# Without read-ahead, and in the calling thread: a batch reads a record or two
# per file, and handing them to threads takes longer than reading them.
_READ = 'readahead_buffer_size:0,max_parallelism:0'


def write(path: str, records: Iterable[bytes]):
  """Writes records to a local file, not atomically."""
  try:
    writer = array_record_module.ArrayRecordWriter(path, _WRITE)
    # Millions of them: in a Python loop it is noticeably slower.
    collections.deque(map(writer.write, records), maxlen=0)
    writer.close()
  except RuntimeError as error:
    if path not in str(error):
      raise
    raise OSError(_line(error)) from error


class Reader:
  """Random access to the records of several files, numbered consecutively.

  A reader can be pickled; the copy opens the files again.
  """

  def __init__(
    self,
    paths: Sequence[str],
    vocab_size: int,
    counts: Sequence[int] | None = None,
    skip_corrupt: bool = False,
  ):
    """Opens the files.

    Args:
      vocab_size: V; ids from V on are an error.
      counts: the expected number of records of each file; None is unknown.
      skip_corrupt: whether a corrupt record becomes a row of padding, counted
        and printed to stderr, instead of an error.
    """
    self._arguments = (tuple(paths), vocab_size, counts, skip_corrupt)
    self._paths, self._vocab_size = list(paths), vocab_size
    self._id_type = tokenizer.choose_id_type(vocab_size)
    self._skip = skip_corrupt
    self._corrupt: set[int] = set()
    _raise_file_limit(len(self._paths))
    self._files = [_open(path) for path in self._paths]
    found = [file.num_records() for file in self._files]
    for path, n, expected in zip(paths, found, counts or found, strict=True):
      if n != expected:
        raise errors.UserError(
          f'{path} holds {n} records, its manifest says {expected}; prepare '
          'the data again.'
        )
    self._ends = np.cumsum(found)  # one past the number of each file's last

  def __reduce__(self):
    return type(self), self._arguments

  def __len__(self):
    return int(self._ends[-1])

  @property
  def skipped(self) -> int:
    """The number of corrupt records that were found and skipped."""
    return len(self._corrupt)

  def rows(
    self,
    indices: np.ndarray,
    length: int,
    cls_id: int,
    sep_id: int,
    pairs_per_row: int = 1,
  ) -> dict[str, np.ndarray]:
    """Reads records into padded arrays.

    Args:
      indices: [B] record numbers.
      length: S; no record may need more.
      pairs_per_row: N; no record may hold more pairs.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` [B, S] int32, and
      `next_sentence_labels` (int32; 1 is a random second text) and
      `next_sentence_weights` (float32) [B]. For N > 1 these two are [B, N],
      and there are also, int32: `sequence_ids` [B, S], k + 1 inside pair k
      and 0 in padding; `position_ids` [B, S], from 0 at each [CLS];
      `cls_positions` [B, N]. Entries of absent pairs are 0.
    """
    indices = np.asarray(indices)
    found = self.read(indices)
    n, is_random, first, second, ids, good = row_format.parse(
      found, pairs_per_row, self._id_type, length
    )
    for index in indices[~good].tolist():
      self._report(
        index,
        f'is not a row of at most {length} tokens and {pairs_per_row} pair(s)',
      )
    batch, text = row_format.lay_out(n, first, second, length, cls_id, sep_id)
    self._check_ids(ids, indices, text)
    batch['input_ids'][text] = ids
    batch['next_sentence_labels'] = is_random.astype(np.int32)
    if pairs_per_row == 1:
      for name in ('next_sentence_labels', 'next_sentence_weights'):
        batch[name] = batch[name][:, 0]
    return batch

  def read(self, indices: np.ndarray) -> list[bytes]:
    """Returns the records; one that cannot be read is empty."""
    found = []
    places = [x.tolist() for x in (indices, *self._locate(indices))]
    for index, file, position in zip(*places, strict=True):
      try:
        # As a range: array_record takes many times as long for a list of one.
        [record] = self._files[file].read(position, position + 1)
      except Exception as error:
        self._report(index, f'cannot be read ({_line(error)})')
        record = b''
      found.append(record)
    return found

  def _locate(self, indices):
    """Returns the files of records, and their positions in them."""
    files = np.searchsorted(self._ends, indices, side='right')
    return files, indices - np.append(0, self._ends)[files]

  def name(self, index: int) -> str:
    """Returns 'record N of FILE', with the number of a record in its file."""
    file, position = self._locate(index)
    return f'record {position} of {self._paths[file]}'

  def _report(self, index: int, what: str):
    """Raises for a corrupt record, or counts it and prints it once."""
    if not self._skip:
      raise errors.UserError(
        f'{self.name(index)} {what}; prepare the data again, or set '
        'data.skip_corrupt=True to leave it out.'
      )
    if index not in self._corrupt:
      self._corrupt.add(index)
      print(f'skipped: {self.name(index)} {what}', file=sys.stderr, flush=True)

  def _check_ids(self, ids, indices, text):
    largest = ids.max(initial=0)
    if largest >= self._vocab_size:
      row = np.nonzero(text)[0][ids.argmax()]
      raise errors.UserError(
        f'{self.name(indices[row])} holds token id {largest}, but the '
        f'vocabulary has {self._vocab_size} entries; the data was prepared '
        'with another vocabulary.'
      )


class Part(Reader):
  """Some of `size` records of several files, kept in one with their numbers."""

  def __init__(self, path: str, vocab_size: int, size: int, skip_corrupt: bool):
    self._numbers, self._size = np.load(f'{path}.npy'), size  # ascending
    super().__init__([path], vocab_size, [len(self._numbers)], skip_corrupt)
    self._arguments = path, vocab_size, size, skip_corrupt

  def __len__(self):
    return self._size

  def rows(self, indices: np.ndarray, *others) -> dict[str, np.ndarray]:
    """Reads records that are among those kept, see `Reader.rows`."""
    found = np.searchsorted(self._numbers, indices)
    if not np.array_equal(self._numbers.take(found, mode='clip'), indices):
      raise KeyError(f'records {indices} are not all in {self._paths[0]}')
    return super().rows(found, *others)


def _raise_file_limit(count: int):
  """Lets this process open `count` more files, as far as the system allows.

  Systems start processes with a limit of 256 (macOS) or 1,024 (Linux) files,
  which the process itself may raise: 64 GB of text are 1,000 files per length.
  """
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  if soft == resource.RLIM_INFINITY:
    return
  wanted = soft + count
  if hard != resource.RLIM_INFINITY:
    wanted = min(wanted, hard)
  with contextlib.suppress(OSError, ValueError):  # `_open` says if it is low
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open(path: str):
  try:
    # The library's error would not give the reason.
    storage.open_binary(path).close()
    file = array_record_module.ArrayRecordReader(path, _READ)
    file.num_records()
  except OSError as error:
    few = error.errno == errno.EMFILE
    raise errors.UserError(
      f'cannot open {path} ({error.strerror}); '
      f'{"raise ulimit -n" if few else "prepare the data again"}.'
    ) from error
  except Exception as error:  # the library raises bare RuntimeErrors
    raise errors.UserError(
      f'cannot read {path} ({_line(error)}); prepare the data again.'
    ) from error
  # The library does not raise for a damaged file, which then looks empty.
  if not file.ok():
    raise errors.UserError(
      f'{path} is damaged, or holds no records; prepare the data again.'
    )
  return file


def _line(error: Exception) -> str:
  # The rest of the message is a position in the library's source.
  return errors.first_line(error).partition('; ')[0]
