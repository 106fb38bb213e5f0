"""Whether text loses its accents: decided once, when data is prepared.

Google's tokenizer drops all nonspacing marks of uncased text. In Latin, Greek
and Cyrillic text these are accents. In most scripts without case they are
vowels, tones or parts of letters, and Hangul would fall apart into Jamo.
"""

import collections
import functools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.tokenization import basic_tokenizer

CHOICES = ('auto', 'as_lowercase', 'true', 'false')
HELP = (
  'Whether accents and other nonspacing marks are dropped: true, false, '
  "as_lowercase (Google's: from uncased text), or auto: from uncased text,"
)

# ISO 639-1 codes of languages whose usual script has no case, but marks or
# letters that NFD takes apart. Chinese is not among them: ideographs have none.
_LANGUAGES = frozenset(
  'am ar as bn bo dv dz fa gu he hi ii ja km kn ko ks lo ml mr my ne or pa pi '
  'ps sa sd si ta te th ti ug ur yi'.split()
)

# Share of such letters in all characters from which on text keeps its accents.
# A page of English that names a place in its own script has less, and a corpus
# of many languages, one of which is Korean, has more.
_LEAST = 0.01

# The same of a vocabulary's pieces. Of Google's, uncased ones have none, cased
# ones 2% and 19%; a few may be due to another version of Unicode.
_LEAST_PIECES = 0.001

SAMPLE = 1_000_000  # characters that show which scripts there are, at least

_CODES = 1 << 17  # beyond them are only ideographs, and what is no letter


class Decision(NamedTuple):
  """Whether accents are stripped, and why.

  Attributes:
    strip: for `Tokenizer.strip_accents`.
    reason: the end of a sentence, for people.
  """

  strip: bool
  reason: str

  def __str__(self) -> str:
    return f'{"stripped" if self.strip else "kept"}: {self.reason}'


def read_choice(choice: str, lowercase: bool) -> bool | None:
  """Returns what one of CHOICES asks for; None is auto."""
  asked = {'true': True, 'false': False, 'as_lowercase': lowercase}
  return asked.get(choice)


def decide_without_text(
  strip_accents: bool | None, lowercase: bool, vocab: Sequence[str] | None
) -> Decision | None:
  """Decides what can be decided before text is read; None if it must be.

  Args:
    strip_accents: of `read_choice`.
    lowercase: whether text becomes lower case.
    vocab: pieces of a vocabulary that is given, if one is.
  """
  if strip_accents is not None:
    return Decision(strip_accents, 'as was asked')
  if not lowercase:
    return Decision(False, 'the text is cased')
  return _judge_vocab(vocab) if vocab else None


def _judge_vocab(vocab: Sequence[str]) -> Decision:
  """Decides for uncased text by a vocabulary that was made for it.

  One that was learnt from stripped text, as Google's uncased ones, has no piece
  that stripping would change. Text that kept its accents could not be spelt
  with it.
  """
  changed = sum(basic_tokenizer.strip(piece) != piece for piece in vocab)
  share = changed / len(vocab)
  return Decision(
    share < _LEAST_PIECES,
    f'{share:.1%} of the pieces of the vocabulary have any',
  )


def judge_text(language: str, seen: collections.Counter) -> Decision:
  """Decides for uncased text by its language and its script.

  Args:
    language: ISO 639-1 code that the text is said to be in; '' if unknown.
    seen: of `count_scripts`.
  """
  if language.lower() in _LANGUAGES:
    return Decision(False, f'in language {language} marks are parts of letters')
  share = seen['caseless'] / max(seen['characters'], 1)
  return Decision(
    share < _LEAST,
    f'{share:.1%} of the characters are letters of scripts without case',
  )


def count_scripts(text: str, seen: collections.Counter):
  """Adds `characters`, and the `caseless` letters among them.

  These are letters of scripts without case, but for ideographs.
  """
  seen['characters'] += len(text)
  if not text.isascii():
    codes = np.frombuffer(text.encode('utf-32-le', 'surrogatepass'), '<u4')
    codes = np.minimum(codes, _CODES - 1)
    seen['caseless'] += int(_is_caseless()[codes].sum())


@functools.cache
def _is_caseless() -> np.ndarray:
  """Returns a truth value for each code."""
  found = np.zeros(_CODES, bool)
  for code in range(_CODES):
    c = chr(code)
    is_other = unicodedata.category(c) == 'Lo'
    found[code] = is_other and not basic_tokenizer.is_ideograph(c)
  return found
