"""Trains a WordPiece vocabulary on text, and measures how well it fits.

`vocab_pieces.py` chooses the pieces; this module counts words and writes files.

  python -m bert_jax.data.vocab --input='wiki/**/wiki_*' --size=30522 \\
    --output=vocab.txt

docs/vocabulary.md compares the result with others.
"""

import collections
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence

from absl import flags

from bert_jax import errors
from bert_jax.corpus import sources
from bert_jax.data import accents, vocab_pieces
from bert_jax.data import recipe as recipe_lib
from bert_jax.runtime import cli, files, progress, storage
from bert_jax.tokenization import tokenizer, wordpiece

# Limits the memory for counts to a few hundred MB.
_MAX_WORDS = 2_000_000
_MAX_TRAINING_WORDS = 1_000_000  # the rest is too rare to make a piece


def count_words(
  texts: Iterable[str], lowercase: bool, strip_accents: bool | None = None
) -> collections.Counter:
  """Counts the words that BERT's tokenizer splits texts into.

  Beyond two million different words, the rarest are dropped. The same texts in
  the same order give the same counts.

  Args:
    texts: any strings.
    lowercase: see `basic_tokenizer.split_words`.
    strip_accents: see `basic_tokenizer.split_words`.
  """
  words: collections.Counter[str] = collections.Counter()
  with progress.Progress(None, 'B', 'counting words') as bar:
    for text in texts:
      words.update(tokenizer.words(text, lowercase, strip_accents))
      bar.update(len(text))
      _prune(words)
  return words


def merge(counters: Iterable[collections.Counter]) -> collections.Counter:
  """Adds counts; beyond two million words the result depends on the order."""
  words: collections.Counter[str] = collections.Counter()
  for counter in counters:
    words.update(counter)
    _prune(words)
  return words


def train(words: collections.Counter, size: int) -> list[str]:
  """Trains a vocabulary of `size` pieces on counted words.

  Args:
    words: {word: count}, from `count_words` or `merge`.
    size: number of pieces, special tokens included.

  Returns:
    Special tokens, characters by count, then pieces by the number of tokens
    that they save. The same counts give the same list.

  Raises:
    errors.UserError: if the words yield fewer than `size` pieces.
  """
  room = size - len(tokenizer.SPECIAL)
  if room <= 0:
    raise errors.UserError(
      f'size={size} leaves no room beside {len(tokenizer.SPECIAL)} special '
      'tokens; the paper uses 30522.'
    )
  counted = [
    item for item in vocab_pieces.sort_by_count(words) if _is_spellable(item[0])
  ]
  characters = vocab_pieces.count_characters(counted)
  counted = counted[:_MAX_TRAINING_WORDS]
  # BPE gets at least half of the room, even if characters must be dropped.
  merges = max(room - len(characters), room // 2)
  learnt = vocab_pieces.learn(counted, merges + merges // 3) if counted else []
  if len(characters) + len(learnt) < room:
    most = len(tokenizer.SPECIAL) + len(characters) + len(learnt)
    raise errors.UserError(
      f'the text has {len(words):,} different words, which make {most:,} '
      f'pieces, not the {size:,} of the vocabulary; give more text or a size '
      f'of at most {most:,}.'
    )
  chosen = vocab_pieces.choose(counted, characters, learnt, room)
  return [*tokenizer.SPECIAL, *chosen]


def compute_sha256(vocab: Sequence[str]) -> str:
  """Returns the SHA-256 of the file that `write` makes, in hexadecimal."""
  return hashlib.sha256(_join(vocab).encode()).hexdigest()


def write(vocab: Sequence[str], path: str):
  """Writes a vocabulary file atomically, one piece per line."""
  advice = 'give a place where files can be made.'
  with errors.explaining(f'the vocabulary {path} cannot be written', advice):
    storage.make_folder(os.path.dirname(path))
    files.write_text(path, _join(vocab))


def _join(vocab: Sequence[str]) -> str:
  return ''.join(f'{piece}\n' for piece in vocab)


def _prune(words):
  """Drops the rarest words beyond the limit."""
  least = 1
  while len(words) > _MAX_WORDS:
    for word in [word for word, count in words.items() if count <= least]:
      del words[word]
    least += 1


def _is_spellable(word: str) -> bool:
  """Returns whether a word is valid UTF-8 and not too long for WordPiece."""
  return len(word) <= wordpiece.MAX_CHARS_PER_WORD and not any(
    '\ud800' <= c <= '\udfff' for c in word
  )


# The command. It imports configs late, since workers import this module.

_SAMPLE_EVERY = 100  # paragraphs
_SAMPLE_CHARS = 5_000_000


_FIELDS = {
  'input': 'data.input',
  'size': 'data.vocab_size',
  'strip_accents': 'data.strip_accents',
  'layout': 'data.layout',
  'field': 'data.field',
  'language': 'data.language',
}


def _define_flags():
  from bert_jax.config import command_flags

  command_flags.define(_FIELDS, input=None)
  flags.DEFINE_string('output', None, 'The vocabulary file to write.')
  flags.DEFINE_bool('cased', False, 'Keep case.')
  flags.DEFINE_list('beside', [], 'Vocabulary files to compare with.')
  flags.mark_flags_as_required(['input', 'output'])


def main(argv: list[str]):
  """Runs the command."""
  from bert_jax import config as config_lib
  from bert_jax.config import command_flags

  del argv
  f = flags.FLAGS
  c = config_lib.declare_fields()
  command_flags.update(c, _FIELDS)
  c.data.lowercase = not f.cased
  print(make(recipe_lib.make_recipe(c), f.output, f.beside))


def make(
  recipe: recipe_lib.Recipe, output: str, beside: Sequence[str] = ()
) -> str:
  """Trains a vocabulary, writes it, and measures its fit to held-out text.

  Args:
    recipe: inputs, layout, field, size, and how words are made.
    output: the file to write.
    beside: other vocabulary files, measured on the same held-out text.

  Returns:
    A report to print.
  """
  others = {path: tokenizer.read_vocab(path) for path in beside}
  words, sample, decided = _count(recipe)
  vocab = train(words, recipe.vocab_size)
  write(vocab, output)
  report = f'{output}: {recipe.vocab_size:,} pieces; accents are {decided}'
  if sample:
    words = count_words(sample, recipe.lowercase, decided.strip)
    report += '\n' + describe({output: vocab, **others}, words)
  return report


def _count(recipe: recipe_lib.Recipe):
  """Returns word counts, held-out paragraphs and the decision on accents."""
  read = functools.partial(
    sources.read, recipe.inputs, recipe.layout, recipe.field
  )
  lowercase, language = recipe.lowercase, recipe.language
  decided = accents.decide_without_text(recipe.strip_accents, lowercase, None)
  if decided:
    return *_count_once(read(), lowercase, decided.strip), decided
  # Most text is in a script with case. Any other is detected soon, and reading
  # starts again with the accents kept.
  seen: collections.Counter[str] = collections.Counter()
  words, sample = _count_once(read(), True, True, seen, language)
  decided = accents.judge_text(language, seen)
  if not decided.strip:
    words, sample = _count_once(read(), True, False)
  return words, sample, decided


def _count_once(documents, lowercase, strips: bool, seen=None, language=''):
  """Returns word counts and held-out paragraphs.

  With a Counter `seen`, it stops as soon as the text turns out to need its
  accents.
  """
  sample: list[str] = []
  texts = _hold_out(documents, sample)
  if seen is not None:
    texts = _stop_at_caseless(texts, seen, language)
  return count_words(texts, lowercase, strips), sample


def _stop_at_caseless(
  texts: Iterable[str], seen: collections.Counter, language: str
) -> Iterator[str]:
  for text in texts:
    accents.count_scripts(text, seen)
    enough = seen['characters'] >= accents.SAMPLE
    if enough and not accents.judge_text(language, seen).strip:
      return
    yield text


def _hold_out(documents, sample: list[str]):
  """Yields paragraphs, except every hundredth, which goes into the sample."""
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
  """Returns a table of how well vocabularies fit held-out words."""
  lines = [
    f'held-out text of {words.total():,} words',
    'tokens per word  unknown words  one-token words  characters  vocabulary',
  ]
  for name, vocab in vocabs.items():
    fit = vocab_pieces.measure(vocab, words)
    lines.append(
      f'{fit.tokens_per_word:15.4f}  {fit.unknown:13.4%}  {fit.whole:15.2%}'
      f'  {fit.characters:10.4%}  {name}'
    )
  return '\n'.join(lines)


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
