"""Splits text into words: cleans, lower-cases, strips accents, splits.

The words are exactly what BasicTokenizer in google-research/bert finds, with
the Unicode tables of the running Python. Google strips accents if and only if it
lower-cases. For the other two combinations, the words are as Hugging Face's
BertNormalizer leaves them.
"""

import re
import unicodedata
from collections.abc import Sequence

# CJK ideographs, each of which becomes a word. Not all of Chinese, Japanese and
# Korean: kana and Hangul are only split by white space and by WordPiece.
_CJK = (
  *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
  *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF)),
  (0x2F800, 0x2FA1F),
)

# Text keeps its accents if at least this share of a vocabulary's pieces has
# marks. Google's uncased vocabularies have none, the cased ones 2% and 19%; a
# few such pieces may be due to another version of Unicode.
_LEAST_ACCENTED = 0.001

# In printable ASCII, all but letters, digits and spaces is punctuation.
_ASCII_WORDS = re.compile('[0-9A-Za-z]+|[^0-9A-Za-z ]')


def split_words(
  text: str, lowercase: bool, strip_accents: bool | None = None
) -> list[str]:
  """Splits text into words and single punctuation marks and CJK ideographs.

  Args:
    text: any string; lone surrogates stay parts of words.
    strip_accents: whether to decompose letters (NFD) and to drop nonspacing
      marks (category Mn); None means the value of `lowercase`, like Google.
  """
  if text.isascii() and text.isprintable():  # most English, twice as fast
    return _ASCII_WORDS.findall(text.lower() if lowercase else text)
  if strip_accents is None:
    strip_accents = lowercase
  return space_words(text, lowercase, strip_accents).split()


def space_words(text: str, lowercase: bool, strip_accents: bool) -> str:
  """Returns the words of `split_words` with white space between them."""
  if not strip_accents:
    return text.translate(_LOWERED if lowercase else _CASED)
  text = text.translate(_CLEAN)
  if lowercase:
    # Google lower-cases token by token. Lower-casing the whole text gives the
    # same result, since white space ends both the context of lower() (for a
    # final sigma) and NFD's reordering of marks. Punctuation does not, so it is
    # split off afterwards.
    text = text.lower()
  return unicodedata.normalize('NFD', text).translate(_UNACCENTED)


def strip(text: str) -> str:
  """Decomposes text (NFD) and drops its nonspacing marks."""
  decomposed = unicodedata.normalize('NFD', text)
  return ''.join(c for c in decomposed if unicodedata.category(c) != 'Mn')


def find_accents(pieces: Sequence[str]) -> tuple[float, bool]:
  """Returns the share of pieces that stripping would change, and if it counts."""
  share = sum(strip(x) != x for x in pieces) / len(pieces)
  return share, share >= _LEAST_ACCENTED


def is_ideograph(c: str) -> bool:
  """Returns whether a character is a CJK ideograph, which becomes a word."""
  return any(first <= ord(c) <= last for first, last in _CJK)


def _cleaned(c: str) -> str:
  category = unicodedata.category(c)
  if c in '\t\n\r' or category == 'Zs':
    return ' '
  if c in '\0\ufffd' or category in ('Cc', 'Cf'):
    return ''
  return c


def _clean(c: str) -> str:
  return f' {c} ' if is_ideograph(c) else _cleaned(c)


def _split(c: str) -> str:
  ascii_mark = '!' <= c <= '~' and not c.isalnum()
  if ascii_mark or unicodedata.category(c).startswith('P'):
    return f' {c} '
  return c


class _Table(dict):
  """Table for str.translate that calls a function once per new character."""

  def __init__(self, function):
    super().__init__()
    self._function = function

  def __missing__(self, code: int) -> str:
    self[code] = self._function(chr(code))
    return self[code]


# Drops what no word holds, and makes spaces of most white space.
CLEANED = _Table(_cleaned)
_CLEAN = _Table(_clean)
_UNACCENTED = _Table(
  lambda c: '' if unicodedata.category(c) == 'Mn' else _split(c)
)
_CASED = _Table(lambda c: ''.join(map(_split, _clean(c))))
# Without context, as Hugging Face does, so no sigma is final.
_LOWERED = _Table(lambda c: ''.join(map(_split, _clean(c).lower())))
