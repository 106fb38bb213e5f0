"""Parses the lines of text files into documents.

A large file is read in byte ranges, so that several processes can share it. A
range owns the JSON lines, pages or documents that begin in it (documents after
a blank line), and reads past its end to complete the last one.
"""

import codecs
import collections
import html
import itertools
import json
import re
from collections.abc import Iterable, Iterator

from bert_jax import errors
from bert_jax.corpus import clean, text_files
from bert_jax.corpus.document import Document

Lines = Iterable[tuple[int, bytes]]  # byte offset, line with its line feed

_DOC = re.compile(rb'<doc id="([^"]*)".* title="(.*)">\s*$')
_LONG = 500_000  # bytes; a line this long without a line feed was cut
_LONGEST_JSON = 64 << 20  # bytes per line
_LONGEST_DOCUMENT = 4 << 20  # characters; longer ones are cut at a line's end


def is_wiki(head: bytes) -> bool:
  """Returns whether a file that begins with `head` has WikiExtractor pages."""
  return bool(_DOC.match(_first_line(head)))


def is_jsonl(path: str, head: bytes, field: str) -> bool:
  """Returns whether a file has lines of JSON, by its extension or beginning.

  WikiExtractor writes such files without an extension; they begin with an
  object with a string `field`. Of a line that is longer than `head`, the
  beginning decides.
  """
  if text_files.get_extension(path) == '.jsonl':
    return True
  line = _first_line(head)
  try:
    found = json.loads(line.decode('utf-8', 'surrogateescape'))
  except (ValueError, RecursionError):
    string = rb'\{ *(".*, *)?"%b" *: *"' % re.escape(field.encode())
    return head.endswith(line) and bool(re.match(string, line))
  return isinstance(found, dict) and isinstance(found.get(field), str)


def _first_line(head):
  # Leading blank lines have no meaning in any of the formats.
  lines = head.removeprefix(codecs.BOM_UTF8).split(b'\n')
  return next((x for x in lines if x.strip()), b'')


def decode_lines(
  lines: Lines, start: int, counts: collections.Counter
) -> Iterator[tuple[int, str]]:
  """Yields the cleaned lines (`clean`) that a byte range owns.

  If the range starts within a file, the lines before its first blank line
  belong to the range before it. A part of a long line never counts as blank.
  """
  owned, whole = not start, True
  for offset, raw in lines:
    text = clean.decode(raw, counts if owned else collections.Counter())
    is_blank = not text.strip()
    ends = raw.endswith(b'\n') or len(raw) < _LONG
    separates, whole = is_blank and whole and ends, ends
    if separates:
      owned = True
    if owned:
      if not ends:
        counts['long_lines_cut'] += 1
      if separates or not is_blank:
        yield offset, text


def read_blocks(
  lines: Iterable[tuple[int, str]],
  stop: int,
  are_sentences: bool,
  counts: collections.Counter,
) -> Iterator[Document]:
  """Yields the documents that blank lines separate; a line is a paragraph."""
  block: list[str] = []
  size = 0
  for offset, line in lines:
    line = line.strip()
    if block and (not line or size > _LONGEST_DOCUMENT):
      if line:
        counts['long_documents_cut'] += 1
      yield Document(block, are_sentences)
      block, size = [], 0
    if line:
      block.append(line)
      size += len(line)
    elif offset >= stop:
      return
  if block:
    yield Document(block, are_sentences)


def read_whole_file(
  lines: Iterable[str], counts: collections.Counter
) -> Iterator[Document]:
  """Yields one document of hard-wrapped lines.

  Blank lines separate its paragraphs.
  """
  paragraphs: list[str] = []
  open_lines: list[str] = []
  size = 0
  for line in lines:
    line = line.strip()
    if line:
      open_lines.append(line)
      size += len(line)
    if open_lines and (not line or size > _LONGEST_DOCUMENT):
      paragraphs.append(' '.join(open_lines))
      open_lines = []
    if size > _LONGEST_DOCUMENT:
      counts['long_documents_cut'] += 1
      yield Document(paragraphs)
      paragraphs, size = [], 0
  if open_lines:
    paragraphs.append(' '.join(open_lines))
  if paragraphs:
    yield Document(paragraphs)


def read_wiki_pages(
  lines: Lines, stop: int, counts: collections.Counter
) -> Iterator[Document]:
  """Yields one document per WikiExtractor page.

  A page is <doc ...>, the title, lines of text, </doc>. In the text, &, < and >
  are entities, unless WikiExtractor was told otherwise. Of a page that has only a
  title, the document is empty.
  """
  title: str | None = None
  page: list[str] = []
  inside = False
  for offset, raw in lines:
    begin = _DOC.match(raw) if raw.startswith(b'<doc ') else None
    if begin or raw.startswith(b'</doc>'):
      if inside:
        yield Document(page)
      page, inside = [], False
      if begin:
        if offset >= stop:
          return
        inside = True
        title = html.unescape(clean.decode(begin[2], counts))
    elif inside:
      text = html.unescape(clean.decode(raw, counts))
      for line in split_lines(text, counts):
        if line == title:
          title = None  # the page begins by repeating its title
        else:
          page.append(line)
  if inside:
    yield Document(page)  # the file ends within a page


def read_jsonl(
  path: str, lines: Lines, stop: int, field: str, counts: collections.Counter
) -> Iterator[Document]:
  """Yields a document per line: a JSON object whose `field` holds the text.

  It is empty for JSON's null.
  """
  parts: list[bytes] = []
  begin = size = 0
  for offset, raw in lines:
    if not parts:
      begin = offset
      if offset >= stop:
        return
    size += len(raw)
    if size <= _LONGEST_JSON:
      parts.append(raw)
    if raw.endswith(b'\n'):
      yield from _json_line(path, begin, parts, size, field, counts)
      parts, size = [], 0
  if parts:
    yield from _json_line(path, begin, parts, size, field, counts)


def _json_line(path, offset, parts, size, field, counts):
  if size > _LONGEST_JSON:
    counts['long_lines_dropped'] += 1
    return
  line = b''.join(parts).removeprefix(b'\xef\xbb\xbf')
  if not line.strip():
    return
  try:
    text = json.loads(line.decode('utf-8', 'surrogateescape'))[field]
    if not isinstance(text, str | None):
      raise TypeError
  except (ValueError, KeyError, TypeError, RecursionError):
    raise errors.UserError(
      f'{path}, the line at byte {offset}, is not a JSON object with a string '
      f'{field!r}: {line[:60]!r}; give one such object per line, or name the '
      'field of the text by data.field.'
    ) from None
  yield Document(split_lines(text or '', counts))


def split_lines(text: str, counts: collections.Counter) -> list[str]:
  """Returns the lines of a text that are not blank."""
  found = map(str.strip, clean.clean(text, counts).split('\n'))
  return [line for line in found if line]


# How far down the name is searched for, and how long a header may be; the
# longest small print, of the 1990s, has about 350 lines.
_OPENING = 50  # lines
_MAX_HEADER = 1000  # lines

_NAME = re.compile(r'project gutenberg', re.I)
_BODY = re.compile(
  r'\s*\*+\s*START OF (?:THE |THIS )?PROJECT GUTENBERG'
  r'|\s*\*+\s*END\W* ?THE SMALL PRINT',
  re.I,
)
_STARRED_END = re.compile(r'\*\s*$')
_FOOTER = re.compile(
  r'\s*\*+\s*END OF (?:THE |THIS )?PROJECT GUTENBERG'
  r'|\s*(?:\*+\s*)?(?:This is the )?END OF (?:THE |THIS )?PROJECT GUTENBERG'
  r'(?:\W?S\b| E-?(?:BOOK|TEXT)\b)',
  re.I,
)


def strip_gutenberg(lines: Iterable[str]) -> Iterator[str]:
  """Yields the lines of books without Project Gutenberg's headers and footers.

  A header ends with the last '*** START OF ...' or '*END THE SMALL PRINT'
  in the first thousand lines, a footer begins with '*** END OF ...' or 'End
  of the Project Gutenberg EBook ...'. Text after a footer is dropped up to the
  next header's mark, which begins another book, after an empty line. A text
  whose first lines do not name Project Gutenberg, or which has none of these
  marks, passes unchanged.
  """
  lines = iter(lines)
  opening = list(itertools.islice(lines, _OPENING))
  lines = itertools.chain(opening, lines)
  if not any(map(_NAME.search, opening)):
    yield from lines
    return
  yield from _book(lines)
  for line in lines:
    if _BODY.match(line):
      yield ''
      yield from _book(itertools.chain([line], lines))


def _book(lines: Iterable[str]) -> Iterator[str]:
  """Yields the lines of one book; reads `lines` up to its footer."""
  book = itertools.takewhile(lambda line: not _FOOTER.match(line), lines)
  head = list(itertools.islice(book, _MAX_HEADER))
  yield from head[_header_end(head) :]
  yield from book


def _header_end(head: list[str]) -> int:
  """Returns the number of lines of the header."""
  starts = [n for n, line in enumerate(head) if _BODY.match(line)]
  if not starts:
    return 0
  n = starts[-1] + 1
  # A long title continues on the next lines, up to the closing asterisks.
  for k in range(n - 1, min(n + 3, len(head))):
    if not head[k].strip():
      break
    if _STARRED_END.search(head[k]):
      return k + 1
  return n
