"""TensorFlow's checkpoints, without TensorFlow."""

import os
import pathlib

import ml_dtypes
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.weight_files import sstable, tf_checkpoint
from tests.weight_files import tf_files

F32 = np.arange(6, dtype=np.float32).reshape(2, 3)
TENSORS = {
  'bert/b': F32,
  'bert/B': np.float64([[0.1]]),
  'half': np.float16([1, 2.5]),
  'brain': np.arange(3).astype(ml_dtypes.bfloat16),
  'global_step': np.int64(1_000_000),
  'int': np.int32([-1, 5]),
}


@pytest.fixture
def prefix(tmp_path):
  prefix = str(tmp_path / 'bert_model.ckpt')
  tf_files.write_checkpoint(prefix, TENSORS)
  return prefix


def data_path(prefix):
  return f'{prefix}.data-00000-of-00001'


def test_what_was_written_is_read_bit_for_bit(prefix):
  entries = tf_checkpoint.read_index(prefix)
  # In the order of their bytes: capitals first.
  assert list(entries) == [
    'bert/B',
    'bert/b',
    'brain',
    'global_step',
    'half',
    'int',
  ]
  for name, value in TENSORS.items():
    read = tf_checkpoint.read(entries[name])
    assert read.dtype == value.dtype and read.shape == value.shape
    assert read.tobytes() == value.tobytes()


def test_several_data_files_are_read(prefix):
  entries = sstable.read(f'{prefix}.index')
  header = tf_files.number(1, 2)
  shard = tf_files.number(3, 1)
  table = [(b'', header)] + [
    (key, value + shard if key == b'int' else value)
    for key, value in entries[1:]
  ]
  tf_files.write_table(f'{prefix}.index', table)
  os.rename(data_path(prefix), f'{prefix}.data-00001-of-00002')
  entries = tf_checkpoint.read_index(prefix)
  assert tf_checkpoint.read(entries['int']).tolist() == [-1, 5]
  with pytest.raises(errors.UserError, match='data-00000-of-00002: No such'):
    tf_checkpoint.read(entries['half'])


@pytest.fixture(params=['google_L-8_H-512_A-8', 'chinese_wwm_L-12_H-768_A-12'])
def real(request):
  data = os.environ.get('BERT_JAX_TEST_DATA')
  folder = os.path.join(data or '', 'weights', f'{request.param}_index')
  if not data or not os.path.isdir(folder):
    pytest.skip('BERT_JAX_TEST_DATA has no weights')
  return os.path.join(folder, 'bert_model.ckpt')


# (dtype, offset, size, masked checksum) of tensors in released files.
RELEASED = {
  'google_L-8_H-512_A-8': {
    'bert/embeddings/LayerNorm/beta': (1, 0, 2048, 0xA425434B),
    'bert/embeddings/word_embeddings': (1, 1056768, 62509056, 0xC255F151),
    'cls/predictions/output_bias': (1, 165492736, 122088, 0x750741A3),
    'cls/seq_relationship/output_bias': (1, 166669544, 8, 0xDB5A0442),
    'cls/seq_relationship/output_weights': (1, 166669552, 4096, 0x02652436),
  },
  'chinese_wwm_L-12_H-768_A-12': {
    'bert/embeddings/LayerNorm/beta': (1, 0, 3072, 0x7F938A7B),
    'cls/seq_relationship/output_weights': (1, 411523624, 6144, 0x42FAE216),
    'global_step': (9, 411529768, 8, 0x07980329),
  },
}


def test_released_indexes_list_every_tensor(real):
  entries = tf_checkpoint.read_index(real)
  large = 'chinese' in real
  assert len(entries) == (207 if large else 142)
  # Together they fill the data file without a gap.
  ends = sorted((e.offset, e.offset + e.size) for e in entries.values())
  assert [start for start, _ in ends[1:]] == [end for _, end in ends[:-1]]
  assert ends[-1][1] == (411_529_776 if large else 166_673_648)
  folder = os.path.basename(os.path.dirname(real)).removesuffix('_index')
  for name, places in RELEASED[folder].items():
    e = entries[name]
    assert (e.dtype, e.offset, e.size, e.crc) == places, name
  assert all(e.crc for e in entries.values())
  with pytest.raises(errors.UserError, match='data-00000-of-00001: No such'):
    tf_checkpoint.read(entries['cls/predictions/output_bias'])


def replaced(**fields):
  """Returns a BundleEntryProto of [2, 3] floats with other fields."""
  values = {
    'dtype': tf_files.number(1, 1),
    'shape': shape(2, 3),
    'shard': b'',
    'offset': tf_files.number(4, 8),
    'size': tf_files.number(5, 24),
    'more': b'',
  }
  return b''.join((values | fields).values())


def shape(*sizes):
  dims = (tf_files.number(1, size % (1 << 64)) for size in sizes)
  return tf_files.message(2, b''.join(tf_files.message(2, dim) for dim in dims))


number = tf_files.number
EMPTY = tf_files.message(2, b'')


@pytest.mark.parametrize(
  ('key', 'value', 'message'),
  [
    (b'bert/b', replaced(shape=shape(1 << 62, 1 << 62)), 'takes 8507'),
    (b'bert/b', replaced(shape=shape(-1, 3)), 'not a number from 0'),
    (b'bert/b', replaced(shape=shape(2, 4)), 'takes 32 bytes, it has 24'),
    (b'bert/b', replaced(shape=shape(*[1] * 9)), 'has 9 axes'),
    (b'bert/b', replaced(shape=number(2, 7)), 'field 2 is 7, not a message'),
    (b'bert/b', replaced(dtype=number(1, 2)), 'takes 48 bytes, it has 24'),
    (b'bert/b', replaced(dtype=EMPTY.replace(b'\x12', b'\n')), 'field 1 is'),
    (b'bert/b', replaced(shard=number(3, 1)), 'data file 1 of 1'),
    (b'bert/b', replaced(offset=number(4, 7)), 'two tensors share byte 7'),
    (b'bert/b', replaced(offset=number(4, 1 << 63)), 'field 4 is 92233'),
    (b'bert/b', replaced(size=number(5, 1 << 62)), 'takes 24 bytes, it has 46'),
    (b'bert/b', replaced(more=b'\x42\x7fx'), 'field 8 is cut short'),
    (b'bert/\xff', replaced(), "can't decode byte 0xff"),
    (b'bert/\n', replaced(), r"the name 'bert/\\n'"),
    (b'', b'', 'data file 0 of 0'),
    (b'', number(1, 1) + number(2, 1), 'big-endian'),
  ],
)
def test_an_index_that_cannot_be_is_refused(prefix, key, value, message):
  entries = dict(sstable.read(f'{prefix}.index')) | {key: value}
  tf_files.write_table(f'{prefix}.index', sorted(entries.items()))
  with pytest.raises(errors.UserError, match=message) as error:
    tf_checkpoint.read_index(prefix)
  assert '\n' not in str(error.value) and len(str(error.value)) < 500


def test_a_table_that_is_no_checkpoint_is_refused(prefix):
  for entries in ([], [(b'bert/b', replaced())]):
    tf_files.write_table(f'{prefix}.index', entries)
    with pytest.raises(errors.UserError, match='lacks the header'):
      tf_checkpoint.read_index(prefix)


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'offset': number(4, 1 << 50)}, 'ends at 1,125,899,906,842,648'),
    ({'dtype': number(1, 7)}, "TensorFlow's type 7"),
    ({'more': tf_files.message(7, b'')}, 'stored in slices'),
    ({'shape': shape(1 << 62, 0), 'size': b''}, 'empty'),
    ({}, 'the checksum of bert/b is wrong'),
  ],
)
def test_a_tensor_that_cannot_be_read_is_one_clear_error(
  prefix, fields, message
):
  entries = dict(sstable.read(f'{prefix}.index'))
  entries[b'bert/b'] = replaced(**fields)
  # A slice of a variable that is stored in parts has such a key.
  entries[b'\0\1bert/b'] = replaced()
  tf_files.write_table(f'{prefix}.index', sorted(entries.items()))
  found = tf_checkpoint.read_index(prefix)
  assert list(found) == sorted(TENSORS)
  assert tf_checkpoint.read(found['int']).tolist() == [-1, 5]
  with pytest.raises(errors.UserError, match=message) as error:
    tf_checkpoint.read(found['bert/b'])
  assert '\n' not in str(error.value)


def test_a_flipped_bit_of_each_tensor_is_noticed(prefix):
  entries = tf_checkpoint.read_index(prefix)
  data = pathlib.Path(data_path(prefix)).read_bytes()
  for name, entry in entries.items():
    broken = bytearray(data)
    broken[entry.offset + entry.size - 1] ^= 0x80
    pathlib.Path(data_path(prefix)).write_bytes(broken)
    with pytest.raises(errors.UserError, match=f'checksum of {name} is wrong'):
      tf_checkpoint.read(entry)
    pathlib.Path(data_path(prefix)).write_bytes(
      data[: entry.offset + entry.size - 1]
    )
    with pytest.raises(errors.UserError, match=f'but {name} ends at'):
      tf_checkpoint.read(entry)
