"""Writes TensorFlow V2 checkpoints, sound ones and others, as TensorFlow does."""

import os

import ml_dtypes

from bert_jax.interop import config_file, rename, vocabulary
from bert_jax.runtime import files
from bert_jax.tokenization import tokenizer
from bert_jax.weight_files import sstable
from tests import models

_DTYPES = {'f4': 1, 'f8': 2, 'i4': 3, 'i8': 9, 'f2': 19}
_RESTART = 16  # entries; every 16th is written with its whole key


def number(field: int, value: int) -> bytes:
  """Returns a field of a message with a number; 0 is left out."""
  return (
    sstable.encode_varint(field << 3) + sstable.encode_varint(value)
    if value
    else b''
  )


def message(field: int, value: bytes) -> bytes:
  """Returns a field with bytes, such as another message."""
  return (
    sstable.encode_varint(field << 3 | 2)
    + sstable.encode_varint(len(value))
    + value
  )


def write_table(path, entries, block=256 << 10):
  """Writes sorted (key, value) in blocks of so many bytes at least."""
  with open(path, 'wb') as f:
    index, part, size = [], [], 0
    for key, value in entries:
      part.append((key, value))
      size += len(key) + len(value)
      if size >= block:
        index.append((key, write_block(f, part)))
        part, size = [], 0
    if part:  # the index ends with the shortest greater key
      end = bytes([key[0] + 1]) if key else key
      index.append((end, write_block(f, part)))
    write_end(f, index)


def write_end(f, index):
  """Writes the metaindex, the index {last key: handle} and the footer."""
  footer = write_block(f, [], 1) + write_block(f, index, 1)
  f.write(footer.ljust(40, b'\0') + bytes.fromhex('57fb808b247547db'))


def write_block(f, entries, every=_RESTART) -> bytes:
  """Writes a block; returns its handle."""
  out, restarts, last = bytearray(), [], b''
  for i, (key, value) in enumerate(entries):
    if i % every == 0:
      restarts.append(len(out))
      last = b''
    shared = len(os.path.commonprefix([last, key]))
    out += b''.join(
      map(sstable.encode_varint, (shared, len(key) - shared, len(value)))
    )
    out += key[shared:] + value
    last = key
  restarts = restarts or [0]
  out += b''.join(x.to_bytes(4, 'little') for x in (*restarts, len(restarts)))
  handle = sstable.encode_varint(f.tell()) + sstable.encode_varint(len(out))
  out += b'\0'
  f.write(out + sstable.compute_checksum(bytes(out)).to_bytes(4, 'little'))
  return handle


def write_checkpoint(prefix, tensors):
  """Writes an index and one data file."""
  table = [(b'', number(1, 1) + message(3, number(1, 1)))]
  with open(f'{prefix}.data-00000-of-00001', 'wb') as f:
    for name in sorted(tensors, key=str.encode):
      value = tensors[name]
      data, brain = value.tobytes(), value.dtype == ml_dtypes.bfloat16
      shape = b''.join(message(2, number(1, size)) for size in value.shape)
      crc = sstable.compute_checksum(data).to_bytes(4, 'little')
      entry = (
        number(1, 14 if brain else _DTYPES[value.dtype.str[1:]])
        + message(2, shape)
        + number(4, f.tell())
        + number(5, len(data))
        + sstable.encode_varint(6 << 3 | 5)
        + crc
      )
      table.append((name.encode(), entry))
      f.write(data)
  write_table(f'{prefix}.index', table)


def write_model(path, params, config=models.CONFIG, words=models.TOKENIZER):
  """Writes a folder like Google's; returns its path."""
  os.mkdir(path)
  tensors = rename.to_theirs(params, config, 'google')
  write_checkpoint(os.path.join(path, 'bert_model.ckpt'), tensors)
  tokenizer.write_vocab(words.vocab, os.path.join(path, vocabulary.NAME))
  theirs = config_file.from_config(config) | {'hidden_act': 'gelu'}
  del theirs['layer_norm_eps']
  files.write_json(os.path.join(path, 'bert_config.json'), theirs)
  # Added by hand: the vocabulary is too small to tell.
  settings = {
    'tokenizer_class': 'BertTokenizer',
    'do_lower_case': words.lowercase,
    'strip_accents': words.strip_accents,
  }
  files.write_json(os.path.join(path, vocabulary.SETTINGS), settings)
  return str(path)
