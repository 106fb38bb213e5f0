"""Logical shards: the units of memory, of parallel work and of resuming.

A shard's files are a pure function of its documents, the vocabulary and the
recipe, whichever process makes them, and in whatever order.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.corpus import document
from bert_jax.data import (
  document_spill,
  hashing,
  manifest_file,
  pairs,
  sentence_rows,
  store,
  vocab_pieces,
)
from bert_jax.data.recipe import Recipe
from bert_jax.runtime import files, storage
from bert_jax.tokenization import fast_tokenizer, tokenizer

MIN_DOCUMENTS = 2  # a random second text needs another document

_ONE = np.int32(1)  # with an int, np.add.at takes fifty times as long
_WEIGHT = 1 << 20  # of a document, in draws of random second texts
_BATCH_CHARS = 2_000_000
_AT_ONCE = 300_000  # pairs or sentences: 100 MB with their temporary arrays


@dataclasses.dataclass(frozen=True)
class Shard:
  """A unit of work: which documents to read and where to write the results."""

  split: str  # 'train' or 'heldout'
  number: int
  of: int  # number of shards in the split
  segments: tuple[document_spill.Segment, ...]  # where its documents are
  limits: tuple[float, ...]  # of each input, the draw below which is held out
  output: str  # directory for its tokens and rows, with `work` and vocabulary

  @property
  def name(self) -> str:
    return f'{self.split}-{self.number:05d}-of-{self.of:05d}'

  def in_work(self, ending: str) -> str:
    """Returns the path of an intermediate file."""
    return os.path.join(self.output, 'work', f'{self.name}.{ending}')

  @property
  def size(self) -> int:
    """Bytes of its documents, for progress; of held-out ones few are used."""
    is_train = self.split == 'train'
    return is_train * sum(segment.size for segment in self.segments)


class _Tokens(NamedTuple):
  """The tokenized documents of a shard."""

  ids: np.ndarray  # of all documents, concatenated
  texts: pairs.Texts
  begins_word: np.ndarray  # bool, of each of `ids`
  names: np.ndarray  # uint64 [documents], the beginning of each digest
  passes: np.ndarray  # int [documents], how often each is used
  sources: np.ndarray  # int [documents], the input of each, ascending
  duplicates: int  # documents that were dropped


def count_words(shard: Shard, recipe: Recipe) -> str:
  """Counts words, not of general text, in a JSON file, once; returns its path."""
  general = len(recipe.inputs) - 1 if recipe.general_share else None
  path = shard.in_work('words')
  if not storage.exists(path):
    words = vocab_pieces.count_words(
      tokenizer.words(paragraph, recipe.lowercase, recipe.strip_accents)
      for text in _unique(shard)[0]
      if text.source != general
      for paragraph in text.document.paragraphs
    )
    storage.write(path, json.dumps(words).encode())
  return path


def make(shard: Shard, recipe: Recipe) -> dict:
  """Writes a shard's tokens, and its rows of every length, unless they exist.

  Returns its summary; token counts are an int64 [V] in `work`.
  """
  done = shard.in_work('json')
  # Nothing is synced here, so after a power cut files may be empty.
  with contextlib.suppress(FileNotFoundError, ValueError):
    summary = files.load_json(done)
    sizes = {
      os.path.join(shard.output, x['name']): x['bytes']
      for x in store.list_files(summary)
    }
    sizes[shard.in_work('counts')] = 8 * recipe.vocab_size
    if all(storage.get_size(path) == size for path, size in sizes.items()):
      return summary
  tokens = _tokenize(shard, recipe)
  documents = tokens.texts.documents
  counts = np.zeros(recipe.vocab_size, np.int64)
  for k in range(0, len(tokens.ids), 1 << 20):  # bincount makes them int64
    part = tokens.ids[k : k + (1 << 20)]
    counts += np.bincount(part, minlength=len(counts))
  storage.write(shard.in_work('counts'), counts.tobytes(), synced=False)
  summary = {
    'split': shard.split,
    'number': shard.number,
    'documents': len(tokens.names),
    'duplicates': tokens.duplicates,
    'sentences': len(tokens.texts.sentences) - 1,
    'tokens': len(tokens.ids),
    'inputs': [  # documents and tokens of each
      np.bincount(tokens.sources, weights).astype(int).tolist()
      for weights in (None, np.diff(tokens.texts.sentences[documents]))
    ],
    'tokens_file': store.write(
      shard.output, f'{shard.name}.tokens', [tokens.ids]
    ),
    'files': {
      str(length): _write(shard, recipe, tokens, length)
      for length in recipe.lengths
    },
  }
  storage.write(done, json.dumps(summary).encode(), synced=False)
  return summary


def _unique(shard: Shard) -> tuple[list[document_spill.Text], int]:
  """Returns documents without duplicates, by input and digest.

  A document that is held out of one input is held out of all inputs. The number
  of duplicates, also of held-out documents, is 0 but in a training shard.
  """
  texts: dict[bytes, document_spill.Text] = {}
  held, duplicates = set(), 0
  is_train = shard.split == 'train'
  below = () if is_train else shard.limits
  for text in document_spill.read_texts(shard.segments, below):
    if document_spill.draw(text.digest) < shard.limits[text.source]:
      held.add(text.digest)
    old = texts.get(text.digest)
    duplicates += old is not None and text.part == 0 and is_train
    # Of copies in inputs of different weights, keep the copy with most passes.
    if old is None or old < text:
      texts[text.digest] = text
  kept = [t for t in texts.values() if (t.digest in held) != is_train]
  return sorted(kept, key=lambda t: (t.source, t.digest)), duplicates


@functools.lru_cache(1)
def _load(modified: float, *how):
  """Returns a process's tokenizer."""
  del modified  # only part of the cache key, in case the file changes
  return fast_tokenizer.load(*how)


def _tokenize(shard: Shard, recipe: Recipe) -> _Tokens:
  how = recipe.lowercase, recipe.strip_accents, recipe.added
  path = manifest_file.vocab_path(shard.output)
  words = _load(storage.get_time(path), path, *how)
  id_type = words.id_type
  is_train = shard.split == 'train'
  unique, duplicates = _unique(shard)
  ids: list[bytes] = []
  sizes, documents, texts = [0], [0], []
  for text, sentences in _sentence_ids(unique, words, recipe):
    if not is_train:
      sentences = document_spill.leave_gap(sentences, text.part, text.parts)
    if sentences:
      sizes += map(len, sentences)
      ids.append(b''.join(sentences))
      documents.append(len(sizes) - 1)
      texts.append(text)
  if len(texts) < MIN_DOCUMENTS:
    raise errors.UserError(
      f'logical shard {shard.name} holds {len(texts)} different document(s) with '
      f'text; it needs at least {MIN_DOCUMENTS}. Give more text, since copies count '
      'once, or set data.shards lower.'
    )
  of = np.array([text.source for text in texts])
  packed = np.frombuffer(b''.join(ids), id_type)
  if len(packed) > store.MOST_TOKENS:  # else offsets would wrap
    raise errors.UserError(
      f'logical shard {shard.name} is too large. Set data.shards higher.'
    )
  return _Tokens(
    packed,
    pairs.Texts(
      np.cumsum(sizes) // id_type.itemsize,
      np.array(documents),
      _find_pools(of, recipe.negatives),
      # Of a long document, all parts together weigh as much as a short one.
      np.cumsum([0, *(_WEIGHT // text.parts for text in texts)]),
    ),
    ~words.continues(packed),
    np.array(
      [int.from_bytes(t.digest[:8], 'little') for t in texts], np.uint64
    ),
    np.array([text.passes if is_train else 1 for text in texts]),
    of,
    duplicates,
  )


def _find_pools(of: np.ndarray, negatives: str) -> np.ndarray:
  """Returns `pairs.Texts.pools` for documents of these inputs, ascending."""
  pools = np.stack([np.searchsorted(of, of, s) for s in ('left', 'right')], 1)
  too_few = pools[:, 1] - pools[:, 0] < MIN_DOCUMENTS
  pools[too_few | (negatives == 'uniform')] = 0, len(of)
  return pools


def _sentence_ids(texts, words: tokenizer.Tokenizer, recipe: Recipe):
  """Yields each text with the ids of its sentences, none of them empty."""
  batch, size = [], 0  # the tokenizer is fastest with a megabyte or more
  for k, text in enumerate(texts, 1):
    language = recipe.get_language(text.source)
    split = document.split_joined if words.space else document.split
    batch.append((text, split(text.document, language)))
    size += sum(map(len, text.document.paragraphs))
    if size > _BATCH_CHARS or k == len(texts):
      ids = iter(words.packed([x for _, split in batch for x in split]))
      for done, split in batch:
        yield done, [x for x in itertools.islice(ids, len(split)) if x]
      batch, size = [], 0


def _write(shard, recipe, tokens: _Tokens, length: int) -> dict:
  """Writes the rows of all passes for one length; returns their summary."""
  kind, _, number = store.choose_format(recipe.rows)
  special = (pairs if kind == 'pairs' else sentence_rows).SPECIAL_TOKENS
  total = {kind: 0, 'tokens': 0, 'random': 0}
  texts = pairs.cut_sentences(
    tokens.texts, tokens.begins_word, length - special
  )
  rows_of = np.zeros(len(tokens.ids) + 1, np.int32)  # of a token, differences
  by_input = []  # its number, rows
  groups = tokens.sources  # held-out rows are sorted, to be evaluated by input
  if shard.split == 'train':
    groups = np.full_like(groups, -1)

  def encoded():
    sizes = [np.zeros(1, int)]  # pairs of each row
    for source in np.unique(groups).tolist():
      by_input.append([source, 0])
      index = np.flatnonzero(groups == source)
      rows = _make_rows(recipe, tokens, texts, index, length)
      for spans, is_random, counts in rows:
        total[kind] += len(spans)
        total['random'] += int(is_random.sum())
        total['tokens'] += int(np.diff(spans).sum()) + special * len(spans)
        np.add.at(rows_of, spans[:, :, 0], _ONE)
        np.add.at(rows_of, spans[:, :, 1], -_ONE)
        by_input[-1][1] += len(counts)
        sizes.append(counts)
        yield store.encode(spans, is_random)
    if recipe.pack > 1 or recipe.rows == 'full_sentences':
      yield np.concatenate(sizes).cumsum().astype(number)

  entry = store.write(shard.output, f'{shard.name}-{length}.{kind}', encoded())
  return {
    **entry,
    'records': sum(count for _, count in by_input),
    **total,
    'unused_tokens': int((rows_of.cumsum(out=rows_of)[:-1] == 0).sum()),
    **({'inputs': by_input} if shard.split == 'heldout' else {}),
  }


def _make_rows(
  recipe, tokens: _Tokens, texts: pairs.Texts, index: np.ndarray, length: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
  """Yields spans and is_random, as in `pairs.Pairs`, by row, and numbers in rows."""
  passes = _list_passes(recipe, tokens, texts, index, length)
  if recipe.rows != 'pairs':
    is_mixed = recipe.rows == 'full_sentences'
    yield from sentence_rows.make_rows(texts, passes, length, is_mixed)
    return
  for documents, _, keys in passes:
    made = pairs.make_pairs(
      texts,
      documents,
      keys,
      max_seq_length=length,
      short_seq_prob=recipe.short_seq_prob,
    )
    order, counts = _rows(made.tokens, length, recipe.pack)
    yield made.spans[order], made.is_random[order], counts


def _list_passes(recipe, tokens: _Tokens, texts, index: np.ndarray, length):
  """Yields documents by pass, several at a time, and pass and key of each."""
  size = len(texts.sentences)  # of a pass
  if recipe.rows == 'pairs':
    size = len(tokens.names) + 2 * len(tokens.ids) // length
  passes = int(tokens.passes[index].max())
  at_once = max(1, _AT_ONCE // size)
  for first in range(0, passes, at_once):
    numbers = np.arange(first, min(first + at_once, passes))
    n, k = np.nonzero(tokens.passes[index] > numbers[:, None])
    documents, number = index[k], numbers[n]
    names = tokens.names[documents]
    yield documents, number, hashing.mix(recipe.seed, length, number, names)


def _rows(sizes: np.ndarray, length: int, most: int):
  """Returns the pairs of all rows in order, and how many each row has."""
  if most == 1:
    return np.arange(len(sizes)), np.ones(len(sizes), int)
  packed = pairs.pack(sizes, length, most)
  return np.concatenate(packed), np.array([len(row) for row in packed])
