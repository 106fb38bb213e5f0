"""Prepared rows on disk: tokens once, and pairs or parts as offsets into them.

A shard has a file with the token ids of its documents, `choose_id_type`. For
each length it has a file of `PAIR`s, in the order of rows. If a row may hold
several, the number of pairs before each row, and before the end, follow as uint64.
For rows of sentences, it is a file of `PART`s, and the numbers are uint32.

The manifest has the CRC-32C of each block of a file. A block is compared when it
is first read, so opening reads nothing, and no damage is trained on.
"""

import contextlib
import hashlib
import mmap
import os
import resource
from collections.abc import Collection, Iterable, Sequence

import google_crc32c
import numpy as np

from bert_jax import errors
from bert_jax.runtime import storage
from bert_jax.tokenization import tokenizer

# Offsets are in tokens, without [CLS] and [SEP]; a text is a slice of the file.
PAIR = np.dtype([('begin', '<u4', 2), ('size', '<u2', 2), ('is_random', '?')])
PART = np.dtype([('begin', '<u4', (1,)), ('size', '<u2', (1,))])
MOST_TOKENS = 1 << 32  # of a shard, so that every offset fits

# A row in random order is in about three blocks that were not read yet: of 16 MB
# each, the first batch would read all.
BLOCK = 1 << 16  # bytes


def write(folder: str, name: str, arrays: Iterable[np.ndarray]) -> dict:
  """Writes arrays to a file, not synced; returns its entry in the manifest."""
  sha256, crcs, size = hashlib.sha256(), [], 0
  with storage.replacing(os.path.join(folder, name), synced=False) as new:
    with open(new, 'wb') as file:
      for array in arrays:
        file.write(array.data)
    with open(new, 'rb') as file:
      while block := file.read(BLOCK):
        sha256.update(block)
        crcs.append(google_crc32c.value(block))
        size += len(block)
  return {
    'name': name,
    'bytes': size,
    'sha256': sha256.hexdigest(),
    'crc32c': np.array(crcs, '<u4').tobytes().hex(),
  }


def choose_format(rows: str) -> tuple[str, np.dtype, np.dtype]:
  """Returns what files of such `data.rows` hold, and the types of it and of numbers."""
  if rows == 'pairs':
    return 'pairs', PAIR, np.dtype('<u8')
  return 'parts', PART, np.dtype('<u4')


def encode(spans: np.ndarray, is_random: np.ndarray) -> np.ndarray:
  """Returns the PAIRs of `pairs.Pairs`, [N], or PARTs of single texts."""
  encoded = np.empty(len(spans), PAIR if spans.shape[1] == 2 else PART)
  encoded['begin'] = spans[:, :, 0]
  encoded['size'] = spans[:, :, 1] - spans[:, :, 0]
  if spans.shape[1] == 2:
    encoded['is_random'] = is_random
  return encoded


class Reader:
  """Random access to the rows of several shards, numbered consecutively.

  A reader can be pickled; the copy opens the files again.
  """

  def __init__(
    self,
    folder: str,
    shards: Sequence[dict],
    length: int,
    vocab_size: int,
    pack: int,
    rows: str = 'pairs',
  ):
    """Opens the files of `shards`, entries of the manifest.

    Rows have S tokens, `length`, and up to N pairs, `pack`; or, as `data.rows`
    says, a part of one document, or of each of several.
    """
    self._arguments = folder, shards, length, vocab_size, pack, rows
    # A part has three tokens at least, two of which are special.
    self._pack = length // 3 if rows == 'full_sentences' else pack
    self.length = length
    kind, self._record, self._number = choose_format(rows)
    self._id_type = tokenizer.choose_id_type(vocab_size)
    made = [shard['files'][str(length)] for shard in shards]
    self._tokens = _Files(folder, [shard['tokens_file'] for shard in shards])
    self._pairs = _Files(folder, made)  # or parts, here and below
    # One past the number of each shard's last row.
    self._ends = np.cumsum([file['records'] for file in made])
    # Where the numbers of pairs before the rows begin, in bytes.
    self._starts = self._record.itemsize * np.array([x[kind] for x in made])

  def __reduce__(self):
    return type(self), self._arguments

  def __len__(self):
    return int(self._ends[-1])

  def rows(
    self, indices: np.ndarray, cls_id: int, sep_id: int
  ) -> dict[str, np.ndarray]:
    """Reads rows into padded arrays.

    Args:
      indices: [B] row numbers.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` [B, S] int32, and
      `next_sentence_labels` (int32; 1 is a random second text) and
      `next_sentence_weights` (float32) [B]. For N > 1 these two are [B, N],
      and there are also, int32: `sequence_ids` [B, S], k + 1 inside pair k;
      `position_ids` [B, S], from 0 at each [CLS]; `cls_positions` [B, N].
      Rows of sentences have nothing that is for next sentence prediction.
    """
    shard = np.searchsorted(self._ends, indices, side='right')
    begin, end = self._find_pairs(
      shard, indices - np.append(0, self._ends)[shard]
    )
    counts = end - begin
    size = self._record.itemsize
    raw = self._pairs.read(shard, begin * size, end * size)
    pairs = np.frombuffer(raw, self._record)  # [M]
    sizes = pairs['size'].astype(int)  # [M, 2], or [M, 1] of parts
    wide = self._id_type.itemsize
    texts = wide * pairs['begin'].ravel().astype(int)
    of = np.repeat(shard, sizes.shape[1] * counts)
    raw = self._tokens.read(of, texts, texts + wide * sizes.ravel())
    batch, is_text, present = lay_out(
      counts, sizes, self._pack, self.length, cls_id, sep_id
    )
    batch['input_ids'][is_text] = np.frombuffer(raw, self._id_type)
    if self._record is PART:
      return batch
    labels = np.zeros(present.shape, np.int32)
    labels[present] = pairs['is_random']
    batch['next_sentence_labels'] = labels
    if self._pack == 1:
      for name in ('next_sentence_labels', 'next_sentence_weights'):
        batch[name] = batch[name][:, 0]
    return batch

  def _find_pairs(self, shard, row):
    """Returns begin and end of the pairs of rows, in their shards."""
    if self._pack == 1:
      return row, row + 1
    size = self._number.itemsize
    at = self._starts[shard] + size * row
    raw = self._pairs.read(shard, at, at + 2 * size)
    bounds = np.frombuffer(raw, self._number)
    return bounds.reshape(-1, 2).astype(int).T


def lay_out(
  counts: np.ndarray,
  sizes: np.ndarray,
  most: int,
  length: int,
  cls_id: int,
  sep_id: int,
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
  """Makes the features of rows, without the token ids of the texts.

  Args:
    counts: [B] pairs per row, at most N (`most`).
    sizes: [M, 2] tokens of both texts of each pair, row by row; [M, 1] of parts.
    length: S, tokens per row.

  Returns:
    The features; is_text, bool [B, S], whose True cells in row-major order are to
    be filled with the tokens of all texts; present, bool [B, N], of the pairs.
  """
  present = np.arange(most) < counts[:, None]  # [B, N]
  size = np.zeros(present.shape, int)
  size[present] = (sizes + 1).sum(1) + 1  # [CLS], and [SEP] after each text
  end = np.cumsum(size, 1)
  start = end - size
  row = np.nonzero(present)[0][:, None]  # of each pair
  cls = start[present][:, None]  # [M, 1]
  seps = cls + np.cumsum(sizes + 1, 1)  # [M, 2] or [M, 1]
  position = np.arange(length, dtype=np.int32)
  real = position < end[:, -1:]  # [B, S]
  ids = np.zeros(real.shape, np.int32)
  ids[row, cls] = cls_id
  ids[row, seps] = sep_id
  text = real.copy()
  text[row, cls] = text[row, seps] = False
  turn = np.zeros((len(ids), length + 1), np.int32)  # a row may end at S
  turn[row, seps[:, :-1] + 1] = 1
  turn[row, seps[:, 1:] + 1] = -1
  batch = {
    'input_ids': ids,
    'input_mask': real.astype(np.int32),
    'segment_ids': np.cumsum(turn, 1, np.int32)[:, :length],
  }
  of_pairs = {'next_sentence_weights': present.astype(np.float32)}
  if most > 1:
    begins = np.zeros_like(ids)
    begins[row, cls] = 1
    sequence = np.cumsum(begins, 1, np.int32) * real
    begin = np.take_along_axis(start, np.maximum(sequence - 1, 0), 1)
    batch['sequence_ids'] = sequence
    batch['position_ids'] = ((position - begin) * real).astype(np.int32)
    of_pairs['cls_positions'] = np.where(present, start, 0).astype(np.int32)
  return batch | (of_pairs if sizes.shape[1] == 2 else {}), text, present


class _Files:
  """The bytes of several files, whose blocks are checked when first read."""

  def __init__(self, folder: str, entries: Sequence[dict]):
    self._paths = [os.path.join(folder, entry['name']) for entry in entries]
    _raise_file_limit(len(entries))
    self._maps = [_map(path) for path in self._paths]
    crcs = [np.frombuffer(bytes.fromhex(x['crc32c']), '<u4') for x in entries]
    self._crcs = np.concatenate(crcs)
    self._first = np.cumsum([0, *map(len, crcs)])  # block of each file
    self._is_sound = np.zeros(len(self._crcs), bool)

  def read(
    self, files: np.ndarray, begins: np.ndarray, ends: np.ndarray
  ) -> bytes:
    """Returns the bytes of ranges [N] of these files, joined; none is empty."""
    first = self._first[files] + begins // BLOCK
    last = self._first[files] + (ends - 1) // BLOCK
    ahead = np.arange((last - first).max(initial=0) + 1)[:, None]
    blocks = np.minimum(first + ahead, last)
    for block in np.unique(blocks[~self._is_sound[blocks]]).tolist():
      self._check(block)
    maps = self._maps
    ranges = zip(files.tolist(), begins.tolist(), ends.tolist(), strict=True)
    return b''.join([maps[file][begin:end] for file, begin, end in ranges])

  def _check(self, block: int):
    file = np.searchsorted(self._first, block, side='right') - 1
    path, number = self._paths[file], int(block - self._first[file])
    # Not through the map, where an error of the disk would kill the process.
    raw = storage.read(path, number * BLOCK, BLOCK)
    if google_crc32c.value(raw) != self._crcs[block]:
      raise errors.UserError(
        f'{path} is not as it was made: the checksum of its bytes from '
        f'{number * BLOCK:,} on differs from that in the manifest; prepare '
        'the data again.'
      )
    self._is_sound[block] = True


def list_files(
  shard: dict, lengths: Collection[int] | None = None
) -> list[dict]:
  """Returns the entries of a shard's files; None is all lengths."""
  pairs = [
    entry
    for length, entry in shard['files'].items()
    if lengths is None or int(length) in lengths
  ]
  return [shard['tokens_file'], *pairs]


def _map(path: str) -> mmap.mmap | bytes:
  if not os.path.getsize(path):
    return b''  # cannot be mapped
  with storage.open_binary(path) as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
  mapped.madvise(mmap.MADV_RANDOM)  # of what is evicted, read no neighbours
  return mapped


def _raise_file_limit(count: int):
  """Lets this process open `count` more files, as far as the system allows.

  Processes start with a limit of 256 (macOS) or 1,024 (Linux) files; 64 GB of
  text are 1,000 shards.
  """
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  wanted = soft + count if hard < 0 else min(soft + count, hard)  # -1: no limit
  if soft >= 0:
    with contextlib.suppress(OSError, ValueError):  # `_map` says if it is low
      resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
