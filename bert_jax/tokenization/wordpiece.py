"""Words to the ids of a vocabulary's pieces, and what remembers them."""

import re
from collections.abc import Callable, Iterable

import numpy as np

# Characters; longer words are [UNK], as google-research/bert has it by default
# (tokenization.WordpieceTokenizer). Ids are only the same with the same limit.
MAX_CHARS_PER_WORD = 200

# A word of 64 characters takes less than 1 kB with its ids, so all take less
# than 300 MB. What is longer is hardly ever a word, and hardly comes again.
_MAX_WORDS = 300_000
_MAX_WORD_CHARS = 64

_HEAD = 3  # characters that tell how long a piece can be

_WIDE = re.compile('[\u3000-\U0010ffff]')


class Letters(dict):
  """One byte for each of ASCII and the first 128 letters beyond it, by code.

  Enough for any alphabet; scripts of thousands of signs are left alone.
  """

  def __init__(self):
    super().__init__((code, chr(code)) for code in range(128))

  def narrow(self, spaced: str) -> str | None:
    """Returns `basic_tokenizer.space_words` text with one byte a letter, if it can be."""
    if spaced.isascii():
      return spaced
    if _WIDE.search(spaced):
      return None
    found = spaced.translate(self)
    return None if '\n' in found else found

  def widen(self, word: bytes) -> str:
    """Undoes it."""
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
  """The ids of words, matched when first asked for; emptied when full."""

  def __init__(self, match: Callable[[str], bytes]):
    super().__init__()
    self._match = match

  def __missing__(self, word: str) -> bytes:
    ids = self._match(word)
    if len(word) <= _MAX_WORD_CHARS:
      if len(self) >= _MAX_WORDS:
        self.clear()
      self[word] = ids
    return ids


class Pieces:
  """A vocabulary, ready to match words."""

  def __init__(self, index: dict[str, int], ids: np.dtype):
    first = {
      piece: i.to_bytes(ids.itemsize, 'little') for piece, i in index.items()
    }
    later = {p[2:]: i for p, i in first.items() if p.startswith('##')}
    self._unknown = first['[UNK]']
    self._first = first, _longest(first)
    self._later = later, _longest(later)

  def match(self, word: str) -> bytes:
    """Returns the ids of a word: the longest piece that fits, repeatedly."""
    if len(word) > MAX_CHARS_PER_WORD:
      return self._unknown
    out = []
    start, (pieces, longest) = 0, self._first
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
  """Returns the length of the longest piece by its first characters.

  The search begins there, not at the end of the word.
  """
  longest: dict[str, int] = {}
  for piece in pieces:
    if len(piece) > _HEAD:
      head = piece[:_HEAD]
      longest[head] = max(len(piece), longest.get(head, 0))
  return longest
