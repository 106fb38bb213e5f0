"""Opens files: local or remote, plain or compressed, of any size.

A path is local, or a URL that fsspec opens, such as gs://bucket/text/*.gz.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from bert_jax import errors
from bert_jax.runtime import disk, globs, storage

# What decompressors raise for a truncated or damaged file.
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)

_COMPRESSED = ('.gz', '.bz2', '.xz', '.zst')
_HEAD = 1 << 16  # bytes
_ZSTD_BYTES = 1 << 12  # read at a time: these can decompress to 100 MB
_LONGEST_LINE = 1 << 20  # bytes; longer ones come in parts


def expand(given: str) -> list[str]:
  """Returns the sorted files that a path, a glob or a folder names.

  Raises:
    errors.UserError: if there are none.
  """
  what = f'input {given!r} cannot be listed'
  advice = 'check the address and your permissions.'
  with errors.explaining(what, advice, (OSError, ValueError)):
    paths = globs.expand(given)
  if not paths:
    raise errors.UserError(
      f'input {given!r} names no file; check the path or the glob (quote it; '
      '** goes into directories).'
    )
  return paths


def list_sizes(given: str) -> dict[str, int]:
  """Returns {path: bytes} of the files that `expand` returns, in its order.

  Raises:
    errors.UserError: if there are none, or one cannot be found.
  """
  sizes = {}
  for path in expand(given):
    what = f'input {given!r}: cannot read {path}'  # such as a link to nothing
    with errors.explaining(what, 'remove it or put it back.'):
      sizes[path] = storage.get_size(path)
  return sizes


def get_extension(path: str) -> str:
  """Returns a file's extension, before that of its compression (.gz etc.)."""
  return os.path.splitext(_uncompressed_name(path))[1].lower()


def is_compressed(path: str) -> bool:
  return _uncompressed_name(path) != path


def compute_sha256(path: str) -> str:
  """Returns the SHA-256 of a file as stored (compressed), in hexadecimal.

  Raises:
    errors.UserError: if it cannot be read.
  """
  with _open_raw(path) as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def open_text(path: str) -> BinaryIO:
  """Opens a file for reading its decompressed bytes.

  Raises:
    errors.UserError: if it cannot be opened; also from later reads, if the disk
      or the bucket fails. Those of a damaged archive raise one of DAMAGED.
  """
  kind = os.path.splitext(path)[1].lower()
  raw = _open_raw(path)
  if kind == '.gz':
    return _own(gzip.open(raw), raw)
  if kind == '.bz2':
    return _own(bz2.open(raw), raw)
  if kind == '.xz':
    return _own(lzma.open(raw), raw)
  if kind == '.zst':
    return io.BufferedReader(_Zstd(raw))
  return raw


def read_head(path: str) -> bytes:
  """Returns the first decompressed bytes of a file, which show its format."""
  with open_text(path) as file:
    return file.read(_HEAD)


def read_lines(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, bytes]]:
  """Yields (byte offset, line with its line feed) of a file.

  The first line is the first that begins at or after byte `start`.

  A line of more than a megabyte comes in parts, cut at a space or between two
  characters, to bound the memory.
  """
  offset = start
  if start:
    # The byte before `start` shows whether a line begins there.
    file.seek(start - 1)
    offset = start - 1
    while piece := file.readline(_LONGEST_LINE):
      offset += len(piece)
      if piece.endswith(b'\n'):
        break
  rest = b''
  while line := file.readline(_LONGEST_LINE):
    line, rest = rest + line, b''
    if len(line) >= _LONGEST_LINE and not line.endswith(b'\n'):
      cut = _cut(line)
      line, rest = line[:cut], line[cut:]
    yield offset, line
    offset += len(line)
  if rest:
    yield offset, rest


def _cut(line: bytes) -> int:
  """Returns where to cut a long line: after a space, or between characters."""
  space = line.rfind(b' ', len(line) // 2) + 1
  if space:
    return space
  cut = len(line)
  while cut > len(line) - 4 and line[cut - 1] & 0xC0 == 0x80:
    cut -= 1  # continuation bytes
  # The byte before them leads the character, unless it is ASCII.
  return cut - 1 if line[cut - 1] >= 0xC0 else len(line)


def _uncompressed_name(path: str) -> str:
  stem, kind = os.path.splitext(path)
  return stem if kind.lower() in _COMPRESSED else path


def _own(file: BinaryIO, raw: BinaryIO) -> BinaryIO:
  """Returns a decompressing file that closes the file that it reads, too."""
  return io.BufferedReader(_Owner(file, raw), _HEAD)


class _Owner(io.RawIOBase):
  """Closes both of two files; gzip, bz2 and lzma leave the one below open."""

  def __init__(self, file: BinaryIO, raw: BinaryIO):
    self._file, self._raw = file, raw

  def readable(self):
    return True

  def readinto(self, buffer):
    # read1, not readinto: that drops what stands before a damaged block.
    found = self._file.read1(len(buffer))
    buffer[: len(found)] = found
    return len(found)

  def close(self):
    self._file.close()
    self._raw.close()
    super().close()


class _Zstd(io.RawIOBase):
  """Reads .zst files; zstandard's own reader accepts truncated files."""

  def __init__(self, raw: BinaryIO):
    self._raw = raw
    self._frame = None
    self._given = self._made = b''

  def readable(self):
    return True

  def close(self):
    self._raw.close()
    super().close()

  def readinto(self, buffer):
    while not self._made:
      self._given = self._given or self._raw.read(_ZSTD_BYTES)
      if not self._given:
        if self._frame is not None:
          raise EOFError('the file ends within a frame')
        return 0
      self._decompress()
    n = min(len(buffer), len(self._made))
    buffer[:n] = self._made[:n]
    self._made = self._made[n:]
    return n

  def _decompress(self):
    import zstandard

    if self._frame is None:
      self._frame = zstandard.ZstdDecompressor().decompressobj()
    try:
      self._made = memoryview(self._frame.decompress(self._given))
    except zstandard.ZstdError as error:
      raise OSError(str(error)) from error
    self._given = b''
    if self._frame.eof:
      self._given, self._frame = self._frame.unused_data, None


def _open_raw(path: str) -> BinaryIO:
  advice = 'check the path and its permissions.'
  with errors.explaining(f'cannot read {path}', advice):
    if storage.is_remote(path):
      return storage.open_binary(path)
    local = _Local(path, opener=disk.open_regular)
    return io.BufferedReader(local, _HEAD)


class _Local(io.FileIO):
  """A local file; a disk that fails later is not taken for a damaged file."""

  def readinto(self, buffer):
    with _reporting(self.name):
      return super().readinto(buffer)

  def readall(self):
    with _reporting(self.name):
      return super().readall()


def _reporting(path: str):
  advice = 'put that right, then run the same command again.'
  return errors.explaining(f'cannot read {path}', advice)
