"""Reads inputs as documents, in pieces that any number of processes can share.

An input is a path, a glob, a folder (all files below it) or a URL such as
gs://BUCKET/*.gz or hf://datasets/...; `tfds:NAME/CONFIG:SPLIT`; or `python-docs`
(see `prose`).
`file_kinds` says what a file is; plain UTF-8 text has the layout that is given.
"""

import codecs
import collections
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.corpus import (
  columns,
  file_kinds,
  formats,
  json_text,
  layout_doubts,
  mediawiki,
  prose,
  text_files,
  tfds_text,
)
from bert_jax.corpus.document import Document, fold

PYTHON_DOCS = 'python-docs'

_PIECES = 64  # about how many to make of all inputs
_SMALLEST, _LARGEST = 4 << 20, 128 << 20  # bytes per piece
_EXAMPLES = 20_000  # of a TFDS dataset per piece
_FILES = 1000  # per piece, at most
_EXAMPLE_BYTES = 4000  # about one Wikipedia article
_COMPRESSION = 5


@dataclasses.dataclass(frozen=True)
class Range:
  """A range of a file's bytes, or of a TFDS dataset's examples."""

  path: str
  start: int
  stop: int
  size: int  # of the whole file or dataset

  @property
  def is_whole(self) -> bool:
    return self.stop - self.start == self.size


@dataclasses.dataclass(frozen=True)
class Piece:
  """The part of an input that one process reads at a time."""

  source: int  # index of the input
  ranges: tuple[Range, ...]  # of that input's files, in order

  @property
  def size(self) -> int:
    return sum(r.stop - r.start for r in self.ranges)


def plan(inputs: Sequence[str], layout: str, field: str) -> list[Piece]:
  """Cuts inputs into pieces; the same inputs give the same pieces.

  Args:
    layout: how plain text is laid out. 'paragraphs': blank lines separate
      documents, each line is a paragraph. 'sentences': the same, but each line
      is a sentence. 'lines': each line is a document. 'files': each file, and
      each text in JSON and TFDS, is a document of hard-wrapped lines, and blank
      lines separate its paragraphs.
    field: name of the field that holds the text, in JSON and TFDS.
  """
  sizes = [_list_sizes(given, field) for given in inputs]
  total = sum(size for x in sizes for size in x.values())
  room = min(max(total // _PIECES, _SMALLEST), _LARGEST)
  pieces: list[Piece] = []
  for source, given in enumerate(inputs):
    most = _EXAMPLES if given.startswith(tfds_text.PREFIX) else room
    group: list[Range] = []
    left = most
    for path, size in sizes[source].items():
      # By bytes or by examples, if it is divisible.
      whole = size <= most or not _is_divisible(path, layout)
      step = max(size, 1) if whole else most
      for start in range(0, max(size, 1), step):
        part = Range(path, start, min(start + step, size), size)
        left -= part.stop - part.start
        if group and (left < 0 or len(group) == _FILES):
          pieces.append(Piece(source, tuple(group)))
          group, left = [], most - (part.stop - part.start)
        group.append(part)
    if group:
      pieces.append(Piece(source, tuple(group)))
  return pieces


def _list_sizes(given: str, field: str) -> dict[str, int]:
  """Returns {path: bytes} of an input's files, or {dataset: examples}."""
  if given == PYTHON_DOCS:
    return {given: 1}
  if given.startswith(tfds_text.PREFIX):
    return {given: len(tfds_text.open_split(given, field))}
  return text_files.list_sizes(given)


def _is_divisible(path: str, layout: str) -> bool:
  if path.startswith(tfds_text.PREFIX):
    return True
  if text_files.is_compressed(path):
    return False
  head = text_files.read_head(path)
  kind = file_kinds.recognise(path, head)
  if kind == file_kinds.TEXT:
    # Of lines without line feeds, one range would be all.
    return layout != 'files' and b'\n' in head
  return kind not in file_kinds.INDIVISIBLE


def estimate_bytes(pieces: Iterable[Piece]) -> int:
  """Estimates the bytes of text in pieces, always the same for equal pieces."""
  return sum(_estimate(part) for piece in pieces for part in piece.ranges)


def _estimate(part: Range) -> int:
  factor = 1
  if part.path.startswith(tfds_text.PREFIX):
    factor = _EXAMPLE_BYTES
  elif text_files.has_compressed_name(part.path):  # the name: it opens no file
    factor = _COMPRESSION
  return (part.stop - part.start) * factor


def is_file(path: str) -> bool:
  return path != PYTHON_DOCS and not path.startswith(tfds_text.PREFIX)


def list_files(pieces: Iterable[Piece]) -> dict[str, int]:
  """Returns {path: bytes} of the files that pieces are parts of."""
  ranges = (part for piece in pieces for part in piece.ranges)
  return {part.path: part.size for part in ranges if is_file(part.path)}


def read_documents(
  piece: Piece,
  layout: str,
  field: str,
  counts: collections.Counter,
  invalid: collections.Counter,
) -> Iterator[Document]:
  """Reads the documents of a piece, one at a time.

  Args:
    counts: numbers of what is cleaned, dropped or doubtful are added here.
    invalid: {path: its part of `counts['invalid_utf8']`} is added here.
  """
  for part in piece.ranges:
    if part.path == PYTHON_DOCS:
      documents = prose.read_documents()
    elif part.path.startswith(tfds_text.PREFIX):
      texts = tfds_text.read_texts(part.path, field, part.start, part.stop)
      documents = formats.read_texts(texts, layout, counts)
    else:
      documents = _read_file(part, layout, field, counts, invalid)
    if part.start == 0 and layout != 'files':
      documents = layout_doubts.watch(documents, counts)
    for document in map(fold, documents):
      if document.paragraphs:
        yield document
      else:
        counts['empty_documents'] += 1


def _read_file(
  part: Range, layout, field, counts, invalid
) -> Iterator[Document]:
  before = counts['invalid_utf8']
  head = text_files.read_head(part.path)
  try:
    with text_files.open_text(part.path) as file:
      documents = _parse(file, head, part, layout, field, counts)
      yield from _until_damage(documents, part.path, counts)
  finally:
    bad = counts['invalid_utf8'] - before
    invalid[part.path] += bad
  file_kinds.refuse_bad_bytes(part.path, bad, _estimate(part))


def _until_damage(items: Iterable, path: str, counts: collections.Counter):
  """Yields items, up to damage in a file, which is counted."""
  try:
    yield from items
  except text_files.Damaged as error:
    counts['damaged_files'] += 1
    print(
      f'warning: {path!r} cannot be read to its end ({error}); what comes before '
      'the damage is used',
      file=sys.stderr,
      flush=True,
    )


def _parse(file, head, part: Range, layout, field, counts):
  """Returns the documents of an open file, whose `head` shows its format."""
  # Offsets count decompressed bytes; compressed files are never cut.
  stop = sys.maxsize if part.is_whole else part.stop
  kind = file_kinds.recognise(part.path, head)
  if kind == file_kinds.DUMP:
    return mediawiki.read_documents(file, counts)
  if kind == file_kinds.PARQUET:
    texts = columns.read_parquet(file, part.path, field, part.start, stop)
    return formats.read_texts(texts, layout, counts)
  if kind in (file_kinds.ARROW, file_kinds.ARROW_STREAM):
    is_stream = kind == file_kinds.ARROW_STREAM
    texts = columns.read_arrow(file, part.path, field, is_stream)
    return formats.read_texts(texts, layout, counts)

  def make(value, place):
    place = f'{part.path}, {place},'
    return json_text.make_documents(value, place, field, layout, counts)

  if kind == file_kinds.JSON:
    return json_text.read_objects(file, make)
  lines = _without_mark(text_files.read_lines(file, part.start))
  if kind == file_kinds.LINES:
    return json_text.read_lines(lines, stop, make, counts)
  # A document that the damage cuts is used, unlike an object of JSON.
  lines = _until_damage(lines, part.path, counts)
  if kind == file_kinds.PAGES:
    return formats.read_wiki_pages(lines, stop, counts)
  if kind == file_kinds.WIKITEXT:
    lines, layout = formats.separate_articles(lines), 'paragraphs'
  if kind == file_kinds.TEXT and layout == 'lines':
    return formats.read_each_line(lines, stop, counts)
  texts = formats.decode_lines(lines, part.start, counts)
  if part.is_whole:
    texts = ((0, x) for x in formats.strip_gutenberg(x for _, x in texts))
  if layout == 'files':
    return formats.read_whole_file((x for _, x in texts), counts)
  documents = formats.read_blocks(texts, stop, layout == 'sentences', counts)
  if part.start:
    return documents
  return layout_doubts.watch_blocks(documents, part.is_whole, counts)


def _without_mark(lines: formats.Lines) -> formats.Lines:
  """Removes a byte order mark from the beginning of a file."""
  for offset, raw in lines:
    yield offset, raw if offset else raw.removeprefix(codecs.BOM_UTF8)
    break
  yield from lines
