"""The WordPiece tokenizer that BERT was released with.

If `strip_accents` equals `lowercase`, FullTokenizer in google-research/bert
gives the same ids for any text. The ids of each word are cached, since text
repeats its words.
"""

import dataclasses
import functools
import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.runtime import storage
from bert_jax.tokenization import basic_tokenizer, wordpiece

SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')

_LITERAL_SPECIAL = re.compile('(' + '|'.join(map(re.escape, SPECIAL)) + ')')

# Splits text into words, before WordPiece.
words = basic_tokenizer.split_words


class AddedWord(NamedTuple):
  """A word that is kept whole, with flags of `tokenizers.AddedToken`.

  lstrip and rstrip are not among them: white space has no ids.
  """

  word: str
  id: int
  special: bool
  single_word: bool
  normalized: bool  # whether it is looked for in lower-cased, stripped text
  is_piece: bool  # whether WordPiece knows it, too, as [unused1]


@dataclasses.dataclass(frozen=True)
class Tokenizer:
  """Turns text into ids of a WordPiece vocabulary.

  Attributes:
    vocab: the pieces; the position of a piece is its id.
    strip_accents: whether accents are stripped, see
      `basic_tokenizer.split_words`; None becomes the value of `lowercase`.
    added: words of the vocabulary that are kept whole wherever text has them.

  >>> words = Tokenizer((*SPECIAL, 'the', 'cat', '##s', 'sat', '.'))
  >>> words.encode('The cats sat.')['input_ids']
  [2, 5, 6, 7, 8, 9, 3]
  >>> words.tokens([2, 5, 6, 7, 8, 9, 3])
  ['[CLS]', 'the', 'cat', '##s', 'sat', '.', '[SEP]']
  """

  vocab: tuple[str, ...]
  lowercase: bool = True
  strip_accents: bool | None = None
  added: tuple[AddedWord, ...] = ()

  file_name = 'vocab.txt'
  # What is before a word or a sentence that goes on a text, if it matters.
  space = ''

  def __post_init__(self):
    if self.strip_accents is None:  # so that equal tokenizers compare equal
      object.__setattr__(self, 'strip_accents', self.lowercase)

  @classmethod
  def load(
    cls,
    vocab_path: str,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    added: Iterable[Sequence] = (),
  ) -> 'Tokenizer':
    """Reads a vocabulary file, one piece per line; `added` as JSON has it."""
    words = tuple(AddedWord(*x) for x in added)
    return cls(read_vocab(vocab_path), lowercase, strip_accents, words)

  @property
  def size(self) -> int:
    return len(self.vocab)

  pad_id = property(lambda self: self._index['[PAD]'])
  unk_id = property(lambda self: self._index['[UNK]'])
  cls_id = property(lambda self: self._index['[CLS]'])
  sep_id = property(lambda self: self._index['[SEP]'])
  mask_id = property(lambda self: self._index['[MASK]'])

  @property
  def id_type(self) -> np.dtype:
    return choose_id_type(self.size)

  def to_bytes(self) -> bytes:
    """Returns the content of the file that keeps the vocabulary, `file_name`."""
    return _join(self.vocab)

  @property
  def sha256(self) -> str:
    """Returns the SHA-256 of that file, in hexadecimal."""
    return hashlib.sha256(self.to_bytes()).hexdigest()

  def packed(self, texts: Sequence[str]) -> list[bytes]:
    """Returns the ids of each text, as bytes of `choose_id_type`.

    '[MASK]' in a text is split into three ordinary words, as in
    google-research/bert: text cannot put special tokens into training data.
    """
    if not self.added:
      return self._pack(texts)
    rows = [list(self._split_around(text)) for text in texts]
    parts = iter(self._pack([part for row in rows for part, _ in row]))
    return [b''.join(next(parts) + word for _, word in row) for row in rows]

  def find_added(self, text: str) -> list[tuple[int, int, int]]:
    """Returns (begin, end, id) of each word of a text that is kept whole."""
    if not self.added:
      return []
    encoded = self.finder.encode(text)
    places = zip(encoded.offsets, encoded.ids, strict=True)
    return [(*place, self.added[i - 1].id) for place, i in places if i]

  def _split_around(self, text) -> Iterator[tuple[str, bytes]]:
    """Yields parts of a text, each with the id of the added word behind it."""
    at = 0
    for begin, end, i in self.find_added(text):
      yield text[at:begin], np.array(i, self.id_type).tobytes()
      at = end
    yield text[at:], b''

  def _pack(self, texts: Sequence[str]) -> list[bytes]:
    lines, rest = [], {}
    for k, text in enumerate(texts):
      if not (text.isascii() and text.isprintable()):
        spaced = basic_tokenizer.space_words(
          text, self.lowercase, self.strip_accents
        )
        text = self._letters.narrow(spaced)
        if text is None:
          rest[k] = b''.join(map(self._words.__getitem__, spaced.split()))
          text = ''
      lines.append(text)
    lines.append('')
    ids, counts = self._bytes('\n'.join(lines).encode('latin-1'))
    raw, ends = ids.tobytes(), np.cumsum(counts) * ids.itemsize
    rows = [raw[a:b] for a, b in itertools.pairwise([0, *ends.tolist()])]
    for k, packed in rest.items():
      rows[k] = packed
    return rows

  def ids(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each text as a list, see `packed`."""
    kind = self.id_type
    return [np.frombuffer(x, kind).tolist() for x in self.packed(texts)]

  def spell(self, word: str) -> list[int]:
    """Returns the ids of one of the words that text is split into.

    Of one that begins with ##, which no word does, they are those of a rest.
    """
    rest = word.removeprefix('##')
    ids = self._words[word] if rest == word else self._words.match(rest, False)
    return np.frombuffer(ids, self.id_type).tolist()

  def encode(self, text: str, pair: str | None = None) -> dict[str, list[int]]:
    """Returns the features of a text, or of a pair, for one model input.

    '[MASK]' and other special tokens in the text become the special tokens' ids.
    """
    ids = [self.cls_id, *self._with_special(text), self.sep_id]
    first = len(ids)
    if pair is not None:
      ids += [*self._with_special(pair), self.sep_id]
    return {
      'input_ids': ids,
      'input_mask': [1] * len(ids),
      'segment_ids': [0] * first + [1] * (len(ids) - first),
    }

  def tokens(self, ids: Iterable[int]) -> list[str]:
    """Returns the pieces that ids stand for."""
    return [self.vocab[i] for i in ids]

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the words of ids, with their pieces joined."""
    return ' '.join(self.tokens(ids)).replace(' ##', '')

  def continues(self, ids: np.ndarray) -> np.ndarray:
    """Returns whether tokens go on the word of the token before, bool [..., S]."""
    return self._is_rest[ids]

  def _with_special(self, text: str) -> list[int]:
    ids = []
    for k, part in enumerate(_LITERAL_SPECIAL.split(text)):
      ids += [self._index[part]] if k % 2 else self.ids([part])[0]
    return ids

  @functools.cached_property
  def _index(self) -> dict[str, int]:
    # Like Google's code: strips lines, and the last of equal lines counts.
    return {piece.strip(): i for i, piece in enumerate(self.vocab)}

  @functools.cached_property
  def _is_rest(self) -> np.ndarray:
    return np.array([piece.startswith('##') for piece in self.vocab])

  @functools.cached_property
  def _letters(self) -> wordpiece.Letters:
    return wordpiece.Letters()

  @functools.cached_property
  def _bytes(self) -> wordpiece.ByteWords:
    def spell(word: bytes) -> bytes:
      return self._words.match(self._letters.widen(word))

    return wordpiece.ByteWords(spell, self.id_type, self.lowercase)

  @functools.cached_property
  def _words(self) -> wordpiece.Words:
    others = {x.word for x in self.added if not x.is_piece}
    index = {x: i for x, i in self._index.items() if x not in others}
    return wordpiece.Words(index, self.id_type)

  @functools.cached_property
  def finder(self):
    """A `tokenizers.Tokenizer` that knows only added words, as 1, 2, ..."""
    import tokenizers  # here, since few folders have such words

    found = tokenizers.Tokenizer(tokenizers.models.WordLevel({'': 0}, ''))
    found.normalizer = tokenizers.normalizers.BertNormalizer(
      strip_accents=self.strip_accents, lowercase=self.lowercase
    )
    flags = 'special', 'single_word', 'normalized'
    for x in self.added:
      given = {name: getattr(x, name) for name in flags}
      found.add_tokens([tokenizers.AddedToken(x.word, **given)])
    return found

  def __getstate__(self):
    # Caches are not pickled: a copy makes its own.
    fields = dataclasses.fields(self)
    return {field.name: getattr(self, field.name) for field in fields}


def choose_id_type(vocab_size: int) -> np.dtype:
  """Returns the integer type in which ids of a vocabulary are stored."""
  return np.dtype('<u2') if vocab_size <= 1 << 16 else np.dtype('<u4')


def read_vocab(path: str) -> tuple[str, ...]:
  """Reads a vocabulary file, one piece per line, and checks it."""
  advice = 'give one with a piece per line, as bert_jax.data.vocab writes it.'
  with errors.explaining(f'the vocabulary {path} cannot be read', advice):
    raw = storage.read(path)
  try:
    text = raw.decode('utf-8-sig')
  except UnicodeDecodeError as error:
    raise errors.UserError(
      f"the vocabulary {path} is not UTF-8 at byte {error.start}; give a BERT's "
      f'vocab.txt, or {errors.advise_converting(path)}.'
    ) from error
  # Not splitlines(): released vocabularies hold U+2028 as a piece.
  lines = [line.strip(' \t\r') for line in text.split('\n')]
  while lines and not lines[-1]:
    lines.pop()
  check_vocab(lines, path)
  return tuple(lines)


def write_vocab(words: Sequence[str], path: str):
  """Writes a vocabulary file atomically, one piece per line."""
  storage.make_folder(os.path.dirname(path))
  storage.write(path, _join(words))


def _join(words: Sequence[str]) -> bytes:
  return ''.join(f'{word}\n' for word in words).encode()


def check_vocab(lines: Sequence[str], path: str):
  """Raises errors.UserError unless pieces of a file are a BERT vocabulary.

  As for Google's code, a piece's id is its place, also behind empty lines, and
  of equal pieces the last counts.
  """
  marked = [x for x in lines if x[:1] in '▁Ġ' and len(x) > 1]
  if len(marked) > len([x for x in lines if x[:2] == '##']):
    raise errors.UserError(
      f'the vocabulary {path} is of SentencePiece or byte-level BPE, which have '
      f'pieces such as {marked[0]!r}, not of WordPiece; give a '
      "BERT's vocab.txt, or make one with bert_jax.data.vocab."
    )
  missing = [piece for piece in SPECIAL if piece not in lines]
  if missing:
    raise errors.UserError(
      f'the vocabulary {path} ({len(lines)} lines) lacks '
      f'{", ".join(missing)}; give a BERT vocabulary, one piece per line.'
    )
