"""First stage of `prepare`: distributes documents over the logical shards.

Each job reads a piece of the input and writes the documents to files sorted by
shard, so that the second stage gets a shard's documents with a few long reads.
The result does not depend on which job read a document, since each shard sorts
its documents by their hashes.
"""

import collections
import dataclasses
import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bert_jax.corpus import clean, sources, text_files
from bert_jax.corpus.document import Document
from bert_jax.data import recipe as recipe_lib
from bert_jax.runtime import files, storage

_HEADER = struct.Struct('<16sH?I')  # digest, passes, are_sentences, bytes
_BUFFER = 32 << 20  # bytes that a job holds before it writes
_HASH_SPACE = 1 << 64


@dataclasses.dataclass(frozen=True)
class Job:
  """Work for one process.

  Attributes:
    number: index of the job.
    pieces: pieces of the input to read, in order.
    limit: documents to stop after; 0 is no limit.
    work: directory for the results.
  """

  number: int
  pieces: tuple[sources.Piece, ...]
  limit: int
  work: str

  @property
  def name(self) -> str:
    return f'read-{self.number:05d}'

  @property
  def size(self) -> int:
    return sum(piece.size for piece in self.pieces)


class Segment(NamedTuple):
  """Where one file holds the documents of one bucket."""

  bucket: int
  path: str
  offset: int
  size: int
  documents: int


class Text(NamedTuple):
  """A document in a bucket.

  Attributes:
    digest: hash of the text; identifies the document.
    passes: how many times the document is cut into pairs.
    document: the paragraphs.
  """

  digest: bytes
  passes: int
  document: Document


def read(job: Job, recipe: recipe_lib.Recipe) -> dict:
  """Reads a job's pieces, unless that was done before.

  Returns:
    `segments`, lists of Segment's fields; `counts` of what was found, cleaned
    and dropped; `invalid`, {path: sequences that are not UTF-8}; `sources`,
    {input number: [documents, bytes of text]}; `files`, [input number, path,
    bytes, sha256] of every file that begins in the job.
  """
  done = os.path.join(job.work, f'{job.name}.json')
  if storage.exists(done):
    return files.load_json(done)
  counts: collections.Counter[str] = collections.Counter()
  invalid: collections.Counter[str] = collections.Counter()
  found: dict[int, list[int]] = {}
  buckets: dict[int, list[bytes]] = collections.defaultdict(list)
  segments: list[Segment] = []
  buffered = part = 0
  for source, document in _documents(job, recipe, counts, invalid):
    bucket, record, size = _record(document, source, recipe)
    buckets[bucket].append(record)
    of = found.setdefault(source, [0, 0])
    of[0] += 1
    of[1] += size
    buffered += len(record)
    if buffered >= _BUFFER:
      segments += _write(job, part, buckets)
      buckets.clear()
      buffered, part = 0, part + 1
  segments += _write(job, part, buckets)
  result = {
    'segments': segments,
    'counts': dict(sorted(counts.items())),
    'invalid': +invalid,
    'sources': found,
    'files': [
      [piece.source, r.path, r.size, text_files.compute_sha256(r.path)]
      for piece in job.pieces
      for r in piece.ranges
      if r.start == 0 and sources.is_file(r.path)
    ],
  }
  files.write_json(done, result)
  return files.load_json(done)


def read_texts(segments: Iterable[Segment]) -> Iterator[Text]:
  """Yields the documents of segments."""
  ranges = [(s.path, s.offset, s.size) for s in segments]
  for raw in storage.read_ranges(ranges):
    block = memoryview(raw)
    at = 0
    while at < len(block):
      digest, passes, are_sentences, size = _HEADER.unpack_from(block, at)
      at += _HEADER.size
      text = str(block[at : at + size], 'utf-8')
      at += size
      document = Document(text.split('\n'), are_sentences)
      yield Text(digest, passes, document)


def _documents(job, recipe, counts, invalid) -> Iterator[tuple[int, Document]]:
  """Yields (input number, document); counts what is dropped."""
  n = 0
  for piece in job.pieces:
    for document in sources.read_documents(
      piece, recipe.layout, recipe.field, counts, invalid
    ):
      if sum(map(len, document.paragraphs)) < recipe.min_chars:
        counts['short_documents'] += 1
        continue
      yield piece.source, document
      n += 1
      if n == job.limit:
        return


def _record(document: Document, source: int, recipe):
  """Returns a document's bucket, its bytes on disk and its text's size."""
  text = '\n'.join(document.paragraphs)
  try:
    raw = text.encode()
  except UnicodeEncodeError:
    raw = clean.clean(text, collections.Counter()).encode()
  digest = hashlib.blake2b(raw, digest_size=16).digest()
  bucket = choose_bucket(digest, recipe)
  passes = 1
  if bucket < recipe.shards:
    weight = recipe.weights[source] if recipe.weights else 1.0
    passes = draw_passes(digest, recipe.passes * weight)
  header = _HEADER.pack(digest, passes, document.are_sentences, len(raw))
  return bucket, header + raw, len(raw)


def choose_bucket(digest: bytes, recipe: recipe_lib.Recipe) -> int:
  """Returns the bucket of a document.

  It is the number of its training shard, or the number of training shards plus
  that of its held-out shard.
  """
  first = int.from_bytes(digest[:8], 'little')
  second = int.from_bytes(digest[8:], 'little')
  if first < recipe.heldout * _HASH_SPACE:
    return recipe.shards + second % recipe.heldout_shards
  return second % recipe.shards


def draw_passes(digest: bytes, mean: float) -> int:
  """Returns an integer number of passes, `mean` on average over documents."""
  whole = int(mean)
  if mean > whole:
    again = hashlib.blake2b(digest, digest_size=8, person=b'passes').digest()
    draw = int.from_bytes(again, 'little') / _HASH_SPACE
    whole += draw < mean - whole
  return whole


def _write(job, part, buckets) -> list[Segment]:
  """Writes what is buffered, sorted by bucket."""
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
