"""Trains a WordPiece vocabulary on counted words.

SentencePiece's BPE learns a third more pieces than there is room for. Many of
them only led to longer ones, and WordPiece, which always takes the longest
piece that fits, never uses them. So the pieces are tried as WordPiece would
use them, and those go that save the fewest tokens.

  python -m bert_jax.data.vocab --input='wiki/**/wiki_*' --size=30522 \\
    --output=vocab.txt

docs/vocabulary.md compares the result with others.
"""

import collections
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import sentencepiece
from absl import flags

from bert_jax import command, errors, progress, tokenizer
from bert_jax.data import sources

# Bounds the counts to a few hundred MB.
_MAX_WORDS = 2_000_000
_MAX_TRAINING_WORDS = 1_000_000  # the rest is too rare to make a piece
_MAX_CHARS_PER_WORD = 200  # the tokenizer takes longer words for [UNK]

# A word that cannot be spelt costs as much as this many tokens. Thus rare
# characters keep their places, unless there is much more text than usual or
# much less room: then they give way to pieces that save thousands of tokens.
_UNKNOWN = 100
_ROUNDS = 2  # of dropping pieces; more gain next to nothing

_SPACE = '\u2581'  # marks the start of a word in SentencePiece

Counted = Sequence[tuple[str, int]]  # words and how often each occurs


def count_words(texts: Iterable[str], lowercase: bool) -> collections.Counter:
  """Counts the words that BERT's tokenizer splits texts into.

  Beyond two million different words the rarest are forgotten. The same texts
  in the same order give the same counts.
  """
  words: collections.Counter[str] = collections.Counter()
  with progress.Progress(None, 'B', 'counting words') as bar:
    for text in texts:
      words.update(tokenizer.words(text, lowercase))
      bar.update(len(text))
      _prune(words)
  return words


def merge(counters: Iterable[collections.Counter]) -> collections.Counter:
  """Adds counts, within the same bound; the order may matter beyond it."""
  words: collections.Counter[str] = collections.Counter()
  for counter in counters:
    words.update(counter)
    _prune(words)
  return words


def train(words: collections.Counter, size: int) -> list[str]:
  """Returns the vocabulary of `size` pieces for counted words.

  Args:
    words: of `count_words` or `merge`.
    size: entries, special tokens included.

  Returns:
    Special tokens, characters by count, then pieces by the tokens that they
    save. The same words give the same list.

  Raises:
    errors.UserError: if the words do not make `size` pieces.
  """
  room = size - len(tokenizer.SPECIAL)
  if room <= 0:
    raise errors.UserError(
      f'size={size} leaves no room beside {len(tokenizer.SPECIAL)} special '
      'tokens; the paper uses 30522.'
    )
  counted = [item for item in _by_count(words) if _is_spellable(item[0])]
  characters = _characters(counted)
  counted = counted[:_MAX_TRAINING_WORDS]
  # Where there are more characters than room, half of them may have to go.
  merges = max(room - len(characters), room // 2)
  learnt = _merges(counted, merges + merges // 3) if counted else []
  pieces = [*characters, *learnt]
  if len(pieces) < room:
    most = len(tokenizer.SPECIAL) + len(pieces)
    raise errors.UserError(
      f'the text has {len(words):,} different words, which make {most:,} '
      f'pieces, not the {size:,} of the vocabulary; give more text or a size '
      f'of at most {most:,}.'
    )
  return [*tokenizer.SPECIAL, *_select(counted, characters, learnt, room)]


def write(vocab: Sequence[str], path: str):
  """Writes a vocabulary file, one piece per line, whole or not at all."""
  try:
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with open(path + '.tmp', 'w', encoding='utf-8', newline='\n') as file:
      file.writelines(f'{piece}\n' for piece in vocab)
    os.replace(path + '.tmp', path)
  except OSError as error:
    raise errors.UserError(
      f'the vocabulary {path} cannot be written ({error.strerror}); give a '
      'place where files can be made.'
    ) from error


class Fit(NamedTuple):
  """How a vocabulary suits words, each counted as often as it occurs."""

  tokens_per_word: float  # an unknown word is one token
  unknown: float  # share of words
  whole: float  # share of words that are one token and known
  characters: float  # share of characters that it can spell where they stand


def measure(vocab: Iterable[str], words: collections.Counter) -> Fit:
  """Says how a vocabulary suits counted words; all zero if there are none."""
  pieces = set(vocab)
  longest = max(map(len, pieces))
  tokens = unknown = whole = characters = spelt = 0
  for word, count in words.items():
    parts = _split(word, pieces, longest)
    tokens += count * len(parts or '?')
    unknown += count * (not parts)
    whole += count * (len(parts) == 1)
    characters += count * len(word)
    spelt += count * sum(c in pieces for c in _spelling(word))
  total = max(words.total(), 1)
  return Fit(
    tokens / total, unknown / total, whole / total, spelt / max(characters, 1)
  )


def _prune(words):
  """Forgets the rarest words until no more than the limit are left."""
  least = 1
  while len(words) > _MAX_WORDS:
    for word in [word for word, count in words.items() if count <= least]:
      del words[word]
    least += 1


def _by_count(counts) -> list[tuple[str, int]]:
  """Returns items by falling count; ties in the order of the alphabet."""
  return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _is_spellable(word: str) -> bool:
  """Says whether a word is short enough and, without surrogates, UTF-8."""
  return len(word) <= _MAX_CHARS_PER_WORD and not any(
    '\ud800' <= c <= '\udfff' for c in word
  )


def _spelling(word: str) -> Iterator[str]:
  """Yields the characters of a word as WordPiece writes them."""
  yield word[0]
  for c in word[1:]:
    yield '##' + c


def _characters(counted: Counted) -> dict[str, int]:
  """Counts characters, first and later in words apart, by falling count.

  A character that always comes later counts once as first, because any may
  stand alone some day.
  """
  counts = collections.Counter({c: 1 for word, _ in counted for c in word})
  for word, count in counted:
    for c in _spelling(word):
      counts[c] += count
  return dict(_by_count(counts))


def _merges(counted: Counted, count: int) -> list[str]:
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
      # SentencePiece counts <unk>, the space and single characters, which may
      # come twice as for us; those we have.
      vocab_size=count + 2 * len({c for w, _ in counted for c in w}) + 2,
      hard_vocab_limit=False,  # too small a text is our error to report
      normalization_rule_name='identity',  # BERT's has been applied
      character_coverage=1.0,
      split_by_unicode_script=False,  # BERT does not: 10월 is one word
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


def _select(
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


def _worth(counted, pieces: set[str], characters) -> dict[str, int]:
  """Returns the tokens that it would cost to lose each piece."""
  longest = max(map(len, pieces))
  uses: collections.Counter[str] = collections.Counter()
  for word, count in counted:
    for piece in _split(word, pieces, longest):
      uses[piece] += count
  worth = {}
  for piece in sorted(pieces):
    if piece in characters:
      # Longer pieces that hide its uses now may go later: all count.
      worth[piece] = _UNKNOWN * characters[piece]
    else:
      pieces.remove(piece)
      parts = len(_split(piece, pieces, longest)) or _UNKNOWN
      pieces.add(piece)
      worth[piece] = uses[piece] * (parts - 1)
  return worth


def _split(word: str, pieces: set[str], longest: int) -> list[str]:
  """Returns WordPiece's pieces of a word, or of a '##' piece; [] if unknown."""
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


# The command.

_SAMPLE_EVERY = 100  # paragraphs
_SAMPLE_CHARS = 5_000_000


def _define_flags():
  flags.DEFINE_list(
    'input', None, 'Files, globs, directories, tfds:NAME:SPLIT, python-docs.'
  )
  flags.DEFINE_string('output', None, 'The vocabulary file to make.')
  flags.DEFINE_integer('size', 30522, 'Entries, special tokens included.')
  flags.DEFINE_bool('cased', False, 'Keep case and accents.')
  flags.DEFINE_enum(
    'layout',
    'paragraphs',
    list(sources.LAYOUTS),
    'Of plain text, see bert_jax.data.prepare.',
  )
  flags.DEFINE_list('beside', [], 'Vocabulary files to compare with.')
  flags.mark_flags_as_required(['input', 'output'])


def main(argv):
  """Runs the command."""
  del argv
  f = flags.FLAGS
  print(make(f.input, f.layout, f.size, not f.cased, f.output, f.beside))


def make(
  inputs: Sequence[str],
  layout: str,
  size: int,
  lowercase: bool,
  output: str,
  beside: Sequence[str] = (),
) -> str:
  """Trains a vocabulary, writes it, and says how well it suits held-out text.

  Args:
    inputs: see `sources.plan`.
    layout: see `sources.plan`.
    size: entries, special tokens included.
    lowercase: whether words are lower-cased and stripped of accents.
    output: the file to write.
    beside: vocabulary files, measured on the same held-out text.

  Returns:
    The report, for people.
  """
  others = {path: tokenizer.read_vocab(path) for path in beside}
  sample: list[str] = []
  texts = _hold_out(sources.read(inputs, layout), sample)
  vocab = train(count_words(texts, lowercase), size)
  write(vocab, output)
  report = f'{output}: {size:,} pieces'
  if sample:
    words = count_words(sample, lowercase)
    report += '\n' + describe({output: vocab, **others}, words)
  return report


def _hold_out(documents, sample: list[str]):
  """Yields paragraphs, but puts every hundredth into the sample."""
  chars = n = 0
  for document in documents:
    for paragraph in document.paragraphs:
      n += 1
      if n % _SAMPLE_EVERY == 0 and chars < _SAMPLE_CHARS:
        sample.append(paragraph)
        chars += len(paragraph)
      else:
        yield paragraph


def describe(
  vocabs: dict[str, Sequence[str]], words: collections.Counter
) -> str:
  """Returns a table of how vocabularies suit held-out words."""
  lines = [
    f'held-out text of {words.total():,} words',
    'tokens per word  unknown words  one-token words  characters  vocabulary',
  ]
  for name, vocab in vocabs.items():
    fit = measure(vocab, words)
    lines.append(
      f'{fit.tokens_per_word:15.4f}  {fit.unknown:13.4%}  {fit.whole:15.2%}'
      f'  {fit.characters:10.4%}  {name}'
    )
  return '\n'.join(lines)


if __name__ == '__main__':
  _define_flags()
  command.run(main)
