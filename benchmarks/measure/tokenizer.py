"""Compares the tokenizer with Google's procedure and with `tokenizers`.

  pip install tokenizers
  python benchmarks/measure/tokenizer.py --data=FOLDER

Agreement: ids of every line under each vocabulary. No line may differ from a
literal implementation of google-research/bert's tokenization.py, in
tests/google_tokenizer.py: the exit code is 1 if one does. Lines that differ from
Hugging Face `tokenizers` are counted; docs/tokenizer.md says why they do.

Speed: MB of UTF-8 per second on one core, all tokenizers alternating on the
same lines; the median of three rounds. Cold is a new object, warm a second pass
with the same object.

Takes about ten minutes.
"""

import argparse
import functools
import os
import pathlib
import statistics
import sys
import time

os.environ['TOKENIZERS_PARALLELISM'] = 'false'

import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bert_jax.tokenization import tokenizer
from tests import google_tokenizer

TEXTS = (
  *('multilingual/blns.txt', 'multilingual/emoji-test.txt'),
  *('multilingual/udhr', 'multilingual/ud', 'multilingual/ko'),
  *('wiki/enwiki_extracted', 'wiki/wikitext-2', 'wiki/kowiki_extracted'),
  *('wiki/jawiki_extracted', 'wiki/zhwiki_extracted'),
  'books/100_english_novels',
)
TIMED = (
  ('wiki/enwiki_extracted', 'bert-base-uncased'),
  ('books/100_english_novels', 'bert-base-uncased'),
  ('wiki/enwiki_extracted', 'bert-base-cased'),
  ('wiki/kowiki_extracted', 'bert-base-multilingual-cased'),
  ('wiki/jawiki_extracted', 'bert-base-multilingual-cased'),
  ('wiki/zhwiki_extracted', 'bert-base-chinese'),
)
ROUNDS = 3


def main():
  """Prints both tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    '--data',
    default=os.environ.get('BERT_JAX_TEST_DATA'),
    help='folder with multilingual/, wiki/, books/ and vocab/NAME/vocab.txt '
    '(default: $BERT_JAX_TEST_DATA)',
  )
  parser.add_argument(
    '--megabytes',
    type=float,
    default=6,
    help='limit per file or folder, in MB (default: 6)',
  )
  options = parser.parse_args()
  if not options.data:
    parser.error('give --data=FOLDER, or set BERT_JAX_TEST_DATA.')
  data = pathlib.Path(options.data)
  wrong = show_agreement(data, options.megabytes)
  print()
  show_speed(data, options.megabytes)
  sys.exit(wrong > 0)


def read(path: pathlib.Path, megabytes: float) -> list[str]:
  """Returns the lines of a file, or of a folder's files in order."""
  files = [path] if path.is_file() else sorted(path.rglob('*'))
  lines, left = [], int(megabytes * 1e6)
  for file in files:
    if file.is_file() and left > 0:
      content = file.read_bytes()[:left]
      left -= len(content)
      lines += content.decode('utf-8', 'ignore').split('\n')
  return lines


def every_character() -> list[str]:
  """Returns lines with each character, except surrogates, inside a word."""
  codes = [*range(0xD800), *range(0xE000, 0x110000)]
  return [f'a{chr(c)}b {chr(c)}' for c in codes]


def load(data: pathlib.Path, name: str) -> tokenizer.Tokenizer:
  lowercase = 'uncased' in name
  path = data / 'vocab' / name / 'vocab.txt'
  return tokenizer.Tokenizer.load(str(path), lowercase)


def hugging_face(ours: tokenizer.Tokenizer) -> tokenizers.Tokenizer:
  """Returns the BERT tokenizer of `tokenizers`, with the same vocabulary."""
  theirs = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(
      vocab={piece: i for i, piece in enumerate(ours.vocab)},
      unk_token='[UNK]',
      max_input_chars_per_word=200,
    )
  )
  theirs.normalizer = tokenizers.normalizers.BertNormalizer(
    lowercase=ours.lowercase
  )
  theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  return theirs


def google(ours: tokenizer.Tokenizer):
  """Returns Google's procedure, with a cache of each word's pieces."""
  index = {piece: i for i, piece in enumerate(ours.vocab)}

  @functools.cache
  def ids(word):
    return [index[p] for p in google_tokenizer.pieces(word, index)]

  return lambda words: [i for word in words for i in ids(word)]


def show_agreement(data: pathlib.Path, megabytes: float) -> int:
  """Prints differing lines; returns how many of them are wrong."""
  names = sorted(path.name for path in (data / 'vocab').iterdir())
  contestants = []
  for name in names:
    ours = load(data, name)
    contestants.append((name, ours, hugging_face(ours), google(ours)))
  print(
    f'{"text":26} {"vocabulary":29} {"lines":>8} {"from Google":>11} '
    'from tokenizers'
  )
  wrong = 0
  for text in ('every character', *TEXTS):
    every = text == 'every character'
    lines = every_character() if every else read(data / text, megabytes)
    words = {
      lower: [google_tokenizer.words(line, lower) for line in lines]
      for lower in (True, False)
    }
    for name, ours, theirs, judge in contestants:
      found = ours.ids(lines)
      literal = map(judge, words[ours.lowercase])
      bad = sum(a != b for a, b in zip(found, literal, strict=True))
      other = differences(lines, found, theirs)
      wrong += bad
      print(
        f'{text:26} {name:29} {len(lines):8,} {bad:11,} {other:15,}',
        flush=True,
      )
  return wrong


def differences(lines, found, theirs) -> int:
  """Counts the lines that `tokenizers` treats differently."""
  encoded = theirs.encode_batch(lines, add_special_tokens=False)
  return sum(a != b.ids for a, b in zip(found, encoded, strict=True))


def show_speed(data: pathlib.Path, megabytes: float):
  """Prints MB/s and the speed of ours relative to the others."""
  print(
    'MB/s, one core; x: how many times as fast as encode_batch_fast and as '
    'Google warm is'
  )
  print(
    f'{"text":26} {"vocabulary":29} {"cold":>5} {"warm":>5} {"batch":>5} '
    f'{"fast":>5} {"Google":>6} {"x fast":>6} {"x Google":>8}'
  )
  for text, name in TIMED:
    lines = read(data / text, megabytes)
    size = len('\n'.join(lines).encode()) / 1e6
    theirs = hugging_face(load(data, name))
    rounds = [one_round(data, name, lines, theirs) for _ in range(ROUNDS)]
    cold, warm, batch, fast, slow = (
      size / statistics.median(times) for times in zip(*rounds, strict=True)
    )
    print(
      f'{text:26} {name:29} {cold:5.1f} {warm:5.1f} {batch:5.2f} {fast:5.2f} '
      f'{slow:6.2f} {warm / fast:6.1f} {warm / slow:8.1f}',
      flush=True,
    )


def one_round(data, name, lines, theirs) -> list[float]:
  """Returns the seconds that each tokenizer takes for the lines."""
  ours = load(data, name)
  index = {piece: i for i, piece in enumerate(ours.vocab)}
  contestants = (
    lambda: ours.packed(lines),
    lambda: ours.packed(lines),
    lambda: theirs.encode_batch(lines, add_special_tokens=False),
    lambda: theirs.encode_batch_fast(lines, add_special_tokens=False),
    lambda: [
      google_tokenizer.ids(line, index, ours.lowercase) for line in lines
    ],
  )
  seconds = []
  for work in contestants:
    start = time.perf_counter()
    work()
    seconds.append(time.perf_counter() - start)
  return seconds


if __name__ == '__main__':
  main()
