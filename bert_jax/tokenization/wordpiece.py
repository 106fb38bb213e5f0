"""Splits words into the ids of a vocabulary's pieces, with caches.

Most text is printable ASCII, in which a word is a run of letters and digits or a
punctuation mark. Such text, of one byte per character, is tokenized in numpy, a
megabyte at a time: words of up to 16 characters are two integers, so a hash table
can look up all words of a text at once; each new word is split in Python, once.
"""

import re
import string
from collections.abc import Callable, Iterable

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

_WORD, _PUNCTUATION = 1, 2
_KIND = np.zeros(256, np.uint8)  # of a character; 0 is space or a line's end
_KIND[33:127] = _PUNCTUATION
_KIND[[*map(ord, string.ascii_letters + string.digits)]] = _WORD
_KIND[128:] = _WORD
_LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8)  # ASCII alone

_HALF = 8  # characters in an integer
_KEEP = np.array([(1 << 8 * n) - 1 for n in range(_HALF + 1)], np.uint64)
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)

_SLOTS = 1 << 20  # at least half of them stay empty
_MOST = 300_000  # entries; then the table is cleared


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


class ByteWords:
  """Turns lines into ids, with a cache of words."""

  def __init__(
    self, spell: Callable[[bytes], bytes], ids: np.dtype, lower: bool
  ):
    """Makes an empty table; `spell` returns a word's ids as bytes."""
    self._spell, self._type, self._lower = spell, ids, lower
    self._clear()

  def _clear(self):
    self._slots = np.full(_SLOTS, -1, np.int32)  # entries
    self._keys = np.zeros((2, 1 << 16), np.uint64)  # the characters
    self._span = np.zeros((2, 1 << 16), np.int64)  # first id, number of ids
    self._pool = np.zeros(1 << 16, self._type)
    self._entries = self._used = 0  # used length of the keys and of the pool
    self._long: dict[bytes, int] = {}  # words of more than 16 characters

  def __call__(self, lines: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of all lines, and the number of ids of each line.

    Args:
      lines: printable ASCII and bytes above 127; each ends with a line feed.
    """
    text = np.frombuffer(lines + bytes(2 * _HALF), np.uint8)
    size = len(lines)
    kind = _KIND[text[:size]]
    inside = kind == _WORD
    single = kind == _PUNCTUATION
    begins, ends = inside.copy(), inside.copy()
    begins[1:] &= ~inside[:-1]
    ends[:-1] &= ~inside[1:]
    start = np.flatnonzero(begins | single)
    length = np.flatnonzero(ends | single) + 1 - start
    if self._lower:
      text = _LOWER[text]
    entry = self._find(text, start, length)
    first, count = self._span[:, entry]
    total = np.concatenate([[0], np.cumsum(count)])
    at = np.arange(total[-1]) + np.repeat(first - total[:-1], count)
    line_end = np.flatnonzero(text[:size] == 10)
    per_line = np.diff(total[np.searchsorted(start, line_end)], prepend=0)
    return self._pool[at], per_line

  def _find(self, text, start, length) -> np.ndarray:
    """Returns the entry of each word."""
    if self._entries > _MOST:
      self._clear()
    # A view that reads eight characters as an integer at any offset.
    halves = np.ndarray(len(text) - _HALF + 1, '<u8', buffer=text, strides=(1,))
    low = halves[start] & _KEEP[np.minimum(length, _HALF)]
    high = halves[start + _HALF] & _KEEP[np.clip(length - _HALF, 0, _HALF)]
    is_long = length > 2 * _HALF
    entry = self._look_up(low, high)
    new = np.flatnonzero((entry < 0) & ~is_long)
    if len(new):
      self._add_short(low[new], high[new])
      entry[new] = self._look_up(low[new], high[new])
    for k in np.flatnonzero(is_long).tolist():
      entry[k] = self._long_entry(text[start[k] : start[k] + length[k]])
    return entry

  def _look_up(self, low, high) -> np.ndarray:
    """Returns the entry of each word, or -1."""
    slot = self._slots_of(low, high)
    entry = self._slots[slot]
    at = np.arange(len(low))
    while True:
      there = entry[at]
      other = (self._keys[0, there] != low[at]) | (
        self._keys[1, there] != high[at]
      )
      at = at[other & (there >= 0)]
      if not len(at):
        return entry
      slot[at] = (slot[at] + 1) & (len(self._slots) - 1)
      entry[at] = self._slots[slot[at]]

  def _slots_of(self, low, high) -> np.ndarray:
    """Returns the first slot to look for each word in."""
    mixed = low * _MIX[0] ^ (high + _MIX[1]) * _MIX[1]
    mixed ^= mixed >> np.uint64(32)
    bits = len(self._slots).bit_length() - 1
    return (mixed * _MIX[0] >> np.uint64(64 - bits)).astype(np.int64)

  def _put(self, entry: np.ndarray):
    """Puts each entry into the first free slot from its own on."""
    slot = self._slots_of(*self._keys[:, entry])
    while len(entry):
      free = self._slots[slot] < 0
      self._slots[slot[free]] = entry[free]
      left = self._slots[slot] != entry  # taken, also by one of these
      entry = entry[left]
      slot = (slot[left] + 1) & (len(self._slots) - 1)

  def _add_short(self, low: np.ndarray, high: np.ndarray):
    """Adds words, which may contain duplicates."""
    order = np.lexsort((high, low))  # np.unique takes ten times as long
    low, high = low[order], high[order]
    is_first = np.ones(len(low), bool)
    is_first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    keys = np.stack([low[is_first], high[is_first]])
    first = self._entries
    words = np.frombuffer(keys.T.astype('<u8').tobytes(), f'S{2 * _HALF}')
    self._append(keys, words.tolist())
    if 2 * self._entries > len(self._slots):
      slots = 1 << (2 * self._entries - 1).bit_length()
      self._slots = np.full(slots, -1, np.int32)
      first = 0
    entry = np.arange(first, self._entries, dtype=np.int32)
    self._put(entry[self._keys[0, entry] > 0])  # long words have no key

  def _long_entry(self, characters: np.ndarray) -> int:
    word = characters.tobytes()
    entry = self._long.get(word)
    if entry is None:
      entry = self._entries
      self._append(np.zeros((2, 1), np.uint64), [word])
      if len(word) <= _MAX_WORD_CHARS:
        self._long[word] = entry
    return entry

  def _append(self, keys: np.ndarray, words: list[bytes]):
    """Computes the ids of words and appends them to the entries."""
    ids = list(map(self._spell, words))
    counts = np.array([len(x) for x in ids]) // self._type.itemsize
    new = np.frombuffer(b''.join(ids), self._type)
    entries, used = self._entries + len(words), self._used + len(new)
    while used > len(self._pool):
      self._pool = np.tile(self._pool, 2)
    while entries > self._keys.shape[1]:
      self._keys, self._span = np.tile(self._keys, 2), np.tile(self._span, 2)
    at = slice(self._entries, entries)
    self._keys[:, at] = keys
    self._span[0, at] = self._used + np.cumsum(counts) - counts
    self._span[1, at] = counts
    self._pool[self._used : used] = new
    self._entries, self._used = entries, used
