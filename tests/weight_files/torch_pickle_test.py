"""What is read of pickles, and what is refused before it costs anything."""

import collections
import pickle
import pickletools
import struct

import pytest

from bert_jax.weight_files import torch_pickle
from tests.weight_files.hostile import refusal

DICT = b'ccollections\nOrderedDict\n'
TENSOR = b'ctorch._utils\n_rebuild_tensor_v2\n'
NESTED = b')' + b'\x85' * 49_999
# A tuple of twice the tuple before, 40 times: 2**40 values to hash.
DOUBLED = b')' + b''.join(b'q%ch%c\x86' % (i, i) for i in range(40))


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
def test_plain_values_are_those_of_pickle(protocol):
  value = {
    'none': (None, True, False),
    'numbers': [0, 255, 256, 65_536, -1, 2**31, -(2**70)],
    'texts': ('', 'é', 'x' * 300),
    'tuples': ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    'many': [[i] for i in range(1001)],
    'dict': {'one': {'two': {}}},
    'ordered': collections.OrderedDict(b=1, a=collections.OrderedDict()),
  }
  value['again'] = value['many']
  data = pickle.dumps(value, protocol)
  assert torch_pickle.load(b'..' + data + b'K\1.', 2) == (
    value,
    len(data) + 2,
    {},
  )


def test_only_the_opcodes_of_state_dicts_are_read():
  refused = set()
  for op in pickletools.opcodes:
    # An argument that any opcode can read.
    data = op.code.encode('latin-1') + b"''\n" + bytes(9)
    if 'has the opcode' in refusal(torch_pickle.load, data):
      refused.add(op.name)
  assert {'OBJ', 'NEWOBJ', 'NEWOBJ_EX', 'PERSID', 'POP', 'DUP'} <= refused
  assert {'EXT1', 'EXT2', 'EXT4', 'NEXT_BUFFER'} <= refused
  assert len(pickletools.opcodes) - len(torch_pickle._ALLOWED) == 34


@pytest.mark.parametrize(
  'data',
  [
    b'',
    b'.',
    b'K',
    b'X' + struct.pack('<I', 2**32 - 1) + b'x.',
    b'X\4\0\0\0abc',  # cut short
    b'X\1\0\0\0\xff.',  # not UTF-8
    b'X\3\0\0\0\xed\xa0\x80.',  # half a surrogate pair
    b'\x8a\xff\1.',
    b'\x95' + b'\xff' * 8,  # a frame of 2**64 - 1 bytes
    b'h\0.',
    b'r\xff\xff\xff\xff.',
    b'Nr\xff\xff\xff\x7f.',  # pickle would make room for 2**31 values
    b'\x94.',
    b'K\1\x86.',
    b'(K\1u.',
    b'}(K\1K\2u.',
    b'}(X\1\0\0\0au.',  # a name without a value
    b']]a]s.',
    b'K\1}b.',
    b')R.',
    b'\x93.',
    b'\xff.',
    DICT + b']R.',
    DICT + b'(K\1tR.',
    DICT + b'](K\1K\2ta\x85R.',  # of pairs, whose first are hashed
    # The state of a class or a function would be that of the next file.
    DICT + b'}X\1\0\0\0aK\1sb.',
    TENSOR + b'}X\1\0\0\0aK\1sb.',
    b'ctorch\nFloatStorage\n}b.',
    b'}' + NESTED + b'K\1s.',
    b'}' + DOUBLED + b'K\1s.',
    DICT + b')R' + DOUBLED + b'K\1s.',
  ],
)
def test_malformed_pickles(data):
  assert 'malformed' in refusal(torch_pickle.load, data)


@pytest.mark.parametrize(
  'data',
  [
    b'(' * 150_000,
    b')' + b'\x85' * 150_000,  # a tuple in a tuple in a ...
    b'K\1' + b'\x94' * 150_000,
  ],
)
def test_pickles_that_never_end_stop_early(data):
  assert 'more than 100,000 opcodes' in refusal(torch_pickle.load, data)


def test_values_nest_deeply_and_share_each_other():
  value, _, _ = torch_pickle.load(NESTED + b'.')
  depth = 0
  while value:
    (value,) = value
    depth += 1
  assert depth == 49_999
  assert len(torch_pickle.load(DOUBLED + b'.')[0]) == 2
