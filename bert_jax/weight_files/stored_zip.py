"""Opens zip files whose members are stored as they are, not compressed."""

import contextlib
import io
import os
import reprlib
import struct
import zipfile
from collections.abc import Iterator

from bert_jax import errors

_MAX_DIRECTORY = 1 << 20  # bytes; BERT-large's takes 26 kB
_ENCRYPTED = 1  # a bit of a member's flags
_DAMAGED = (
  zipfile.BadZipFile,
  EOFError,
  NotImplementedError,
  OverflowError,
  ValueError,
  struct.error,
)


class _File(io.BufferedReader):
  """A file whose reads are limited while its list of members is read."""

  limited = True

  def read(self, size: int | None = -1) -> bytes:
    if not self.limited:
      return super().read(size)
    most = _MAX_DIRECTORY + 1
    data = super().read(size if 0 <= size < most else most)
    if len(data) == most:
      raise errors.UserError(
        f'its list of members takes more than {_MAX_DIRECTORY:,} bytes; it is '
        'not a BERT.'
      )
    return data


@contextlib.contextmanager
def open_stored(path: str) -> Iterator[zipfile.ZipFile]:
  """Opens a zip whose members together have no more bytes than the file.

  Reading a member checks its CRC. Raises errors.UserError if the file is damaged,
  which the body may find out, or has a member that is compressed or encrypted,
  or two of the same name or at one place.
  """
  with (
    errors.explaining('it is cut short or damaged', 'copy it again.', _DAMAGED),
    _File(io.FileIO(path)) as file,
    zipfile.ZipFile(file) as archive,
  ):
    file.limited = False
    _check_members(archive, os.path.getsize(path))
    yield archive


def _check_members(archive, size):
  members = archive.infolist()
  for member in members:
    if member.compress_type or member.flag_bits & _ENCRYPTED:
      raise errors.UserError(
        f'its member {reprlib.repr(member.filename)} is compressed or '
        'encrypted, only stored ones are read; save it again.'
      )
    if not member.CRC:  # torch.serialization.set_crc32_options(False)
      del member.CRC  # is not checked then
  if len(set(archive.namelist())) < len(members):
    raise ValueError('it has a name twice')
  # Python 3.14 only warns of this.
  if len({member.header_offset for member in members}) < len(members):
    raise ValueError('two of its members begin at one place')
  if sum(member.file_size for member in members) > size:
    raise ValueError('its members have more bytes than it has')
