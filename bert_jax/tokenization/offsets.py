"""Finds where in a text its pieces are.

A piece is a part of a word that was cleaned, lower-cased and decomposed. Offsets
count characters of the original text, so text[begin:end] of several pieces is
what a reader sees, with capitals, accents and spaces.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.tokenization import basic_tokenizer
from bert_jax.tokenization.fast_tokenizer import FastTokenizer
from bert_jax.tokenization.tokenizer import Tokenizer

# Words end at white space, among others; the text between is independent.
_CHUNK = re.compile('[^ \t\n\r]+')
# Characters. In text without spaces a chunk is a passage, which does not recur.
_MAX_CACHED = 64


class Located(NamedTuple):
  """The pieces of a text, without [CLS] and [SEP]."""

  ids: np.ndarray  # [T]
  begins: np.ndarray  # int32 [T], index of their first characters in the text
  ends: np.ndarray  # int32 [T], one past their last characters


def locate(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Located]:
  """Returns the pieces that `Tokenizer.ids` finds in texts, with offsets."""
  find = functools.partial(_locate, tokenizer)
  cached = functools.cache(find)
  located = []
  for text in texts:
    rows: list[tuple[int, int, int]] = []
    at = 0
    if isinstance(tokenizer, FastTokenizer):
      made, at = (
        tokenizer.library.encode(text, add_special_tokens=False),
        len(text),
      )
      for i, (begin, end) in zip(made.ids, made.offsets, strict=True):
        spaces = end - begin - len(text[begin:end].lstrip())
        rows.append((i, begin + spaces, end))
    for stop, after, word in [*tokenizer.find_added(text), (len(text), 0, -1)]:
      for match in _CHUNK.finditer(text, at, stop):
        chunk, first = match.group(), match.start()
        pieces = (cached if len(chunk) <= _MAX_CACHED else find)(chunk)
        rows += [(i, first + begin, first + end) for i, begin, end in pieces]
      if after:
        rows.append((word, stop, after))
      at = after
    ids, begins, ends = np.array(rows, np.int32).reshape(-1, 3).T
    located.append(Located(ids.astype(tokenizer.id_type), begins, ends))
  return located


def _locate(tokenizer, chunk):
  """Returns [(id, begin, end)] of text without spaces."""
  strips = tokenizer.strip_accents
  how = tokenizer.lowercase, strips
  # How many characters one becomes does not depend on those around it.
  origins = [i for i, c in enumerate(chunk) for _ in _letters(c, *how)]
  pieces, at = [], 0
  for word in basic_tokenizer.split_words(chunk, *how):
    ids = tokenizer.spell(word)
    sizes = [len(word)]
    if len(ids) > 1:
      sizes = [len(tokenizer.vocab[i].strip()) for i in ids]
      sizes[1:] = [size - len('##') for size in sizes[1:]]
    for i, size in zip(ids, sizes, strict=True):
      part = origins[at : at + size]
      end = max(part) + 1
      # Marks that were stripped from the last letter belong to it.
      while strips and end < len(chunk) and _is_mark(chunk[end]):
        end += 1
      pieces.append((i, min(part), end))
      at += size
  return pieces


@functools.cache
def _letters(c: str, lowercase: bool, strip_accents: bool) -> str:
  """Returns the characters of words that a character becomes."""
  return ''.join(basic_tokenizer.split_words(c, lowercase, strip_accents))


def _is_mark(c: str) -> bool:
  return unicodedata.category(c) == 'Mn'
