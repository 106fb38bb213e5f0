"""BERT's words: clean, lower-case, strip accents, split off punctuation.

The words are those of BasicTokenizer in google-research/bert, character for
character, under the Unicode tables of the Python that runs. Google looks at
each character several times; here tables map a character to what becomes of
it, and white space is split at once, at the end.

Google strips the accents of text that it lower-cases and of no other. Where the
two are set apart, the words are those of Hugging Face's BertNormalizer.
"""

import re
import unicodedata

# The CJK ideographs, which are words each. Not all of Chinese, Japanese and
# Korean: kana and Hangul are written in words or are split by WordPiece alone.
_CJK = (
  (0x4E00, 0x9FFF),
  (0x3400, 0x4DBF),
  (0x20000, 0x2A6DF),
  (0x2A700, 0x2B73F),
  (0x2B740, 0x2B81F),
  (0x2B820, 0x2CEAF),
  (0xF900, 0xFAFF),
  (0x2F800, 0x2FA1F),
)

# In printable ASCII what is no letter, digit or space is punctuation.
_ASCII_WORDS = re.compile('[0-9A-Za-z]+|[^0-9A-Za-z ]')


def split_words(
  text: str, lowercase: bool, strip_accents: bool | None = None
) -> list[str]:
  """Splits text into words and single punctuation marks and CJK ideographs.

  Args:
    text: any string; lone surrogates stay parts of words.
    lowercase: whether to lower-case.
    strip_accents: whether to decompose letters (NFD) and to drop nonspacing
      marks (category Mn); None is as `lowercase`, like Google.

  Returns:
    Words without white space, none of them empty.
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
    # Google lower-cases token by token. White space ends the context that
    # lower() looks at (for a final sigma) and stops NFD's reordering, so that
    # whole texts give the same. Punctuation does not: it is split off later.
    text = text.lower()
  return unicodedata.normalize('NFD', text).translate(_UNACCENTED)


def strip(text: str) -> str:
  """Returns text, decomposed and without its nonspacing marks."""
  decomposed = unicodedata.normalize('NFD', text)
  return ''.join(c for c in decomposed if unicodedata.category(c) != 'Mn')


def is_ideograph(c: str) -> bool:
  """Says whether a character is one of the CJK ideographs, words each."""
  return any(first <= ord(c) <= last for first, last in _CJK)


def _clean(c: str) -> str:
  category = unicodedata.category(c)
  if c in '\t\n\r' or category == 'Zs':
    return ' '
  if c in '\0\ufffd' or category in ('Cc', 'Cf'):
    return ''
  if is_ideograph(c):
    return f' {c} '
  return c


def _unaccented(c: str) -> str:
  return '' if unicodedata.category(c) == 'Mn' else _split(c)


def _split(c: str) -> str:
  ascii_mark = '!' <= c <= '~' and not c.isalnum()
  if ascii_mark or unicodedata.category(c).startswith('P'):
    return f' {c} '
  return c


def _cased(c: str) -> str:
  return ''.join(map(_split, _clean(c)))


def _lowered(c: str) -> str:
  # By itself, as Hugging Face does: no sigma is final.
  return ''.join(map(_split, _clean(c).lower()))


class _Table(dict):
  """For str.translate: asks a function once for each character it meets."""

  def __init__(self, function):
    super().__init__()
    self._function = function

  def __missing__(self, code: int) -> str:
    self[code] = self._function(chr(code))
    return self[code]


_CLEAN = _Table(_clean)
_UNACCENTED = _Table(_unaccented)
_CASED = _Table(_cased)
_LOWERED = _Table(_lowered)
