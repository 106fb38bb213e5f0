"""Opens files: local or remote, plain or compressed, of any size.

A path is local, or a URL that fsspec opens, such as gs://bucket/text/*.gz.
"""

import bz2
import codecs
import contextlib
import gzip
import hashlib
import io
import lzma
import math
import os
import re
import shlex
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO
from xml.etree import ElementTree

from bert_jax import errors
from bert_jax.runtime import hub, storage

_HEAD = 1 << 16  # bytes
_LONGEST_LINE = 1 << 20  # bytes; longer ones come in parts
# Of `datasets.save_to_disk`: a part, and what lists splits in a folder above.
_SAVED = re.compile(r'(^|/)data-\d{5}-of-\d{5}\.arrow$')
_BESIDE = re.compile(
  r'(^|/)(state|dataset_info)\.json$|(^|/)cache-[^/]*\.arrow$'
)
_SPLITS = 'dataset_dict.json'
_AGAIN = 'correct that, then run the same command again.'
# What reading an archive or a dump raises that is cut short or holds wrong bytes,
# and see `is_damage`.
DAMAGE = (
  *(EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile),
  ElementTree.ParseError,
)


def expand(given: str) -> list[str]:
  """Returns the sorted files that a path, a glob or a folder names."""
  if given.startswith(hub.DATASET):
    given = hub.pin(given)
  what = f'input {given!r} cannot be listed'
  advice = 'check the address and your permissions.'
  with errors.explaining(what, advice, (OSError, ValueError)):
    paths = storage.expand(given)
  if not paths:
    raise errors.UserError(
      f'input {given!r} names no file; check the path or the glob (quote it; '
      '** goes into directories).'
    )
  return paths


def list_sizes(given: str) -> dict[str, int]:
  """Returns {path: bytes} of the files that `expand` returns, in its order.

  Those that `datasets.save_to_disk` and caches write beside texts are left out.
  """
  paths = expand(given)
  folders = {os.path.dirname(x) for x in paths if _SAVED.search(x)}
  above = {os.path.join(os.path.dirname(x), _SPLITS) for x in folders}
  sizes = {}
  for path in paths:
    is_beside = os.path.dirname(path) in folders and _BESIDE.search(path)
    if path not in above and not is_beside:
      with errors.explaining(f'cannot read {path}'):  # such as a broken link
        sizes[path] = storage.get_size(path)
  return sizes


def get_extension(path: str) -> str:
  """Returns a file's extension, ignoring one of compression (.gz etc.)."""
  stem = os.path.splitext(path)[0] if has_compressed_name(path) else path
  return os.path.splitext(stem)[1].lower()


def has_compressed_name(path: str) -> bool:
  return os.path.splitext(path)[1].lower() in _DECOMPRESS


def is_compressed(path: str) -> bool:
  """Returns whether a file is compressed, by its first bytes."""
  with _open_raw(path) as raw:
    return _find_decompressor(raw) is not None


def compute_sha256(path: str) -> str:
  """Returns the SHA-256 of a file as stored (compressed), in hexadecimal."""
  with _open_raw(path) as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


@contextlib.contextmanager
def open_text(path: str) -> Iterator[BinaryIO]:
  """Opens a file for reading its decompressed bytes."""
  with _open_raw(path) as raw, errors.explaining(f'cannot read {path}', _AGAIN):
    decompress = _find_decompressor(raw)
    yield (
      io.BufferedReader(_Steps(decompress(raw)), _HEAD) if decompress else raw
    )


def read_head(path: str) -> bytes:
  """Returns the first decompressed bytes of a file, which show its format.

  Where an archive is damaged, they end with the last whole line before.
  """
  head = bytearray()
  with open_text(path) as file:
    try:
      while len(head) < _HEAD and (line := file.readline(_HEAD)):
        head += line
    except (*DAMAGE, OSError) as error:
      if not is_damage(error, path):
        raise
  return bytes(head)


def is_damage(error: Exception, path: str) -> bool:
  """Returns whether a file is damaged, by what reading it raised."""
  if isinstance(error, DAMAGE):
    return True
  # That of bz2 and zstd is plain; that of a disk or a bucket has a number.
  is_plain = type(error) is OSError and error.errno is None
  return is_plain and is_compressed(path)


def refuse_utf16(path: str, head: bytes):
  """Raises errors.UserError if a file has a mark of UTF-16."""
  if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
    raise errors.UserError(
      f'{path} is UTF-16; convert it, for example with: '
      f'iconv -f UTF-16 -t UTF-8 {shlex.quote(path)}'
    )


def find_line(file: BinaryIO, at: int, matches: Callable[[bytes], bool]) -> int:
  """Returns where the first line begins, at a byte or later, that `matches`.

  0 is its own answer; without such a line, it is the end of the file.
  """
  if not at:
    return 0
  # The byte before shows whether a line begins there.
  file.seek(at - 1)
  offset, is_new = at - 1, False
  while line := file.readline(_LONGEST_LINE):
    if is_new and matches(line):
      break
    offset += len(line)
    is_new = line.endswith(b'\n')
  return offset


def read_lines(
  file: BinaryIO, start: int = 0, stop: float = math.inf
) -> Iterator[bytes]:
  """Yields the lines between two offsets where lines begin, with line feeds.

  One of more than a megabyte comes in parts, cut after another end of line, at a
  space or between two characters, to bound the memory. A byte order mark at the
  file's beginning is left out.
  """
  if stop < math.inf:  # else it is being read from its beginning
    file.seek(start)
  offset, rest, mark = start, b'', b'' if start else codecs.BOM_UTF8
  while offset < stop and (line := file.readline(_LONGEST_LINE)):
    offset += len(line)
    line, rest = rest + line, b''
    if len(line) >= _LONGEST_LINE and not line.endswith(b'\n'):
      cut = _cut(line)
      line, rest = line[:cut], line[cut:]
    yield line.removeprefix(mark)
    mark = b''
  if rest:
    yield rest


def _cut(line: bytes) -> int:
  """Returns where to cut a long line: where one of old Macs ends, or a word."""
  for end in (b'\r', b' '):
    # Not at its last byte, since a line feed may follow.
    if cut := line.rfind(end, len(line) // 2, len(line) - 1) + 1:
      return cut
  cut = len(line)
  while cut > len(line) - 4 and line[cut - 1] & 0xC0 == 0x80:
    cut -= 1  # continuation bytes
  # The byte before them leads the character, unless it is ASCII.
  return cut - 1 if line[cut - 1] >= 0xC0 else len(line)


class _Steps(io.RawIOBase):
  """What an archive decompresses to, for a BufferedReader, which finds lines fast.

  Archives' own `readinto` drops what it has read before it meets damage.
  """

  def __init__(self, archive: BinaryIO):
    self._archive = archive
    self.seekable, self.seek = archive.seekable, archive.seek  # for columns
    self.tell = archive.tell

  def readable(self):
    return True

  def readinto(self, buffer):
    part = self._archive.read1(len(buffer))
    buffer[: len(part)] = part
    return len(part)


def _open_zstd(raw: BinaryIO) -> BinaryIO:
  import pyarrow  # here, since few inputs need it

  return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, 'r'), 'zstd')


# {extension: (first bytes, how to decompress)}
_DECOMPRESS = {
  '.gz': (rb'\x1f\x8b\x08', gzip.open),
  '.bz2': (rb'BZh[1-9][1\x17]', bz2.open),
  '.xz': (rb'\xfd7zXZ\0', lzma.open),
  '.zst': (rb'\x28\xb5\x2f\xfd', _open_zstd),
}


def _find_decompressor(raw: BinaryIO) -> Callable | None:
  """Returns what decompresses an open file, by its first bytes."""
  begin = raw.read(6)
  raw.seek(0)
  runs = (run for magic, run in _DECOMPRESS.values() if re.match(magic, begin))
  return next(runs, None)


def _open_raw(path: str) -> BinaryIO:
  advice = 'check the path and its permissions.'
  with errors.explaining(f'cannot read {path}', advice):
    return storage.open_binary(path)
