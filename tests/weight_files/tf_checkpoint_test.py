"""TensorFlow's checkpoints, without TensorFlow."""

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


# {tensor: (dtype, offset, size, masked checksum)} of a released file.
RELEASED = {
  'bert/embeddings/LayerNorm/beta': (1, 0, 2048, 0xA425434B),
  'bert/embeddings/word_embeddings': (1, 1056768, 62509056, 0xC255F151),
  'cls/predictions/output_bias': (1, 165492736, 122088, 0x750741A3),
  'cls/seq_relationship/output_weights': (1, 166669552, 4096, 0x02652436),
}


def test_a_released_index_lists_every_tensor(real_data):
  folder = real_data / 'weights' / 'google_L-8_H-512_A-8_index'
  entries = tf_checkpoint.read_index(str(folder / 'bert_model.ckpt'))
  assert len(entries) == 142
  # Together they fill the data file without a gap.
  ends = sorted((e.offset, e.offset + e.size) for e in entries.values())
  assert [start for start, _ in ends[1:]] == [end for _, end in ends[:-1]]
  for name, places in RELEASED.items():
    e = entries[name]
    assert (e.dtype, e.offset, e.size, e.crc) == places, name


@pytest.mark.parametrize(
  ('value', 'message'),
  [
    (None, 'is not the index of a TensorFlow checkpoint'),
    (tf_files.number(1, 1) + tf_files.number(2, 1), 'big-endian'),
    (b'\x42\x7fx', 'field 8 of kind 2 is cut short'),
  ],
)
def test_an_index_that_cannot_be_is_refused(prefix, value, message):
  entries = dict(sstable.read(f'{prefix}.index')) | {b'': value}
  table = sorted((k, x) for k, x in entries.items() if x is not None)
  tf_files.write_table(f'{prefix}.index', table)
  with pytest.raises(errors.UserError, match=message):
    tf_checkpoint.read_index(prefix)


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    (tf_files.number(1, 7), "TensorFlow's type 7"),
    (tf_files.message(7, b''), 'stored in slices'),
    (tf_files.number(4, 1 << 30), 'the checksum of bert/b is wrong'),
    (tf_files.number(5, 20), 'the checksum of bert/b is wrong'),
  ],
)
def test_a_tensor_that_cannot_be_read_is_one_clear_error(
  prefix, fields, message
):
  entries = dict(sstable.read(f'{prefix}.index'))
  entries[b'bert/b'] += fields
  # A slice of a variable that is stored in parts has such a key.
  entries[b'\0\1bert/b'] = entries[b'bert/b']
  tf_files.write_table(f'{prefix}.index', sorted(entries.items()))
  index = tf_checkpoint.read_index(prefix)
  assert list(index) == sorted(TENSORS)
  assert tf_checkpoint.read(index['int']).tolist() == [-1, 5]
  with pytest.raises(errors.UserError, match=message):
    tf_checkpoint.read(index['bert/b'])


def test_a_flipped_bit_or_a_lost_byte_of_each_tensor_is_noticed(prefix):
  entries = tf_checkpoint.read_index(prefix)
  path = pathlib.Path(data_path(prefix))
  data = path.read_bytes()
  for name, entry in entries.items():
    last = entry.offset + entry.size - 1
    for broken in (
      data[:last],
      data[:last] + bytes([data[last] ^ 0x80]) + data[last + 1 :],
    ):
      path.write_bytes(broken)
      with pytest.raises(errors.UserError, match=f'checksum of {name} is wr'):
        tf_checkpoint.read(entry)
