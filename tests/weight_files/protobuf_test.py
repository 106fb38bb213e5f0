"""Protocol Buffers on the wire, by the examples of protobuf.dev."""

import pytest

from bert_jax.weight_files import protobuf


def test_numbers_are_those_of_the_documentation():
  assert protobuf.read_varint(bytes.fromhex('ff9601'), 1) == (150, 3)
  assert protobuf.encode_varint(150) == bytes.fromhex('9601')
  for value in (0, 127, 128, 1 << 32, (1 << 64) - 1):
    written = protobuf.encode_varint(value)
    assert protobuf.read_varint(written, 0) == (value, len(written))


def test_messages_are_those_of_the_documentation():
  message = bytes.fromhex(
    '089601  12 07 74 65 73 74 69 6e 67  35 4b 43 25 a4  39 0100000000000000'
  )
  assert list(protobuf.read_fields(message)) == [
    (1, 150),
    (2, b'testing'),
    (6, 0xA425434B),
    (7, 1),
  ]


@pytest.mark.parametrize(
  ('message', 'problem'),
  [
    ('08', 'cut short or too long'),
    ('08 80', 'cut short or too long'),
    ('08' + 'ff' * 10, 'cut short or too long'),
    ('12 03 61 62', 'field 2 of kind 2 is cut short'),
    ('35 00 00 00', 'field 6 of kind 5'),
    ('0b', 'kind 3 is cut short'),
  ],
)
def test_what_cannot_be_is_a_value_error(message, problem):
  with pytest.raises(ValueError, match=problem):
    list(protobuf.read_fields(bytes.fromhex(message)))
