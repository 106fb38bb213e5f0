"""BERT's original data preparation, followed literally: the baseline.

  python benchmarks/measure/google_procedure.py --input=a.txt,b.txt \\
    --vocab=vocab.txt --output=features.bin --passes=10

Does what tokenization.py and create_pretraining_data.py of
google-research/bert do, written from their description in plain Python
without optimization: the corpus in memory as lists of strings, each character
examined individually (tests/google_tokenizer.py), texts truncated token by
token, masks drawn during preparation. Input files hold one sentence per line
and blank lines between documents. The features are written as NumPy rows of
`features_type`, not as TFRecords, so that TensorFlow is not needed; this
favours the procedure, because building and serialising protocol buffers takes
longer.
"""

import argparse
import pathlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.runtime import progress

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
from tests import google_tokenizer

MASK_RATE, SHORT_SEQ_PROB = 0.15, 0.1
Document = list[list[str]]  # the tokens of each sentence


class Example(NamedTuple):
  """A masked pair; segment_ids are as long as tokens."""

  tokens: list[str]
  segment_ids: list[int]
  positions: list[int]
  labels: list[str]
  is_random: bool


# Documents to examples.


def read_vocab(path: str) -> dict[str, int]:
  with open(path, encoding='utf-8') as file:
    return {line.rstrip('\n'): i for i, line in enumerate(file)}


def tokenize(text: str, vocab: dict[str, int]) -> list[str]:
  """Splits text into lower-cased words and punctuation, then into pieces."""
  tokens = []
  for word in google_tokenizer.words(text, lowercase=True):
    tokens.extend(google_tokenizer.pieces(word, vocab))
  return tokens


def read_documents(
  paths: Sequence[str], split: Callable[[str], list[str]]
) -> list[Document]:
  """Reads all files into memory; `split` makes the tokens of a line."""
  documents: list[Document] = [[]]
  with progress.Progress(None, 'B', 'tokenizing') as bar:
    for path in paths:
      with open(path, encoding='utf-8') as file:
        for line in file:
          bar.update(len(line))
          if not line.strip():
            documents.append([])
          elif tokens := split(line.strip()):
            documents[-1].append(tokens)
      documents.append([])
  return [document for document in documents if document]


def make_examples(
  documents: list[Document],
  words: list[str],
  *,
  seed: int,
  max_seq_length: int,
  max_predictions: int,
  passes: int,
) -> list[Example]:
  """Returns the examples of all passes, shuffled."""
  rng = random.Random(seed)
  documents = list(documents)
  rng.shuffle(documents)
  examples = []
  with progress.Progress(
    passes * len(documents), 'documents', 'making examples'
  ) as bar:
    for _ in range(passes):
      for index in range(len(documents)):
        for pair in pairs(documents, index, max_seq_length, rng):
          examples.append(_example(*pair, words, max_predictions, rng))
        bar.update(1)
  rng.shuffle(examples)
  return examples


def pairs(
  documents: Sequence[list[list]],
  index: int,
  max_seq_length: int,
  rng: random.Random,
) -> Iterator[tuple[list, list, bool]]:
  """Yields (first, second, is_random) of one document in one pass.

  Tokens may be strings or ids. The whole document has one target length;
  sentences are collected until it is reached, and split at a random place.
  """
  document = documents[index]
  room = max_seq_length - 3  # [CLS], [SEP], [SEP]
  target = room
  if rng.random() < SHORT_SEQ_PROB:
    target = rng.randint(2, room)
  chunk: list[list] = []
  length = 0
  i = 0
  while i < len(document):
    chunk.append(document[i])
    length += len(document[i])
    if length >= target or i == len(document) - 1:
      split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
      first, second = [], []
      for sentence in chunk[:split]:
        first.extend(sentence)
      is_random = len(chunk) == 1 or rng.random() < 0.5
      if is_random:
        second = _random_second(documents, index, target - len(first), rng)
        i -= len(chunk) - split  # the unused sentences are put back
      else:
        for sentence in chunk[split:]:
          second.extend(sentence)
      _truncate(first, second, room, rng)
      yield first, second, is_random
      chunk, length = [], 0
    i += 1


def _random_second(documents, index, target, rng) -> list:
  """Returns text of another document, from a random sentence on."""
  for _ in range(10):
    other = rng.randint(0, len(documents) - 1)
    if other != index:
      break
  document = documents[other]
  second = []
  for i in range(rng.randint(0, len(document) - 1), len(document)):
    second.extend(document[i])
    if len(second) >= target:
      break
  return second


def _truncate(first: list, second: list, room: int, rng: random.Random):
  while len(first) + len(second) > room:
    longer = first if len(first) > len(second) else second
    if rng.random() < 0.5:
      del longer[0]
    else:
      longer.pop()


def _example(first, second, is_random, words, max_predictions, rng) -> Example:
  """Joins a pair and masks it: 80 % [MASK], 10 % random, 10 % unchanged."""
  tokens = ['[CLS]', *first, '[SEP]', *second, '[SEP]']
  segment_ids = [0] * (len(first) + 2) + [1] * (len(second) + 1)
  candidates = [i for i, t in enumerate(tokens) if t not in ('[CLS]', '[SEP]')]
  rng.shuffle(candidates)
  count = min(max_predictions, max(1, int(round(len(tokens) * MASK_RATE))))
  positions = sorted(candidates[:count])
  labels = [tokens[i] for i in positions]
  for i in positions:
    if rng.random() < 0.8:
      tokens[i] = '[MASK]'
    elif rng.random() >= 0.5:
      tokens[i] = words[rng.randint(0, len(words) - 1)]
  return Example(tokens, segment_ids, positions, labels, is_random)


# Examples to features.


def features_type(max_seq_length: int, max_predictions: int) -> np.dtype:
  """Returns the type of one row: BERT's features, S and P long."""
  return np.dtype(
    [
      ('input_ids', '<u2', max_seq_length),
      ('input_mask', 'u1', max_seq_length),
      ('segment_ids', 'u1', max_seq_length),
      ('masked_lm_positions', '<u2', max_predictions),
      ('masked_lm_ids', '<u2', max_predictions),
      ('masked_lm_weights', '<f4', max_predictions),
      ('next_sentence_labels', 'u1'),  # 1 is a random second text
    ]
  )


def to_features(
  examples: Sequence[Example], vocab: dict[str, int], dtype: np.dtype
) -> np.ndarray:
  """Returns padded rows of `dtype`."""
  rows = np.zeros(len(examples), dtype)
  for row, example in zip(rows, examples, strict=True):
    n, p = len(example.tokens), len(example.positions)
    row['input_ids'][:n] = [vocab[token] for token in example.tokens]
    row['input_mask'][:n] = 1
    row['segment_ids'][:n] = example.segment_ids
    row['masked_lm_positions'][:p] = example.positions
    row['masked_lm_ids'][:p] = [vocab[label] for label in example.labels]
    row['masked_lm_weights'][:p] = 1
    row['next_sentence_labels'] = example.is_random
  return rows


def statistics(
  rows: np.ndarray | dict[str, np.ndarray],
  documents: int,
  mask_id: int,
  mark_id: int,
) -> dict[str, float]:
  """Returns shares and means of the features of so many documents, by name.

  `mark_id` tells one kind of text from the other.
  """
  room = rows['input_ids'].shape[1]
  length = rows['input_mask'].sum(1, dtype=int)
  second = rows['segment_ids'].sum(1, dtype=int) - 1
  split = (length - 3 - second) / (length - 3)
  is_random = rows['next_sentence_labels'] > 0
  is_marked = rows['input_ids'] == mark_id
  is_second = rows['segment_ids'] > 0
  other = (is_marked & is_second).any(1) != (is_marked & ~is_second).any(1)
  used = rows['masked_lm_weights'] > 0
  at = rows['masked_lm_positions'].astype(int)
  shown = np.take_along_axis(rows['input_ids'], at, 1)[used]
  hidden = shown == mask_id
  same = shown == rows['masked_lm_ids'][used]
  found = {
    'pairs per document': len(length) / documents,
    'random second texts': is_random.mean(),
    'random ones of other text': other[is_random].mean(),
    'tokens per pair': length.mean(),
    'tokens per random pair': length[is_random].mean(),
    'padding share': 1 - length.mean() / room,
    'predictions per row': used.sum(1).mean(),
    'masked share of tokens': used.sum() / length.sum(),
    'predictions: [MASK]': hidden.mean(),
    'predictions: random word': 1 - (hidden | same).mean(),
    'predictions: unchanged': same.mean(),
    'first text of both, mean': split.mean(),
  }
  for part in (0.25, 0.5, 0.75):
    found[f'first text up to {part:.0%}'] = (split <= part).mean()
  for low in range(1, room, 16):
    inside = (length >= low) & (length < low + 16)
    found[f'{low} to {low + 15} tokens'] = inside.mean()
  return found


def main():
  """Runs the command."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--input', required=True, help='Files, comma-separated.')
  parser.add_argument('--vocab', required=True, help='An uncased vocabulary.')
  parser.add_argument('--output', required=True, help='The file to write.')
  parser.add_argument('--max_seq_length', type=int, default=128)
  parser.add_argument('--max_predictions', type=int, default=20)
  parser.add_argument('--passes', type=int, default=10)
  parser.add_argument('--seed', type=int, default=12345)
  f = parser.parse_args()
  vocab = read_vocab(f.vocab)
  documents = read_documents(f.input.split(','), lambda x: tokenize(x, vocab))
  examples = make_examples(
    documents,
    list(vocab),
    seed=f.seed,
    max_seq_length=f.max_seq_length,
    max_predictions=f.max_predictions,
    passes=f.passes,
  )
  dtype = features_type(f.max_seq_length, f.max_predictions)
  to_features(examples, vocab, dtype).tofile(f.output)
  print(f'{f.output}: {len(examples):,} examples')


if __name__ == '__main__':
  main()
