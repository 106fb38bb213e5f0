"""What the interpreter of pickles builds and refuses."""

import collections
import pickle
import pickletools
import struct

import pytest

from bert_jax.weight_files import pickle_machine
from tests.weight_files.hostile import refusal

ORDERED = {'collections.OrderedDict': lambda: {}}


def load(data):
  return pickle_machine.load(data, 0, ORDERED, lambda key: ('stored', key))


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
def test_plain_values_are_those_of_pickle(protocol):
  value = {
    'none': (None, True, False),
    'numbers': [0, 255, 256, 65_536, -1, 2**31, -(2**70)],
    'texts': ('', 'é', 'x' * 300),
    'tuples': ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    'many': [[i] for i in range(1001)],
    'dict': {'one': {'two': {}}},
  }
  value['again'] = value['many']
  data = pickle.dumps(value, protocol)
  assert load(data) == (value, len(data))


@pytest.mark.parametrize('protocol', [2, 4])
def test_ordered_dicts_become_dicts(protocol):
  value = collections.OrderedDict(b=1, a=collections.OrderedDict())
  data = pickle.dumps(value, protocol)
  assert list(load(data)[0].items()) == [('b', 1), ('a', {})]


def test_persistent_ids_and_pickles_one_after_the_other():
  assert load(b'K\7Q.')[0] == ('stored', 7)
  data = b'K\1.K\2.'
  assert pickle_machine.load(data, 3, {}, None) == (2, 6)


def test_no_opcode_but_those_of_state_dicts_is_known():
  """Of 68 opcodes 34 are known; none of the others is tried."""
  refused = {
    op.name
    for op in pickletools.opcodes
    if 'has the opcode' in refusal_or_value(op.code.encode('latin-1'))
  }
  assert {'INST', 'OBJ', 'NEWOBJ', 'NEWOBJ_EX', 'PERSID'} <= refused
  assert {'EXT1', 'EXT2', 'EXT4', 'NEXT_BUFFER', 'LONG4', 'POP'} <= refused
  assert len(pickletools.opcodes) == 68
  assert len(refused) == 34


def refusal_or_value(data):
  if data == b'.':
    return ''
  return refusal(load, data)


@pytest.mark.parametrize(
  'data',
  [
    b'',
    b'.',
    b'K',
    b'X',
    b'J\0\0\0',
    b'X' + struct.pack('<I', 2**32 - 1) + b'x.',
    b'X\1\0\0\0\xff.',  # not UTF-8
    b'X\3\0\0\0\xed\xa0\x80.',  # half a surrogate pair
    b'\x8c\xffx.',
    b'\x8a\xff\1.',
    b'\x95' + b'\xff' * 8,  # a frame of 2**64 - 1 bytes
    b'c' + b'a' * 2000 + b'\nb\n.',
    b'ca.',
    b'h\0.',
    b'j\xff\xff\xff\xff.',
    b'r\xff\xff\xff\xff.',
    b'\x94.',
    b't.',
    b'K\1\x86.',
    b'K\1K\2\x87.',
    b'(K\1u.',
    b'}(K\1K\2u.',
    b'})K\1s.',
    b'}(X\1\0\0\0au.',  # a name without a value
    b']]a]s.',
    b'K\1K\2a.',
    b'K\1}b.',
    b')R.',
    b'ccollections\nOrderedDict\n]R.',
    b'K\1)R.',
    b'ccollections\nOrderedDict\nK\1R.',
    b'ccollections\nOrderedDict\n(K\1tR.',
    b'\x93.',
    b'K\1K\2\x93.',
    b'\xff.',
  ],
)
def test_malformed_pickles(data):
  message = refusal(load, data)
  assert 'malformed' in message or 'cut short' in message


@pytest.mark.parametrize(
  'data',
  [
    b'}' * 1_000_000,
    b']' * 1_000_000,
    b'(' * 1_000_000,
    b')' + b'\x85' * 1_000_000,  # a tuple in a tuple in a ...
    b'ccollections\nOrderedDict\nq\0' + b'h\0)R' * 250_000,
    b'K\1' + b'\x94' * 1_000_000,
    b']q\0' + b'h\0a' * 330_000,  # a list that holds itself
    b'\x80\2' * 500_000,
  ],
)
def test_pickles_that_never_end_stop_early(data):
  assert 'more than 100,000 opcodes' in refusal(load, data)


def test_a_place_in_the_memo_takes_no_memory_before_it():
  """pickle.Unpickler would make room for 2**31 values."""
  assert load(b'Nr\xff\xff\xff\x7f.') == (None, 7)


def test_texts_and_numbers_that_are_cut_short():
  """Else the rest of a file would do for a name of any length."""
  for data in (b'X\4\0\0\0abc', b'\x8c\4abc', b'\x8a\4\1\1\1'):
    assert 'malformed at byte 0' in refusal(load, data)


def test_depth_is_no_recursion():
  """Values nest 49,999 deep; pickle.load, repr, hash and == would recurse."""
  value, _ = load(b')' + b'\x85' * 49_999 + b'.')
  depth = 0
  while value:
    (value,) = value
    depth += 1
  assert depth == 49_999
  # As the name of an entry of a dict it would be hashed.
  nested = b')' + b'\x85' * 49_999
  assert 'malformed' in refusal(load, b'}' + nested + b'K\1s.')


def test_doubling_is_not_unfolded():
  """30 lists, each the one before twice: 2**30 numbers, if written out."""
  data = b']K\7a' + b''.join(b'q%c](h%ch%ce' % (i, i, i) for i in range(30))
  assert len(load(data + b'.')[0]) == 2
  # As the name of an entry of a dict, tuples would be hashed 2**40 times.
  tuples = b')' + b''.join(b'q%ch%c\x86' % (i, i) for i in range(40))
  assert 'malformed' in refusal(load, b'}' + tuples + b'K\1s.')
