"""Reads inputs as documents, in pieces that any number of processes can share.

An input is a path, a glob, a folder (all files below it) or a URL such as
gs://BUCKET/*.gz or hf://datasets/...; `tfds:NAME/CONFIG:SPLIT`; or `python-docs`
(see `prose`).
`file_kinds` says what a file is; plain UTF-8 text has the layout that is given.
"""

import collections
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.corpus import (
  file_kinds,
  formats,
  layout_doubts,
  mediawiki,
  prose,
  records,
  text_files,
)
from bert_jax.corpus.document import Document, fold

PYTHON_DOCS = 'python-docs'

_PIECES = 64  # about how many to make of all inputs
_SMALLEST, _LARGEST = 4 << 20, 128 << 20  # bytes per piece
_EXAMPLES = 20_000  # of a TFDS dataset per piece
_FILES = 1000  # per piece, at most
_EXAMPLE_BYTES = 4000  # about one Wikipedia article
_COMPRESSION = 5
# Which lines a file may be cut before, if not before those of `is_separator`.
_SEPARATORS = {
  file_kinds.PAGES: formats.PAGE.match,
  file_kinds.WIKITEXT: formats.TITLE.match,
  file_kinds.LINES: bool,  # every one
}


@dataclasses.dataclass(frozen=True)
class Range:
  """A range of a file's bytes, or of a TFDS dataset's examples."""

  source: int  # index of the input
  path: str
  start: int
  stop: int
  whole: int  # size of the file or dataset

  @property
  def size(self) -> int:
    return self.stop - self.start

  @property
  def is_whole(self) -> bool:
    return self.size == self.whole

  @property
  def text_bytes(self) -> int:
    """An estimate of the bytes of text, always the same for equal ranges."""
    factor = 1
    if self.path.startswith(records.TFDS):
      factor = _EXAMPLE_BYTES
    elif text_files.has_compressed_name(
      self.path
    ):  # the name: it opens no file
      factor = _COMPRESSION
    return self.size * factor


def plan(inputs: Sequence[str], layout: str, field: str) -> list[list[Range]]:
  """Cuts inputs into ranges, in groups that one process reads at a time.

  Args:
    layout: how plain text is laid out, see docs/data.md.
    field: name of the field that holds the text of JSON, columns and TFDS.
  """
  sizes = [_list_sizes(given, field) for given in inputs]
  total = sum(size for x in sizes for size in x.values())
  room = min(max(total // _PIECES, _SMALLEST), _LARGEST)
  groups = collections.defaultdict(list)
  for source, given in enumerate(inputs):
    most = _EXAMPLES if given.startswith(records.TFDS) else room
    before = number = 0
    for path, size in sizes[source].items():
      # By bytes or by examples, if it is divisible.
      whole = size <= most or not _is_divisible(path, layout)
      step = max(size, 1) if whole else most
      for start in range(0, max(size, 1), step):
        part = Range(source, path, start, min(start + step, size), size)
        groups[source, before // most, number // _FILES].append(part)
        before, number = before + part.size, number + 1
  return [*groups.values()]


def _list_sizes(given: str, field: str) -> dict[str, int]:
  """Returns {path: bytes} of an input's files, or {dataset: examples}."""
  if given == PYTHON_DOCS:
    return {given: 1}
  if given.startswith(records.TFDS):
    return {given: len(records.open_tfds(given, field))}
  return text_files.list_sizes(given)


def _is_divisible(path: str, layout: str) -> bool:
  if path.startswith(records.TFDS):
    return True
  if text_files.is_compressed(path):
    return False
  head = text_files.read_head(path)
  kind = file_kinds.recognise(path, head)
  if kind == file_kinds.TEXT:
    # Of lines without line feeds, one range would be all.
    return layout != 'files' and b'\n' in head
  return kind not in file_kinds.INDIVISIBLE


def is_file(path: str) -> bool:
  return path != PYTHON_DOCS and not path.startswith(records.TFDS)


def read_documents(
  part: Range,
  layout: str,
  field: str,
  counts: collections.Counter,
  invalid: collections.Counter,
  whole: bool = False,
) -> Iterator[Document]:
  """Reads the documents of a range, one at a time; `whole` is as in `fold`.

  Args:
    counts: numbers of what is cleaned, dropped or doubtful are added here.
    invalid: {path: its part of `counts['invalid_utf8']`} is added here.
  """
  if part.path == PYTHON_DOCS:
    documents = prose.read_documents()
  elif part.path.startswith(records.TFDS):
    texts = records.read_tfds(part.path, field, part.start, part.stop)
    documents = formats.read_texts(texts, layout, counts)
  else:
    documents = _read_file(part, layout, field, counts, invalid)
  if part.start == 0 and layout != 'files':
    documents = layout_doubts.watch(documents, counts)
  for document in (fold(x, whole) for x in documents):
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
  file_kinds.refuse_bad_bytes(part.path, bad, part.text_bytes)


def _until_damage(items: Iterable, path: str, counts: collections.Counter):
  """Yields items, up to damage in a file, which is counted."""
  try:
    yield from items
  except (*text_files.DAMAGE, OSError) as error:
    if not text_files.is_damage(error, path):
      raise
    counts['damaged_files'] += 1
    print(
      f'warning: {path!r} cannot be read to its end ({error}); what comes before '
      'the damage is used',
      file=sys.stderr,
      flush=True,
    )


def _parse(file, head, part: Range, layout, field, counts):
  """Returns the documents of an open file, whose `head` shows its format."""
  path, start, stop = part.path, part.start, part.stop
  if part.is_whole:  # as it is stored: what it decompresses to may be longer
    stop = sys.maxsize
  kind = file_kinds.recognise(path, head)
  if kind == file_kinds.DUMP:
    return mediawiki.read_documents(file, counts)
  if kind == file_kinds.PARQUET:
    texts = records.read_parquet(file, path, field, start, stop)
    return formats.read_texts(texts, layout, counts)
  if kind == file_kinds.ARROW:
    texts = records.read_arrow(file, head, path, field)
    return formats.read_texts(texts, layout, counts)
  if part.is_whole:
    lines = text_files.read_lines(file)
  else:
    separates = _SEPARATORS.get(kind, formats.is_separator)
    if layout == 'lines' and kind == file_kinds.TEXT:
      separates = bool  # every line
    stop = text_files.find_line(file, stop, separates)
    start = text_files.find_line(file, start, separates)
    lines = text_files.read_lines(file, start, stop)
  if kind in (file_kinds.LINES, file_kinds.JSON):
    values = records.read_json(lines)
    rest = path, start, field, layout, counts
    return records.make_json_documents(values, *rest)
  # A document that the damage cuts is used, unlike an object of JSON.
  lines = _until_damage(lines, path, counts)
  if kind == file_kinds.PAGES:
    return formats.read_wiki_pages(lines, counts)
  if kind == file_kinds.WIKITEXT:
    lines, layout = formats.separate_articles(lines), 'paragraphs'
  texts = formats.decode_lines(lines, counts)
  if layout == 'lines':
    return (Document([x]) for x in texts if x)
  if part.is_whole:
    texts = formats.strip_gutenberg(texts)
  if layout == 'files':
    return formats.read_whole_file(texts, counts)
  documents = formats.read_blocks(texts, layout == 'sentences', counts)
  if part.start:
    return documents
  return layout_doubts.watch_blocks(documents, part.is_whole, counts)
