"""Decides, when data is prepared, whether accents are stripped from the text.

Google's tokenizer strips all nonspacing marks from uncased text. In most scripts
without case these are vowels, tones or parts of letters, and Hangul would be
decomposed into Jamo.
"""

import collections
import functools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.tokenization import basic_tokenizer

# ISO 639-1 codes of languages whose usual script has no case, but has marks or
# letters that NFD decomposes. Chinese is not among them: NFD leaves ideographs.
_LANGUAGES = frozenset(
  'am ar as bn bo dv dz fa gu he hi ii ja km kn ko ks lo ml mr my ne or pa pi '
  'ps sa sd si ta te th ti ug ur yi'.split()
)

# Text keeps its accents if at least this share of its characters are letters of
# scripts without case. An English page that gives a place name in its own
# script has less; a corpus of many languages, one of them Korean, has more.
_LEAST = 0.01

SAMPLE = 1_000_000  # characters to read, at least, to find the scripts

_IDEOGRAPHS = '\U00020000'  # from here on, letters are only ideographs


class Decision(NamedTuple):
  """Whether accents are stripped, and why."""

  strip: bool  # the value for `Tokenizer.strip_accents`
  reason: str  # the end of a sentence to print

  def __str__(self) -> str:
    return f'{"stripped" if self.strip else "kept"}: {self.reason}'


def read_choice(choice: str, lowercase: bool) -> bool | None:
  """Returns whether data.strip_accents asks to strip; None for auto."""
  asked = {'true': True, 'false': False, 'as_lowercase': lowercase}
  return asked.get(choice)


def decide_without_text(
  strip_accents: bool | None, lowercase: bool, vocab: Sequence[str] | None
) -> Decision | None:
  """Decides by `read_choice` or a given vocabulary; None if text is needed."""
  if strip_accents is not None:
    return Decision(strip_accents, 'as requested')
  if not lowercase:
    return Decision(False, 'the text is cased')
  if not vocab:
    return None
  # A vocabulary trained on stripped text, such as Google's uncased ones, has no
  # piece that stripping would change, and cannot encode text with accents.
  share, has_some = basic_tokenizer.find_accents(vocab)
  reason = f'{share:.1%} of the pieces of the vocabulary have any'
  return Decision(not has_some, reason)


def judge_text(language: str, seen: collections.Counter) -> Decision:
  """Decides for uncased text by its languages, ISO 639-1, and its script."""
  if not _LANGUAGES.isdisjoint(language.lower().split(',')):
    return Decision(False, f'in language {language} marks are parts of letters')
  share = seen['caseless'] / max(seen['characters'], 1)
  reason = f'{share:.1%} of the characters are letters of scripts without case'
  return Decision(share < _LEAST, reason)


def count_scripts(text: str, seen: collections.Counter):
  """Counts a text's `characters`, and the `caseless` letters, no ideographs."""
  seen['characters'] += len(text)
  if not text.isascii():
    counts = collections.Counter(text)
    seen['caseless'] += sum(n for c, n in counts.items() if _is_caseless(c))


@functools.cache
def _is_caseless(c: str) -> bool:
  is_letter = unicodedata.category(c) == 'Lo' and c < _IDEOGRAPHS
  return is_letter and not basic_tokenizer.is_ideograph(c)
