"""Reads the texts of JSON: an object per line, or in any other form."""

import codecs
import collections
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from bert_jax import errors
from bert_jax.corpus import clean, formats
from bert_jax.corpus.document import Document

# (what is in a place, the place) -> documents; see `make_documents`.
Make = Callable[[Any, str], Iterator[Document]]

_LONGEST = 64 << 20  # bytes per object
_CHUNK = 1 << 20  # bytes
_BETWEEN = re.compile(r'[\s,\[\]]*')  # objects
# The fields of `wikiextractor --json`, whose text is as that of its pages.
_WIKI = {'id', 'url', 'title', 'text'}


def read_lines(
  lines: formats.Lines, stop: int, make: Make, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the documents in the objects of JSON that lines hold."""
  parts: list[bytes] = []
  begin = size = 0
  for offset, raw in itertools.chain(lines, [(0, b'\n')]):  # of the last line
    if not size:
      begin = offset
      if offset >= stop:
        return
    size += len(raw)
    if size <= _LONGEST:
      parts.append(raw)
    if not raw.endswith(b'\n'):
      continue
    line = b''.join(parts).removeprefix(codecs.BOM_UTF8)
    if size > _LONGEST:
      counts['long_lines_dropped'] += 1
    elif line.strip():
      try:
        value = json.loads(line.decode('utf-8', 'surrogateescape'))
      except (ValueError, RecursionError):
        value = line
      yield from make(value, f'the line at byte {begin}')
    parts, size = [], 0


def read_objects(file: BinaryIO, make: Make) -> Iterator[Document]:
  """Yields the documents in the objects of an array, or of any lines.

  One object is in memory at a time.
  """
  decode = codecs.getincrementaldecoder('utf-8-sig')('surrogateescape').decode
  text, at, number = '', 0, 1
  while True:
    at = _BETWEEN.match(text, at).end()
    try:
      value, at = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
      text, at = text[at:], 0
      raw = file.read(max(_CHUNK, len(text)))
      if raw and len(text) <= _LONGEST:
        text += decode(raw)
        continue
      if not text:
        return
      value = text
    yield from make(value, f'object {number:,}')
    number += 1


def make_documents(
  value: Any, place: str, field: str, layout: str, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the documents in an object of a file, empty for JSON's null."""
  names = [*value] if isinstance(value, dict) else []
  text = value.get(field, 0) if names else 0
  if not isinstance(text, str | None):
    what = errors.listing(names) if names else f'{value!r:.60}'
    raise errors.UserError(
      f'{place} is not a JSON object with a string {field!r} '
      f'({what}); give such objects, or name the field of the text by data.field.'
    )
  text = clean.clean(text or '', counts)
  if _WIKI <= {*names} <= {*_WIKI, 'revid'}:
    yield Document(formats.split_wiki_lines(text, counts))
  else:
    yield from formats.make_documents(text, layout, counts)
