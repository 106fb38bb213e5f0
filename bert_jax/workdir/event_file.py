"""Writes event files, which TensorBoard shows as curves.

Each record is an event, a Protocol Buffer, with its length and checksums, as in
TFRecord files. The numbers of its fields are those of TensorFlow's event.proto and
summary.proto. Written by hand, since tensorboardX imports PyTorch where that is
installed, which takes ten seconds and 750 MB.
"""

import os
import socket
import struct
import time
from collections.abc import Mapping

from bert_jax.weight_files import protobuf, sstable

_VERSION = b'brain.Event:2'
# Fields of an event, of its summary, of a value in that, and of a session log.
_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7
_VALUE = 1
_TAG, _SIMPLE_VALUE = 1, 2
_STATUS, _START = 1, 1


class EventFile:
  """An event file that is being written; each event reaches it at once."""

  def __init__(self, folder: str, step: int):
    """Opens a new file for events after `step`, which hides older ones."""
    now = int(time.time())
    name = f'events.out.tfevents.{now}.{socket.gethostname()}.{step}'
    self._file = open(os.path.join(folder, name), 'wb')
    self._write(_bytes(_FILE_VERSION, _VERSION))
    restart = _bytes(_SESSION_LOG, _integer(_STATUS, _START))
    self._write(_integer(_STEP, step + 1) + restart)

  def write(self, step: int, numbers: Mapping[str, float]):
    """Adds the value of each curve at a step."""
    values = (
      _bytes(_TAG, tag.encode())
      + _key(_SIMPLE_VALUE, 5)
      + struct.pack('<f', number)
      for tag, number in numbers.items()
    )
    summary = b''.join(_bytes(_VALUE, value) for value in values)
    self._write(_integer(_STEP, step) + _bytes(_SUMMARY, summary))

  def close(self):
    self._file.close()

  def _write(self, fields: bytes):
    event = _key(_TIME, 1) + struct.pack('<d', time.time()) + fields
    size = struct.pack('<Q', len(event))
    checksums = (sstable.compute_checksum(part) for part in (size, event))
    first, second = (struct.pack('<I', value) for value in checksums)
    self._file.write(size + first + event + second)
    self._file.flush()


def _key(field: int, wire_type: int) -> bytes:
  return protobuf.encode_varint(field << 3 | wire_type)


def _integer(field: int, value: int) -> bytes:
  return _key(field, 0) + protobuf.encode_varint(value)


def _bytes(field: int, value: bytes) -> bytes:
  return _key(field, 2) + protobuf.encode_varint(len(value)) + value
