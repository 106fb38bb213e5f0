"""Trains a WordPiece vocabulary on counted words, and measures its fit.

Characters come first, then pieces that SentencePiece's BPE learns, a third more
than there is room for. Many of these are only steps on the way to longer ones,
which WordPiece, as it takes the longest match, never uses: words are split as
WordPiece does, and the pieces that save the fewest tokens are dropped. Pieces
are written as in the vocabulary file, with '##' if they do not begin a word.
"""

import collections
import io
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import sentencepiece

from bert_jax import errors
from bert_jax.tokenization import tokenizer, unknown, wordpiece

# Limits the memory for counts to a few hundred MB.
_MAX_WORDS = 2_000_000
_MAX_TRAINING_WORDS = 1_000_000  # the rest is too rare to make a piece

# An unknown word costs as much as this many tokens. This keeps rare characters,
# except with much more text than usual or a much smaller vocabulary: then
# pieces that save thousands of tokens replace them.
_UNKNOWN = 100
_FEWEST = 3  # occurrences of a word to add
_ROUNDS = 2  # of dropping pieces; more rounds gain almost nothing

_SPACE = '\u2581'  # marks the start of a word in SentencePiece

Counted = Sequence[tuple[str, int]]  # words and how often each occurs


def count_words(
  groups: Iterable[Mapping[str, int] | Iterable[str]],
) -> collections.Counter:
  """Counts words, or adds up their counts; drops the rarest beyond two million."""
  words: collections.Counter[str] = collections.Counter()
  for some in groups:
    words.update(some)
    least = 1
    while len(words) > _MAX_WORDS:
      for word in [word for word, count in words.items() if count <= least]:
        del words[word]
      least += 1
  return words


def train(
  words: collections.Counter, size: int, begin: Sequence[str] = ()
) -> list[str]:
  """Trains a vocabulary of `size` pieces, or extends one that is given.

  Equal counts give equal lists.

  Special tokens come first, then characters by count, then pieces by the number
  of tokens that they save.
  """
  if begin:
    return extend(begin, words, size - len(begin))
  room = size - len(tokenizer.SPECIAL)
  counted = _list_spellable(words)
  characters = count_characters(counted)
  counted = counted[:_MAX_TRAINING_WORDS]
  # BPE gets at least half of the room, even if characters must be dropped.
  merges = max(room - len(characters), room // 2)
  learnt = learn(counted, merges + merges // 3) if counted else []
  most = len(tokenizer.SPECIAL) + len(characters) + len(learnt)
  if most < size:
    raise errors.UserError(
      f'the text has {len(words):,} different words, which make {most:,} '
      f'pieces, not the {size:,} of the vocabulary; give more text or a size '
      f'of at most {most:,}.'
    )
  return [*tokenizer.SPECIAL, *choose(counted, characters, learnt, room)]


def _sort_by_count(counts: collections.Counter) -> list[tuple[str, int]]:
  """Returns items by descending count, ties in alphabetical order."""
  return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _list_spellable(words: collections.Counter) -> Counted:
  """Returns the words that WordPiece splits, and UTF-8 has, by count."""
  return [
    (word, count)
    for word, count in _sort_by_count(words)
    if len(word) <= wordpiece.MAX_CHARS_PER_WORD
    and not any('\ud800' <= c <= '\udfff' for c in word)
  ]


def count_characters(counted: Counted) -> dict[str, int]:
  """Counts characters, separately at the start of words and within them.

  At the start each counts once at least, because any may occur as a word.
  """
  counts = collections.Counter({c: 1 for word, _ in counted for c in word})
  for word, count in counted:
    counts[word[0]] += count
    for c in word[1:]:
      counts['##' + c] += count
  return dict(_sort_by_count(counts))


def learn(counted: Counted, count: int) -> list[str]:
  """Returns up to `count` pieces that BPE learns, as WordPiece writes them."""
  model = io.BytesIO()
  with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, 'words.tsv')
    with open(path, 'w', encoding='utf-8') as file:
      file.writelines(f'{w}\t{n}\n' for w, n in counted if _SPACE not in w)
    if not os.path.getsize(path):
      return []
    sentencepiece.SentencePieceTrainer.train(
      input=path,
      input_format='tsv',
      model_writer=model,
      model_type='bpe',
      # SentencePiece's size includes <unk>, the space and single characters,
      # each up to twice (at the start of words and within).
      vocab_size=count + 2 * len({c for w, _ in counted for c in w}) + 2,
      hard_vocab_limit=False,  # `train` reports too small a text
      normalization_rule_name='identity',  # BERT's has been applied
      character_coverage=1.0,
      split_by_unicode_script=False,  # like BERT: 10월 is one word
      unk_id=0,
      bos_id=-1,
      eos_id=-1,
      pad_id=-1,
      num_threads=1,
      minloglevel=2,
    )
  processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
  pieces = [processor.id_to_piece(i) for i in range(1, len(processor))]
  return [
    piece[1:] if piece.startswith(_SPACE) else '##' + piece
    for piece in pieces
    if len(piece.removeprefix(_SPACE)) > 1
  ][:count]


def choose(
  counted: Counted, characters: dict[str, int], learnt: list[str], room: int
) -> list[str]:
  """Drops the least useful pieces, in steps, until `room` are left."""
  pieces = {*characters, *learnt}
  excess = len(pieces) - room
  for step in range(1, _ROUNDS + 1):
    worth = _worth(counted, pieces, characters)
    keep = room + excess * (_ROUNDS - step) // _ROUNDS
    best = sorted(pieces, key=lambda piece: (-worth[piece], piece))[:keep]
    pieces = set(best)
  return [
    *(piece for piece in characters if piece in pieces),
    *(piece for piece in best if piece not in characters),
  ]


def extend(
  vocab: Sequence[str], words: collections.Counter, count: int
) -> list[str]:
  """Adds the `count` words that save the most tokens to a vocabulary.

  Other words may begin with them. What is unknown counts as its characters and one.
  """
  pieces, longest = set(vocab), max(map(len, [*vocab, *words]))
  counted = _list_spellable(words)
  sizes = {x: len(_split(x, pieces, longest)) for x, _ in counted}
  costs = {x: size or len(x) + 1 for x, size in sizes.items()}
  # Behind such a piece, the rest of a word that was known might not be.
  known = (x for x, size in sizes.items() if size)
  rests = (x for x in known if any('##' + c not in pieces for c in x[1:]))
  risky = {x[:end] for x in rests for end in range(1, len(x))}
  worth = {
    x: n * (costs[x] - 1)
    for x, n in counted
    if n >= _FEWEST and costs[x] > 1 and x not in risky
  }
  if len(worth) < count:
    raise errors.UserError(
      f'data.add_words={count}, but only {len(worth)} words of the text are split '
      f'by the vocabulary and occur {_FEWEST} times; give at most {len(worth)}.'
    )
  # Twice as many, since one of them may be the beginning of another.
  candidates = sorted(worth, key=lambda x: (-worth[x], x))[: 2 * count]
  pieces.update(candidates)
  uses: collections.Counter[str] = collections.Counter()
  for word, n in counted:
    uses.update(dict.fromkeys(_split(word, pieces, longest)[:1], n))
  for word in candidates:
    pieces.remove(word)
    parts = len(_split(word, pieces, longest)) or costs[word]
    pieces.add(word)
    worth[word] = uses[word] * (parts - 1)
  chosen = sorted(candidates, key=lambda x: (-worth[x], x))[:count]
  was, now = (
    measure(x, words).tokens_per_word for x in (vocab, [*vocab, *chosen])
  )
  print(
    f'{count:,} words added to the vocabulary, which save {1000 * (was - now):.0f} '
    f'of {1000 * was:,.0f} pieces per 1,000 words: {errors.listing(chosen)}',
    flush=True,
  )
  return [*vocab, *chosen]


class Fit(NamedTuple):
  """How well a vocabulary fits words, weighted by their counts."""

  tokens_per_word: float  # an unknown word is one token
  unknown: float  # share of words
  whole: float  # share of words that are one token and known
  unknown_characters: float  # share of characters that are in unknown words
  unknown_tokens: float  # share of tokens that are [UNK]


def measure(vocab: Iterable[str], words: Mapping[str, int]) -> Fit:
  """Measures a vocabulary's fit to counted words; all zero without words."""
  pieces = set(vocab)
  longest = max(map(len, pieces))
  counts = np.array([*words.values()], int)
  parts = np.array([len(_split(x, pieces, longest)) for x in words], int)
  characters = counts * np.array([*map(len, words)], int)
  total, tokens = max(counts.sum(), 1), counts @ np.maximum(parts, 1)
  unknowns = parts == 0
  return Fit(
    tokens / total,
    unknown=counts @ unknowns / total,
    whole=counts @ (parts == 1) / total,
    unknown_characters=characters @ unknowns / max(characters.sum(), 1),
    unknown_tokens=counts @ unknowns / max(tokens, 1),
  )


def check(vocab: Sequence[str], words: Mapping[str, int]) -> Fit:
  """Measures a vocabulary's fit to text to encode; refuses it if it is bad."""
  fit = measure(vocab, words)
  if max(fit.unknown_tokens, fit.unknown_characters) > unknown.REFUSE:
    raise errors.UserError(
      f'{fit.unknown_tokens:.0%} of the tokens, with '
      f'{fit.unknown_characters:.0%} of the characters, are unknown to the '
      f'vocabulary, {unknown.explain(vocab, words)}; give the data.lowercase and '
      'data.strip_accents that it is made for, or train one on this text with '
      'bert_jax.data.vocab.'
    )
  return fit


def _worth(counted, pieces: set[str], characters) -> dict[str, int]:
  """Returns, for each piece, how many more tokens there would be without it."""
  longest = max(map(len, pieces))
  uses: collections.Counter[str] = collections.Counter()
  for word, count in counted:
    for piece in _split(word, pieces, longest):
      uses[piece] += count
  worth = {}
  for piece in sorted(pieces):
    if piece in characters:
      # Every occurrence, since longer pieces that cover it may be dropped later.
      worth[piece] = _UNKNOWN * characters[piece]
    else:
      pieces.remove(piece)
      parts = len(_split(piece, pieces, longest)) or _UNKNOWN
      pieces.add(piece)
      worth[piece] = uses[piece] * (parts - 1)
  return worth


def _split(word: str, pieces: set[str], longest: int) -> list[str]:
  """Splits a word, or a '##' piece, like WordPiece; [] if it is unknown."""
  if len(word) > wordpiece.MAX_CHARS_PER_WORD:
    return []
  out = []
  # No word begins with '##', because BERT makes each '#' a word.
  start = 2 if word.startswith('##') else 0
  while start < len(word):
    mark = '##' if start else ''
    for end in range(min(len(word), start + longest), start, -1):
      piece = mark + word[start:end]
      if piece in pieces:
        break
    else:
      return []
    out.append(piece)
    start = end
  return out
