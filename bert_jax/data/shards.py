"""The logical shard: the unit of memory, parallel work and continuation.

A shard's records are a pure function of its documents, the vocabulary and the
recipe. Who runs `make`, and how many at once, changes nothing.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax import errors, tokenizer
from bert_jax.data import pairs, records, sentences
from bert_jax.data import recipe as recipe_lib

MIN_DOCUMENTS = 2  # a random second text needs another document


@dataclasses.dataclass(frozen=True)
class Shard:
  """A piece of work: which documents, and where the results go.

  Attributes:
    split: 'train' or 'heldout'.
    number: of this shard within the split.
    of: shards of the split.
    texts: files of documents, a JSON list of paragraphs per line.
    vocab: path of the vocabulary.
    output: directory for the records.
    work: directory for what is needed until all shards are done.
  """

  split: str
  number: int
  of: int
  texts: tuple[str, ...]
  vocab: str
  output: str
  work: str

  @property
  def name(self) -> str:
    return f'{self.split}-{self.number:05d}-of-{self.of:05d}'


def read_texts(paths: Sequence[str]) -> Iterator[list[str]]:
  """Yields the paragraphs of each document."""
  for path in paths:
    with open(path, encoding='utf-8') as file:
      yield from map(json.loads, file)


def make(shard: Shard, recipe: recipe_lib.Recipe) -> dict:
  """Writes the records of a shard for every length, unless they are there.

  Returns:
    Counts of the shard, its files with their sha256, and the path of its
    token counts (`.npy`).
  """
  done = os.path.join(shard.work, f'{shard.name}.json')
  if os.path.exists(done):
    return read_json(done)
  documents = _tokenize(shard, recipe)
  counts = np.zeros(recipe.vocab_size, np.int64)
  for document in documents:
    counts += np.bincount(np.concatenate(document), minlength=len(counts))
  counts_path = os.path.join(shard.work, f'{shard.name}.npy')
  np.save(counts_path, counts)
  summary = {
    'split': shard.split,
    'number': shard.number,
    'documents': len(documents),
    'sentences': sum(map(len, documents)),
    'tokens': int(counts.sum()),
    'token_counts': counts_path,
    'files': {
      str(length): _write(shard, recipe, documents, length)
      for length in recipe.lengths
    },
  }
  write_json(done, summary)
  return summary


def _tokenize(shard, recipe) -> list[pairs.Sentences]:
  wordpiece = tokenizer.Tokenizer.load(shard.vocab, recipe.lowercase)
  documents = []
  for paragraphs in read_texts(shard.texts):
    text = sentences.split(paragraphs, recipe.language, recipe.layout)
    document = [ids for ids in wordpiece.ids(text) if ids]
    if document:
      documents.append(document)
  if len(documents) < MIN_DOCUMENTS:
    raise errors.UserError(
      f'logical shard {shard.name} holds {len(documents)} document(s) with '
      f'text; it needs at least {MIN_DOCUMENTS}. Set data.shards lower.'
    )
  return documents


def _write(shard, recipe, documents, length) -> dict:
  """Writes the pairs of all passes for one length; returns their summary."""
  ids = records.id_type(recipe.vocab_size)
  passes = recipe.passes if shard.split == 'train' else 1
  total = {'tokens': 0, 'random': 0}

  def encoded():
    for n in range(passes):
      for index in range(len(documents)):
        for pair in pairs.pairs(
          documents,
          index,
          key=f'{recipe.seed}/{shard.name}/{length}/{n}/{index}',
          max_seq_length=length,
          short_seq_prob=recipe.short_seq_prob,
        ):
          total['tokens'] += len(pair.first) + len(pair.second) + 3
          total['random'] += pair.is_random
          yield records.encode(pair, ids)

  name = f'{shard.name}-{length}.arrayrecord'
  path = os.path.join(shard.output, name)
  count = records.write(path, encoded())
  return {
    'name': name,
    'records': count,
    **total,
    'bytes': os.path.getsize(path),
    'sha256': sha256(path),
  }


def sha256(path: str) -> str:
  """Returns the SHA-256 of a file in hexadecimal."""
  try:
    with open(path, 'rb') as file:
      return hashlib.file_digest(file, 'sha256').hexdigest()
  except OSError as error:
    raise errors.UserError(
      f'cannot read {path}: {error.strerror}; prepare the data again.'
    ) from error


def read_json(path: str):
  """Reads a JSON file."""
  with open(path, encoding='utf-8') as file:
    return json.load(file)


def write_json(path: str, value):
  """Writes a JSON file that is whole or absent."""
  with open(path + '.tmp', 'w', encoding='utf-8') as file:
    json.dump(value, file, indent=2)
    file.write('\n')
  os.replace(path + '.tmp', path)
