"""First stage of `prepare`: distributes documents over the logical shards.

Each job reads a part of the input and writes the documents to files sorted by
shard, so that the second stage gets a shard's documents with a few long reads.

A share of the text of each input is held out. Long documents are cut into parts,
and each part is drawn by the hash of its text. An input's parts are held out in
the order of their draws until there is enough text, so a few documents, or a
single one, suffice for both splits.
"""

import collections
import dataclasses
import hashlib
import json
import os
import struct
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.corpus import sources, text_files
from bert_jax.corpus.document import Document, split
from bert_jax.data.recipe import Recipe
from bert_jax.runtime import files, hub, storage

# digest, passes, source, part, parts, are_sentences, bytes
_HEADER = struct.Struct('<16sHHHH?I')
_BUFFER = 32 << 20  # bytes that a job holds before it writes

_PART = 32_000  # characters, about; an input has 64 parts if it is not tiny
_PER_TOKEN = 32  # of a row of sentences, characters of a part: about 8 rows
_SMALLEST_PART, _PARTS = 2000, 64
_GAP = 8  # sentences between held-out and training text of a document
_ENOUGH = 256 << 10  # bytes to hold out of an input, but at most a tenth of it
_SMALL = 64 << 20  # bytes of an input whose every part may be held out
BINS = 1000  # of draws up to the largest that may be held out


@dataclasses.dataclass(frozen=True)
class Job:
  """Work for one process: reads ranges of the input, in order."""

  number: int
  ranges: tuple[sources.Range, ...]
  sizes: tuple[int, ...]  # bytes of each input, 1 if unknown
  work: str  # directory for the results

  @property
  def name(self) -> str:
    return f'read-{self.number:05d}'

  @property
  def size(self) -> int:
    return sum(part.size for part in self.ranges)


class Segment(NamedTuple):
  """Where one file holds the documents of one bucket.

  Of n shards, k has bucket k and, of what may be held out, bucket n + k.
  """

  bucket: int
  path: str
  offset: int
  size: int
  documents: int


class Text(NamedTuple):
  """A document, or a part of a long one, in a bucket."""

  digest: bytes  # hash of what the tokenizer sees of the text; identifies it
  passes: int  # how many times it is cut into pairs
  source: int  # index of its input
  part: int  # index within the document that it is a part of
  parts: int  # of that document
  document: Document


def read(job: Job, recipe: Recipe) -> dict:
  """Reads a job's ranges, unless that was done before.

  Returns:
    `segments`, lists of Segment's fields; `counts` and `invalid` of
    `sources.read_documents`; `documents`, {input number: how many}; `tallies`,
    {input number: [bytes, parts]}, of each bin of draws and of what is above all;
    `files`, [input number, path, bytes, sha256] of those that begin in the job.
  """
  done = os.path.join(job.work, f'{job.name}.json')
  if storage.exists(done):
    return files.load_json(done)
  counts: collections.Counter[str] = collections.Counter()
  invalid: collections.Counter[str] = collections.Counter()
  documents: collections.Counter[int] = collections.Counter()
  tallies: dict[int, list] = collections.defaultdict(
    lambda: [[0] * (BINS + 1), [0] * (BINS + 1)]
  )
  buckets: dict[int, list[bytes]] = collections.defaultdict(list)
  segments: list[Segment] = []
  buffered = written = 0
  longest = _PER_TOKEN * max(recipe.lengths) * (recipe.rows != 'pairs')
  for source, document in _read_documents(job, recipe, counts, invalid):
    language = recipe.get_language(source)
    most = choose_part_size(job.sizes[source], max(_PART, longest))
    parts = cut(document, most, language)
    bound = find_bound(job.sizes[source], recipe.heldout)
    documents[source] += 1
    for k, part in enumerate(parts):
      digest, record, size = _record(part, source, k, len(parts), recipe)
      bucket = int.from_bytes(digest[8:], 'little') % recipe.shards
      place = min(int(draw(digest) / bound * BINS), BINS)
      if place < BINS:
        bucket += recipe.shards
      tallies[source][0][place] += size
      tallies[source][1][place] += 1
      buckets[bucket].append(record)
      buffered += len(record)
    if buffered >= _BUFFER:
      segments += _write(job, written, buckets)
      buckets.clear()
      buffered, written = 0, written + 1
  segments += _write(job, written, buckets)
  result = {
    'segments': segments,
    'counts': dict(sorted(counts.items())),
    'invalid': +invalid,
    'documents': documents,
    'tallies': tallies,
    'files': [
      # A commit's bytes are known by it; they would be fetched once more.
      [
        x.source,
        x.path,
        x.whole,
        None if hub.is_pinned(x.path) else text_files.compute_sha256(x.path),
      ]
      for x in job.ranges
      if x.start == 0 and sources.is_file(x.path)
    ],
  }
  storage.write(done, json.dumps(result).encode())
  return files.load_json(done)


def read_texts(
  segments: Iterable[Segment], below: Sequence[float] = ()
) -> Iterator[Text]:
  """Yields the documents of segments, with `below` only lower draws."""
  ranges = [(s.path, s.offset, s.size) for s in segments]
  for raw in storage.read_ranges(ranges):
    block = memoryview(raw)
    at = 0
    while at < len(block):
      digest, passes, source, part, parts, are_sentences, size = (
        _HEADER.unpack_from(block, at)
      )
      at += _HEADER.size + size
      if below and draw(digest) >= below[source]:
        continue
      text = str(block[at - size : at], 'utf-8')
      document = Document(text.split('\n'), are_sentences)
      yield Text(digest, passes, source, part, parts, document)


def _read_documents(
  job: Job, recipe, counts, invalid
) -> Iterator[tuple[int, Document]]:
  """Yields (input number, document) of what data is made of."""
  n, whole = 0, recipe.vocab.endswith('.json')
  for part in job.ranges:
    for document in sources.read_documents(
      part, recipe.layout, recipe.field, counts, invalid, whole
    ):
      if sum(map(len, document.paragraphs)) < recipe.min_chars:
        counts['short_documents'] += 1
        continue
      yield part.source, document
      n += 1
      if n == recipe.max_documents:
        return


def _record(document: Document, source: int, part: int, parts: int, recipe):
  """Returns the digest of a part, its bytes on disk and its text's size."""
  text = '\n'.join(document.paragraphs)
  raw = text.encode()
  # What the tokenizer sees, so that copies that it cannot tell apart are equal.
  seen = ' '.join(document.paragraphs)
  if not seen.isascii():
    seen = unicodedata.normalize('NFC', seen)
  if recipe.lowercase:
    seen = seen.lower()
  digest = hashlib.blake2b(seen.encode(), digest_size=16).digest()
  weight = recipe.weights[source] if recipe.weights else 1.0
  passes = draw_passes(digest, recipe.passes * weight)
  rest = document.are_sentences, len(raw)
  header = _HEADER.pack(digest, passes, source, part, parts, *rest)
  return digest, header + raw, len(raw)


def draw_passes(digest: bytes, mean: float) -> int:
  """Returns an integer number of passes, `mean` on average over documents."""
  whole = int(mean)
  if mean > whole:
    again = hashlib.blake2b(digest, digest_size=8, person=b'passes').digest()
    draw = int.from_bytes(again, 'little') / 2**64
    whole += draw < mean - whole
  return whole


def _write(job, part, buckets) -> list[Segment]:
  """Writes the buffered documents, sorted by bucket."""
  path = os.path.join(job.work, f'{job.name}-{part}.texts')
  segments, offset = [], 0
  with storage.replacing(path) as new, open(new, 'wb') as file:
    for bucket in sorted(buckets):
      records = buckets[bucket]
      file.writelines(records)
      size = sum(map(len, records))
      segments.append(Segment(bucket, path, offset, size, len(records)))
      offset += size
  return segments


# What is held out.


def choose_part_size(input_size: int, most: int = _PART) -> int:
  """Returns the characters of a part, for an input of this many bytes, or 1."""
  if input_size == 1:  # unknown
    return most
  return min(most, max(_SMALLEST_PART, input_size // _PARTS))


def cut(document: Document, most: int, language: str) -> list[Document]:
  """Cuts a document of more than `most` characters into similar parts.

  Cuts are between paragraphs or, in long ones, between sentences.
  """
  size = sum(map(len, document.paragraphs))
  if size <= most:
    return [document]
  count = -(-size // most)
  parts: list[list[str]] = [[] for _ in range(count)]
  begin = 0
  for paragraph in document.paragraphs:
    texts = [paragraph]
    if len(paragraph) > most // 4 and not document.are_sentences:
      texts = split(Document(texts), language)
    for text in texts:
      parts[min(begin * count // size, count - 1)].append(text)
      begin += len(text)
  return [Document(part, document.are_sentences) for part in parts if part]


def leave_gap(sentences: Sequence, part: int, parts: int) -> Sequence:
  """Drops sentences at the borders of held-out part `part` of `parts`."""
  gap = min(_GAP, len(sentences) // 4)
  return sentences[gap * (part > 0) : len(sentences) - gap * (part < parts - 1)]


def draw(digest: bytes) -> float:
  """Returns the draw of a part with this digest, in [0, 1)."""
  return (int.from_bytes(digest[:8], 'little') >> 11) / (1 << 53)


def find_bound(input_size: int, share: float) -> float:
  """Returns the draw below which a part may be held out."""
  return 1.0 if input_size <= _SMALL else min(1.0, 2 * share)


def choose(share: float, tally: np.ndarray) -> tuple[int, int, int]:
  """Chooses what to hold out of an input, by its tally, see `read`.

  From a small input it takes more than `share`: 256 kB, but at most a tenth. If
  possible, two parts are held out, for pairs of different documents, and two
  are not.

  Returns:
    The first bin not to hold out, and bytes and number of the parts below it.
  """
  size, parts = tally.sum(1)
  wanted = max(share * size, min(_ENOUGH, size / 10))
  most = max(parts - 2, parts // 2)
  held, count = (tally.cumsum(1) - tally)[:, :BINS]  # below each bin
  is_enough = (held >= wanted) & (count >= 2)
  stop = is_enough | (count + tally[1, :BINS] > most)
  end = int(stop.argmax()) if stop.any() else BINS
  return end, *tally[:, :end].sum(1).tolist()
