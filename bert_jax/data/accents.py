"""Decides, when data is prepared, whether accents are stripped from the text.

Google's tokenizer strips all nonspacing marks from uncased text. In most scripts
without case these are vowels, tones or parts of letters, and Hangul would be
decomposed into Jamo.
"""

import collections
import functools
import unicodedata
from collections.abc import Iterable, Sequence

from bert_jax.tokenization import basic_tokenizer

# Text keeps its accents if at least this share of its characters are letters of
# scripts without case. An English page that gives a place name in its own
# script has less; a corpus of many languages, one of them Korean, has more.
_LEAST = 0.01
_SAMPLE = 1_000_000  # characters to read, at least, to find the scripts
_IDEOGRAPHS = '\U00020000'  # from here on, letters are only ideographs


def read_choice(choice: str, lowercase: bool) -> bool | None:
  """Returns whether data.strip_accents asks to strip; None for auto."""
  asked = {'true': True, 'false': False, 'as_lowercase': lowercase}
  return asked.get(choice)


def decide(
  asked: bool | None,
  lowercase: bool,
  vocab: Sequence[str],
  samples: Iterable[Iterable[str]] = (),
) -> tuple[bool, str]:
  """Returns whether accents are stripped, and why.

  Args:
    asked: what `read_choice` returned.
    vocab: pieces, if a vocabulary is given.
    samples: the text; further samples are read only if the first are small.
  """
  if asked is not None:
    return asked, 'as requested'
  if not lowercase:
    return False, 'the text is cased'
  if vocab:
    # One trained on stripped text, such as Google's uncased ones, has no piece
    # that stripping would change, and cannot encode text with accents.
    share, has_some = basic_tokenizer.find_accents(vocab)
    return not has_some, f'{share:.1%} of the pieces of the vocabulary have any'
  characters = caseless = 0
  for sample in samples:
    for text in sample:
      characters += len(text)
      if not text.isascii():
        counts = collections.Counter(text)
        caseless += sum(n for c, n in counts.items() if _is_caseless(c))
    if characters >= _SAMPLE:
      break
  share = caseless / max(characters, 1)
  reason = f'{share:.1%} of the characters are letters of scripts without case'
  return share < _LEAST, reason


@functools.cache
def _is_caseless(c: str) -> bool:
  is_letter = unicodedata.category(c) == 'Lo' and c < _IDEOGRAPHS
  return is_letter and not basic_tokenizer.is_ideograph(c)
