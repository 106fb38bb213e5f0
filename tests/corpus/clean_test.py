import collections

import pytest

from bert_jax.corpus import clean


def _decode(raw):
  counts = collections.Counter()
  return clean.decode(raw, counts), dict(counts)


@pytest.mark.parametrize(
  'raw, text, counts',
  [
    ('Gödel, 漢字 and 🙂.\n'.encode(), 'Gödel, 漢字 and 🙂.\n', {}),
    (b'a\x00b\x07c\x1b\x7f\n', 'abc\n', {'control_characters': 4}),
    (b'a\tb\x0cc\x0bd\re\r\n', 'a b\x0cc\x0bd\re\r\n', {}),
  ],
)
def test_text_stays_without_its_control_characters(raw, text, counts):
  assert _decode(raw) == (text, counts)


@pytest.mark.parametrize(
  'text, lines',
  [
    ('a\n\nb\n', ['a', '', 'b']),
    ('a\r\n\r\nb\rc\u2028\u2029d\x85', ['a', '', 'b', 'c', '', 'd']),
    ('a\fb\n\fc\v\nd\n\f\ne', ['a', 'b', 'c', 'd', '', 'e']),
    ('\n', ['']),
  ],
)
def test_lines_end_at_whatever_people_have(text, lines):
  assert clean.break_lines(text) == lines


def test_a_line_is_blank_if_the_tokenizer_keeps_nothing_of_it():
  for line in ('', ' \u3000', '\u200b', ' \ufeff\u00ad\u200e', '\ufffd'):
    assert clean.is_blank(line), ascii(line)
  for line in ('a', '\u200b.', ' -', '\u0301', '한', '\U0001f600'):
    assert not clean.is_blank(line), ascii(line)


@pytest.mark.parametrize(
  'raw, text, count',
  [
    (b'caf\xe9 ol\xe9', 'caf\ufffd ol\ufffd', 2),
    (b'\xff\xfe', '\ufffd\ufffd', 2),
    ('漢'.encode()[:2], '\ufffd', 1),  # a character that is cut off
    (b'\xed\xa0\x80', '\ufffd\ufffd\ufffd', 3),  # a surrogate, not UTF-8
    (b'\xef\xbf\xbd\xff', '\ufffd\ufffd', 1),  # one was there before
  ],
)
def test_what_is_not_utf8_is_replaced_and_counted(raw, text, count):
  assert _decode(raw) == (text, {'invalid_utf8': count})
