"""Shows what stripping accents does to a language, and what auto decides.

  python benchmarks/measure/accents.py --input='kowiki/**' --size=16000

Two vocabularies are trained on the same lower-cased text, one with accents
stripped as by Google, one with accents kept. Every tenth paragraph is held out;
on these is counted (but the last on all):

  pieces per word   of what stands between spaces, [UNK] being one piece
  unknown           share of the pieces that are [UNK]
  marks lost        share of the text's nonspacing marks (Mn) that no piece has
  Jamo              of what conjoins to Hangul syllables, in the pieces
  confused          share of words that another word is spelt like afterwards

Takes seconds for a MB of text.
"""

import argparse
import collections
import unicodedata
from collections.abc import Iterable

from bert_jax.corpus import sources
from bert_jax.data import accents, vocab
from bert_jax.tokenization import tokenizer

_HELD_OUT = 10  # one paragraph of so many


def split(paragraphs: list[str]) -> tuple[list[str], list[str]]:
  """Returns the paragraphs to learn from and those held out."""
  held_out = paragraphs[::_HELD_OUT]
  return [p for n, p in enumerate(paragraphs) if n % _HELD_OUT], held_out


def count_marks(texts: Iterable[str]) -> int:
  return sum(unicodedata.category(c) == 'Mn' for t in texts for c in t)


def count_jamo(texts: Iterable[str]) -> int:
  return sum('\u1100' <= c <= '\u11ff' for text in texts for c in text)


def count_confused(texts: list[str], strip: bool) -> float:
  """Returns the share of words that share their spelling with another."""
  words = vocab.count_words(texts, True, False)
  spelt = collections.defaultdict(set)
  for word in words:
    spelt[' '.join(tokenizer.words(word, True, strip))].add(word)
  confused = sum(
    words[word] for group in spelt.values() if len(group) > 1 for word in group
  )
  return confused / words.total()


def measure(learnt: list[str], held_out: list[str], size: int, strip: bool):
  """Returns a row of the table."""
  pieces = vocab.train(vocab.count_words(learnt, True, strip), size)
  wordpiece = tokenizer.Tokenizer(tuple(pieces), True, strip)
  found = [i for ids in wordpiece.ids(held_out) for i in ids]
  known = wordpiece.tokens(i for i in found if i != wordpiece.unk_id)
  words = sum(len(text.split()) for text in held_out)
  marks = count_marks(held_out)
  lost = max(0.0, 1 - count_marks(known) / marks) if marks else 0.0
  return (
    'stripped' if strip else 'kept',
    f'{len(found) / words:.3f}',
    f'{1 - len(known) / len(found):.2%}',
    f'{lost:.1%}',
    f'{count_jamo(known):,}',
    f'{count_confused([*learnt, *held_out], strip):.2%}',
  )


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--input', action='append', required=True)
  parser.add_argument('--size', type=int, required=True, help='pieces')
  args = parser.parse_args()
  paragraphs = [
    paragraph
    for document in sources.read(args.input, 'paragraphs')
    for paragraph in document.paragraphs
  ]
  seen = collections.Counter()
  for paragraph in paragraphs:
    accents.count_scripts(paragraph, seen)
  learnt, held_out = split(paragraphs)
  print(
    f'{seen["characters"]:,} characters, {len(held_out):,} paragraphs held '
    f'out; accents are {accents.judge_text("", seen)}'
  )
  head = 'accents', 'pieces per word', 'unknown', 'marks lost', 'Jamo'
  print('| ' + ' | '.join([*head, 'confused']) + ' |')
  print('|---' * (len(head) + 1) + '|')
  for strip in (True, False):
    row = measure(learnt, held_out, args.size, strip)
    print('| ' + ' | '.join(row) + ' |')


if __name__ == '__main__':
  main()
