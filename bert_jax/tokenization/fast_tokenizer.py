"""Tokenizers other than WordPiece: a tokenizer.json, which `tokenizers` runs.

Such as ModernBERT's byte-level BPE. Case, accents and words that are kept whole are
the library's business; the special tokens and their places are BERT's.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tokenizers

from bert_jax import errors
from bert_jax.runtime import storage
from bert_jax.tokenization.tokenizer import SPECIAL, Tokenizer

# What a piece may end with: one of each kind; an added word is a kind of its own.
_ENDS = 'a1. \n'


@dataclasses.dataclass(frozen=True)
class FastTokenizer(Tokenizer):
  """Turns text into ids by a tokenizer.json; `parse` makes it."""

  text: str = ''  # of the file

  file_name, space = 'tokenizer.json', ' '

  def to_bytes(self) -> bytes:
    return self.text.encode()

  def packed(self, texts: Sequence[str]) -> list[bytes]:
    return [np.array(x, self.id_type).tobytes() for x in self.ids(texts)]

  def ids(self, texts: Sequence[str]) -> list[list[int]]:
    encode = self.library.encode_batch_fast
    return [x.ids for x in encode(list(texts), add_special_tokens=False)]

  def decode(self, ids: Iterable[int]) -> str:
    return self.library.decode(list(ids), skip_special_tokens=False)

  def continues(self, ids: np.ndarray) -> np.ndarray:
    ends, rests = self._rests
    goes_on = rests[0][ids]  # the first: as behind a letter
    goes_on[..., 1:] = rests[ends[ids[..., :-1]], ids[..., 1:]]
    return goes_on

  def _with_special(self, text: str) -> list[int]:
    self.library.encode_special_tokens = False
    ids = self.library.encode(text, add_special_tokens=False).ids
    self.library.encode_special_tokens = True
    return ids

  @functools.cached_property
  def library(self) -> tokenizers.Tokenizer:
    return _open(self.text)

  @functools.cached_property
  def _rests(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns how each piece ends, [V], and behind which ends it goes on, [E, V].

    There the pre-tokenizer does not cut. A character that several pieces make
    is taken for a letter of the word before; an added word is a word.
    """
    cut = self.library.pre_tokenizer.pre_tokenize_str
    goes_on = functools.cache(lambda x: cut(x)[0][1][1] > 1)
    added = self.library.get_added_tokens_decoder()
    ends = np.full(self.size, len(_ENDS), np.uint8)
    rests = np.zeros((len(_ENDS) + 1, self.size), bool)
    for i, piece in enumerate(self.vocab):
      if piece and i not in added:
        text = self.library.decoder.decode(['a', piece])[1:]
        last, inside = text[-1:], text[:1] in ('', '\ufffd')
        kind = '\n' if last.isspace() else '1' if last.isnumeric() else '.'
        kind = 'a' if last.isalpha() or last in ('', '\ufffd') else kind
        ends[i] = _ENDS.index(' ' if last == ' ' else kind)
        head = text[:1] + (text[1:2] if text[1:2].isspace() else 'a')
        rests[:-1, i] = [inside or goes_on(x + head) for x in _ENDS]
    return ends, rests


def load(path: str, *how: Any) -> Tokenizer:
  """Reads a vocabulary file: a tokenizer.json, or else as `Tokenizer.load` does."""
  if not path.endswith('.json'):
    return Tokenizer.load(path, *how)
  if any(how):
    raise errors.UserError(
      f'{path} itself says what happens to case and accents; set '
      'data.lowercase=False (--cased) and leave data.strip_accents out.'
    )
  with errors.explaining(f'the vocabulary {path} cannot be read'):
    return parse(storage.read(path), path)


def parse(raw: bytes, path: str) -> FastTokenizer:
  """Returns the tokenizer of a tokenizer.json; it must frame texts as BERT does."""
  what = f'{path} cannot be read by tokenizers {tokenizers.__version__}'
  with errors.explaining(what, 'save the tokenizer again.', Exception):
    library = _open(text := raw.decode())
  if problem := _find_problem(library):
    raise errors.UserError(f'{path} {problem}; use another tokenizer.')
  pieces = {i: x for x, i in library.get_vocab().items()}
  vocab = tuple(pieces.get(i, '') for i in range(max(pieces) + 1))
  return FastTokenizer(vocab, False, False, (), text)


def _open(text: str) -> tokenizers.Tokenizer:
  library = tokenizers.Tokenizer.from_str(text)
  library.no_truncation()
  library.no_padding()
  library.encode_special_tokens = True  # '[MASK]' in a text is ordinary words
  return library


def _find_problem(library) -> str | None:
  ids, marked = library.get_vocab(), library.get_added_tokens_decoder()
  special = {x.content for x in marked.values() if x.special}
  if type(library.model).__name__ == 'WordPiece':
    return 'is of WordPiece, whose vocab.txt is to be given'
  if missing := [x for x in SPECIAL if x not in special]:
    return f'lacks the special tokens {", ".join(missing)}'
  if max(ids.values()) >= 1 << 24:  # there is a piece for each below
    return f'has the id {max(ids.values())}, more than 16 million'
  if not (library.pre_tokenizer and library.decoder):
    return 'lacks a pre_tokenizer or a decoder, which say where words begin'
  if getattr(library.model, 'dropout', None):
    return 'has a dropout, with which a text gets other ids each time'
  a, b = (library.encode(x, add_special_tokens=False).ids for x in 'ab')
  a, b = [ids['[CLS]'], *a, ids['[SEP]']], [*b, ids['[SEP]']]
  for given, wanted in (('a', a), ('ab', a + b)):
    if (frame := library.encode(*given).ids) != wanted:
      tokens = ' '.join(map(library.id_to_token, frame))
      return f'frames {" and ".join(given)} as {tokens}, unlike [CLS] a [SEP] b [SEP]'
  return None
