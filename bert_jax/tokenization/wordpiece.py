"""Splits words into the ids of a vocabulary's pieces, with a cache."""

import re
from collections.abc import Iterable

import numpy as np

# Longer words become [UNK]. This is the default of google-research/bert
# (tokenization.WordpieceTokenizer); equal ids need the same limit.
MAX_CHARS_PER_WORD = 200

# A word of 64 characters takes less than 1 kB with its ids, so the cache takes
# less than 300 MB. Longer strings are rarely words, and rarely repeated.
_MAX_WORDS = 300_000
_MAX_WORD_CHARS = 64

_HEAD = 3  # first characters, which bound the length of a piece

_WIDE = re.compile('[\u3000-\U0010ffff]')


class Letters(dict):
  """Maps code points to bytes: ASCII and the first 128 other letters seen.

  That is enough for any alphabet, but not for scripts of thousands of signs.
  """

  def __init__(self):
    super().__init__((code, chr(code)) for code in range(128))

  def narrow(self, spaced: str) -> str | None:
    """Returns text of `space_words` with one byte per letter, or None."""
    if spaced.isascii():
      return spaced
    if _WIDE.search(spaced):
      return None
    narrowed = spaced.translate(self)
    return None if '\n' in narrowed else narrowed

  def widen(self, word: bytes) -> str:
    """Undoes `narrow` for a word."""
    if word.isascii():
      return word.decode()
    letters = list(self)
    return ''.join(chr(letters[byte]) for byte in word)

  def __missing__(self, code: int) -> str:
    if len(self) == 256 or chr(code).isspace():
      return '\n'
    self[code] = chr(len(self))
    return self[code]


class Words(dict):
  """The ids of words in a vocabulary: a cache, which is emptied when full."""

  def __init__(self, index: dict[str, int], ids: np.dtype):
    super().__init__()
    first = {
      piece: i.to_bytes(ids.itemsize, 'little') for piece, i in index.items()
    }
    later = {p[2:]: i for p, i in first.items() if p.startswith('##')}
    self._unknown = first['[UNK]']
    self._first = first, _longest(first)
    self._later = later, _longest(later)

  def __missing__(self, word: str) -> bytes:
    ids = self.match(word)
    if len(word) <= _MAX_WORD_CHARS:
      if len(self) >= _MAX_WORDS:
        self.clear()
      self[word] = ids
    return ids

  def match(self, word: str, begins: bool = True) -> bytes:
    """Returns the ids of a word by greedy longest match, as bytes.

    Unless it `begins`, it is the rest of a word, of pieces with ##.
    """
    if len(word) > MAX_CHARS_PER_WORD:
      return self._unknown
    out = []
    start, (pieces, longest) = 0, self._first if begins else self._later
    while start < len(word):
      head = word[start : start + _HEAD]
      end = min(start + longest.get(head, _HEAD), len(word))
      while end > start and word[start:end] not in pieces:
        end -= 1
      if end == start:
        return self._unknown
      out.append(pieces[word[start:end]])
      start, (pieces, longest) = end, self._later
    return b''.join(out)


def _longest(pieces: Iterable[str]) -> dict[str, int]:
  """Returns {first characters: length of the longest piece with them}."""
  longest: dict[str, int] = {}
  for piece in pieces:
    if len(piece) > _HEAD:
      head = piece[:_HEAD]
      longest[head] = max(len(piece), longest.get(head, 0))
  return longest
