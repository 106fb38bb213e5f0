"""WordPiece: text to ids, equal to the tokenizer that BERT was released with.

The `tokenizers` library cleans, splits and looks up; its BertNormalizer and
BertPreTokenizer follow google-research/bert. What is added here is a cache:
running text repeats its words, and BERT splits at white space before anything
else, so the ids of a line are the ids of its white-space chunks.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence

import tokenizers

from bert_jax import errors

SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')

# Longer words are [UNK], as in google-research/bert.
_MAX_CHARS_PER_WORD = 200

# str.split() takes these control characters for white space, BERT drops them
# and joins what they stand between.
_DROPPED = re.compile('[\x0b\x0c\x1c-\x1f\x85]')

_LITERAL_SPECIAL = re.compile('(' + '|'.join(map(re.escape, SPECIAL)) + ')')

# About 500,000 English chunks, or 150 MB with their ids.
_MAX_CACHED_CHARS = 4_000_000


@dataclasses.dataclass(frozen=True)
class Tokenizer:
  """Turns text into ids of a WordPiece vocabulary.

  Attributes:
    vocab: the pieces; the position of a piece is its id.
    lowercase: whether text is lower-cased and stripped of accents.
  """

  vocab: tuple[str, ...]
  lowercase: bool = True

  @classmethod
  def load(cls, vocab_path: str, lowercase: bool = True) -> 'Tokenizer':
    """Reads a vocabulary file, one piece per line."""
    return cls(read_vocab(vocab_path), lowercase)

  @property
  def size(self) -> int:
    return len(self.vocab)

  @property
  def pad_id(self) -> int:
    return self._index['[PAD]']

  @property
  def unk_id(self) -> int:
    return self._index['[UNK]']

  @property
  def cls_id(self) -> int:
    return self._index['[CLS]']

  @property
  def sep_id(self) -> int:
    return self._index['[SEP]']

  @property
  def mask_id(self) -> int:
    return self._index['[MASK]']

  def ids(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each text, without special tokens.

    '[MASK]' in a text is three ordinary words, as in google-research/bert: a
    corpus cannot put special tokens into the training data.
    """
    lines = [chunks(text) for text in texts]
    known = self._cache
    new = {chunk for line in lines for chunk in line if chunk not in known}
    size = known.chars + sum(map(len, new))
    if size > _MAX_CACHED_CHARS:
      known.clear()
      new = {chunk for line in lines for chunk in line}
      size = sum(map(len, new))
    known.chars = size
    # One call per chunk: for words this is faster than encode_batch, and it
    # starts no threads, which would compete with other worker processes.
    encode = self._wordpiece.encode
    for chunk in new:
      known[chunk] = encode(chunk, add_special_tokens=False).ids
    return [[i for chunk in line for i in known[chunk]] for line in lines]

  def encode(
    self, text: str, pair: str | None = None, max_length: int | None = None
  ) -> dict[str, list[int]]:
    """Returns the features of a text, or of a pair, for one model input.

    Args:
      text: becomes [CLS] text [SEP]; special tokens such as [MASK] that it
        spells out stand for themselves.
      pair: a second text, which adds pair [SEP] as segment 1.
      max_length: tokens; shorter inputs are padded to it, longer ones lose
        tokens at the end of the longer text.

    Returns:
      input_ids, input_mask (1 for tokens, 0 for padding) and segment_ids, of
      one length.
    """
    a = self._with_special(text)
    b = None if pair is None else self._with_special(pair)
    if max_length is not None:
      _truncate(a, b, max_length)
    ids = [self.cls_id, *a, self.sep_id]
    segments = [0] * len(ids)
    if b is not None:
      ids += [*b, self.sep_id]
      segments += [1] * (len(b) + 1)
    padding = 0 if max_length is None else max_length - len(ids)
    return {
      'input_ids': ids + [self.pad_id] * padding,
      'input_mask': [1] * len(ids) + [0] * padding,
      'segment_ids': segments + [0] * padding,
    }

  def tokens(self, ids: Iterable[int]) -> list[str]:
    """Returns the pieces that ids stand for."""
    return [self.vocab[i] for i in ids]

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the words of ids, with their pieces joined."""
    return ' '.join(self.tokens(ids)).replace(' ##', '')

  def _with_special(self, text: str) -> list[int]:
    parts = _LITERAL_SPECIAL.split(text)  # every second part is special
    out = []
    for k, part in enumerate(parts):
      out += [self._index[part]] if k % 2 else self.ids([part])[0]
    return out

  @functools.cached_property
  def _index(self) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(self.vocab)}

  @functools.cached_property
  def _wordpiece(self) -> tokenizers.Tokenizer:
    wordpiece = tokenizers.Tokenizer(
      tokenizers.models.WordPiece(
        vocab=self._index,
        unk_token='[UNK]',
        max_input_chars_per_word=_MAX_CHARS_PER_WORD,
      )
    )
    wordpiece.normalizer = normalizer(self.lowercase)
    wordpiece.pre_tokenizer = pre_tokenizer()
    return wordpiece

  @functools.cached_property
  def _cache(self) -> '_Cache':
    return _Cache()

  def __getstate__(self):
    # The cache and the Rust object stay behind: a copy makes its own.
    return {'vocab': self.vocab, 'lowercase': self.lowercase}


class _Cache(dict):
  """Ids by chunk, and the number of characters of all chunks."""

  chars = 0


def chunks(text: str) -> list[str]:
  """Splits at white space; BERT treats each chunk by itself."""
  return _DROPPED.sub('', text).split()


def normalizer(lowercase: bool) -> tokenizers.normalizers.Normalizer:
  """Returns BERT's cleaning of text: controls, CJK, case and accents."""
  return tokenizers.normalizers.BertNormalizer(
    clean_text=True,
    handle_chinese_chars=True,
    strip_accents=lowercase,
    lowercase=lowercase,
  )


def pre_tokenizer() -> tokenizers.pre_tokenizers.PreTokenizer:
  """Returns BERT's splitting of text at white space and punctuation."""
  return tokenizers.pre_tokenizers.BertPreTokenizer()


def read_vocab(path: str) -> tuple[str, ...]:
  """Reads a vocabulary file, one piece per line, and checks it.

  Raises:
    errors.UserError: if it cannot be read, is empty, or does not hold each
      special token and every other piece just once.
  """
  try:
    with open(path, 'rb') as file:
      text = file.read().decode('utf-8-sig')
  except OSError as error:
    raise errors.UserError(
      f'the vocabulary {path} cannot be read ({error.strerror}); give a file '
      'with one piece per line, such as bert_jax.data.vocab writes.'
    ) from error
  except UnicodeDecodeError as error:
    raise errors.UserError(
      f'the vocabulary {path} is not UTF-8 at byte {error.start}; convert it, '
      f'for example with: iconv -f ISO-8859-1 -t UTF-8 {path}'
    ) from error
  # Not splitlines(): released vocabularies hold U+2028 as a piece.
  lines = text.replace('\r\n', '\n').split('\n')
  while lines and not lines[-1]:
    lines.pop()
  if not lines:
    raise errors.UserError(
      f'the vocabulary {path} is empty; give a file with one piece per line.'
    )
  _check_vocab(lines, path)
  return tuple(lines)


def _check_vocab(lines: list[str], path: str):
  first = {}
  for n, piece in enumerate(lines, 1):
    if not piece:
      raise errors.UserError(
        f'the vocabulary {path} has an empty line {n}; ids are line numbers, '
        'so give every line one piece.'
      )
    if first.setdefault(piece, n) != n:
      raise errors.UserError(
        f'the vocabulary {path} holds {piece!r} in lines {first[piece]} and '
        f'{n}; give every piece once.'
      )
  missing = [piece for piece in SPECIAL if piece not in first]
  if missing:
    raise errors.UserError(
      f'the vocabulary {path} ({len(lines)} lines) lacks '
      f'{", ".join(missing)}; give a BERT vocabulary, one piece per line.'
    )


def _truncate(a: list[int], b: list[int] | None, max_length: int):
  """Shortens the longer of two texts until both and special tokens fit."""
  special = 2 if b is None else 3  # [CLS] a [SEP], [CLS] a [SEP] b [SEP]
  if max_length < special:
    raise errors.UserError(
      f'max_length={max_length} leaves no room for {special} special tokens; '
      f'use at least {special}.'
    )
  while len(a) + len(b or ()) > max_length - special:
    longer = a if b is None or len(a) > len(b) else b
    longer.pop()
