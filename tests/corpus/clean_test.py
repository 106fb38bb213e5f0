import collections

import pytest

from bert_jax.corpus import clean


def _decode(raw):
  counts = collections.Counter()
  return clean.decode(raw, counts), dict(counts)


def test_utf8_passes():
  assert _decode('Gödel, 漢字 and 🙂.\n'.encode()) == (
    'Gödel, 漢字 and 🙂.\n',
    {},
  )


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


def test_control_characters_are_removed_and_counted():
  assert _decode(b'a\x00b\x07c\x1b\x7f\n') == (
    'abc\n',
    {'control_characters': 4},
  )


def test_tabs_page_breaks_and_carriage_returns_are_spaces():
  assert _decode(b'a\tb\x0cc\x0bd\re\r\n') == ('a b c d e \n', {})


def test_lone_surrogates_are_replaced_and_counted():
  counts = collections.Counter()
  assert clean.clean('a\ud800b\udc00\x01\n', counts) == 'a\ufffdb\ufffd\n'
  assert counts == {'invalid_utf8': 2, 'control_characters': 1}


def test_the_worst_of_several_files_is_named():
  assert clean.describe_invalid(1234, {'a': 1, 'b c': 1233}) == (
    'WARNING: 1,234 sequences of bytes in 2 files, most of them in b c, are '
    'not UTF-8, and their characters are lost; leave out what is no text, and '
    'convert what has another encoding, for example with: iconv -f ISO-8859-1 '
    "-t UTF-8 'b c'"
  )
