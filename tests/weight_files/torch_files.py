"""Writes files of torch.save byte by byte, sound ones and others."""

import pathlib
import struct
import zipfile

# Opcodes, see pickletools: protocol 2, NEWFALSE, STOP.
START, FALSE, STOP = b'\x80\x02', b'\x89', b'.'


def text(value: str) -> bytes:
  raw = value.encode()
  return b'X' + struct.pack('<I', len(raw)) + raw


def number(value: int) -> bytes:
  raw = value.to_bytes(value.bit_length() // 8 + 1, 'little', signed=True)
  return b'\x8a' + bytes([len(raw)]) + raw


def name(dotted: str) -> bytes:
  module, _, attribute = dotted.rpartition('.')
  return f'c{module}\n{attribute}\n'.encode()


def many(*values: bytes) -> bytes:
  """Returns a tuple."""
  return b'(' + b''.join(values) + b't'


def call(dotted: str, *arguments: bytes) -> bytes:
  return name(dotted) + many(*arguments) + b'R'


EMPTY = call('collections.OrderedDict')


def storage(key='0', size=6, kind='Float', view=()) -> bytes:
  fields = text('storage'), name(f'torch.{kind}Storage'), text(key), text('cpu')
  return many(*fields, number(size), *view) + b'Q'


def tensor(stored=None, offset=0, shape=(2, 3), strides=(3, 1)) -> bytes:
  return call(
    'torch._utils._rebuild_tensor_v2',
    storage() if stored is None else stored,
    number(offset),
    many(*map(number, shape)),
    many(*map(number, strides)),
    FALSE,
    EMPTY,
  )


def state_dict(**tensors: bytes) -> bytes:
  items = b''.join(text(n) + value for n, value in tensors.items())
  return START + EMPTY + b'(' + items + b'u' + STOP


def write_zip(path, pickle: bytes, storages: dict, **more) -> str:
  """Writes what torch from 1.6 on writes, and more members."""
  members = {'data.pkl': pickle, **more}
  members |= {f'data/{key}': data for key, data in storages.items()}
  with zipfile.ZipFile(path, 'w') as z:
    for member, data in members.items():
      z.writestr(f'archive/{member}', data)
  return str(path)


def write_legacy(
  path, pickle: bytes, storages: dict, item_size=4, **more
) -> str:
  """Writes what older ones write; `more` replaces parts of the same name."""
  keys = START + b'](' + b''.join(map(text, storages)) + b'e' + STOP
  machine = START + b'}' + text('little_endian') + b'\x88s' + STOP
  parts = {
    'magic': START + number(0x1950A86A20F9469CFC6C) + STOP,
    'version': START + number(1001) + STOP,
    'machine': machine,
    'pickle': pickle,
    'keys': keys,
    'numbers': b''.join(
      struct.pack('<q', len(data) // item_size) + data
      for data in storages.values()
    ),
  }
  pathlib.Path(path).write_bytes(b''.join((parts | more).values()))
  return str(path)
