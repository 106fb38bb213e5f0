"""First stage of `prepare`: distributes documents over the logical shards.

Each job reads a piece of the input and writes the documents to files sorted by
shard, so that the second stage gets a shard's documents with a few long reads.
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

from bert_jax.corpus import sources, text_files
from bert_jax.corpus.document import Document
from bert_jax.data import heldout
from bert_jax.data.recipe import Recipe
from bert_jax.runtime import files, hub, storage

# digest, passes, source, part, parts, are_sentences, bytes
_HEADER = struct.Struct('<16sHHHH?I')
_BUFFER = 32 << 20  # bytes that a job holds before it writes


@dataclasses.dataclass(frozen=True)
class Job:
  """Work for one process: reads pieces of the input, in order."""

  number: int
  pieces: tuple[sources.Piece, ...]
  part_sizes: tuple[int, ...]  # of each input, see `heldout.cut`
  bounds: tuple[float, ...]  # of each input, see `heldout.find_bound`
  work: str  # directory for the results

  @property
  def name(self) -> str:
    return f'read-{self.number:05d}'

  @property
  def size(self) -> int:
    return sum(piece.size for piece in self.pieces)


class Segment(NamedTuple):
  """Where one file holds the documents of one bucket.

  With n shards, bucket k < n is training shard k, and bucket n + k the
  documents of that shard that may be held out.
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
  """Reads a job's pieces, unless that was done before.

  Returns:
    `segments`, lists of Segment's fields; `counts` and `invalid` of
    `sources.read_documents`; `sources`, {input number: [documents, parts, bytes]};
    `bins`, {input number: {bin: [bytes, parts]}} of what may be held out; `files`,
    [input number, path, bytes, sha256] of every file that begins in the job.
  """
  done = os.path.join(job.work, f'{job.name}.json')
  if storage.exists(done):
    return files.load_json(done)
  counts: collections.Counter[str] = collections.Counter()
  invalid: collections.Counter[str] = collections.Counter()
  totals: dict[int, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
  bins: dict[int, dict] = collections.defaultdict(dict)
  buckets: dict[int, list[bytes]] = collections.defaultdict(list)
  segments: list[Segment] = []
  buffered = written = 0
  for source, document in _read_documents(job.pieces, recipe, counts, invalid):
    language = recipe.get_language(source)
    parts = heldout.cut(document, job.part_sizes[source], language)
    totals[source][0] += 1
    totals[source][1] += len(parts)
    for k, part in enumerate(parts):
      digest, record, size = _record(part, source, k, len(parts), recipe)
      bucket = choose_shard(digest, recipe)
      chance = heldout.draw(digest) / job.bounds[source]
      if chance < 1:
        bucket += recipe.shards
        tally = bins[source].setdefault(int(chance * heldout.BINS), [0, 0])
        tally[0] += size
        tally[1] += 1
      buckets[bucket].append(record)
      totals[source][2] += size
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
    'sources': totals,
    'bins': bins,
    'files': [
      # A commit's bytes are known by it; they would be fetched once more.
      [
        piece.source,
        r.path,
        r.size,
        None if hub.is_pinned(r.path) else text_files.compute_sha256(r.path),
      ]
      for piece in job.pieces
      for r in piece.ranges
      if r.start == 0 and sources.is_file(r.path)
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
      if below and heldout.draw(digest) >= below[source]:
        continue
      text = str(block[at - size : at], 'utf-8')
      document = Document(text.split('\n'), are_sentences)
      yield Text(digest, passes, source, part, parts, document)


def _read_documents(
  pieces, recipe, counts, invalid
) -> Iterator[tuple[int, Document]]:
  """Yields (input number, document) of what data is made of."""
  n = 0
  for piece in pieces:
    for document in sources.read_documents(
      piece, recipe.layout, recipe.field, counts, invalid
    ):
      if sum(map(len, document.paragraphs)) < recipe.min_chars:
        counts['short_documents'] += 1
        continue
      yield piece.source, document
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


def choose_shard(digest: bytes, recipe: Recipe) -> int:
  """Returns the number of a document's training shard."""
  return int.from_bytes(digest[8:], 'little') % recipe.shards


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
