"""Parses the lines of text files into documents.

A large file is read in byte ranges, so that several processes can share it: from
the first line after a range's start where a document may begin to that after its
end.
"""

import collections
import html
import itertools
import re
from collections.abc import Iterable, Iterator

from bert_jax.corpus import clean
from bert_jax.corpus.document import Document

# The beginning of a page of WikiExtractor. A title may hold quotation marks. Some
# versions write attributes after it.
PAGE = re.compile(
  rb'<doc id="[^"]*"(?>.*? title=")(.*?)"'
  rb'(?: (?:language|revision|\w+ed|dbindex)="[^"]*")*>\s*$'
)
TITLE = re.compile(rb' = ((?!= ).+) = \s*$')  # of an article of WikiText
_JOINT = re.compile(rb' @([-.,])@ ')
_MARKS = '##', 'Section::::', 'BULLET::::'
_MARKUP = re.compile(
  r'</?(?:a(?: href="[^"<>]*")?|h\d|[uo]l|li)>'
  r'|^(?:##+ |(?:Section|BULLET)::::(?:[-*#:;]+ )?)'
)
_LONG = 500_000  # bytes; a line this long without an end was cut
_LONGEST_DOCUMENT = 4 << 20  # characters; longer ones are cut at a line's end


def is_separator(line: bytes) -> bool:
  """Returns whether a line is blank; a part of a long line never is."""
  if line[:1].isalnum() or not line.endswith(b'\n'):
    return False
  return clean.is_blank(clean.decode(line, collections.Counter()))


def decode_lines(
  lines: Iterable[bytes], counts: collections.Counter
) -> Iterator[str]:
  """Yields cleaned lines (`clean`), '' if blank, whatever ends them.

  A part of a long line never counts as blank.
  """
  is_part = False  # of which the line before is another
  for raw in lines:
    text = clean.decode(raw, counts)
    line = text.strip()
    is_cut = not raw.endswith((b'\n', b'\r')) and len(raw) >= _LONG
    if not (is_part or is_cut or clean.has_rare_end(line)):  # nearly all
      yield line if line[:1].isalnum() or not clean.is_blank(line) else ''
      continue
    if is_cut:
      counts['long_lines_cut'] += 1
    parts = clean.break_lines(text)
    for k, line in enumerate(parts, 1):
      if not clean.is_blank(line):
        yield line.strip()
      elif not ((is_part and k == 1) or (is_cut and k == len(parts))):
        yield ''
    is_part = is_cut


def read_blocks(
  lines: Iterable[str], are_sentences: bool, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the documents that blank lines separate; a line is a paragraph."""
  block: list[str] = []
  size = 0
  for line in itertools.chain(lines, ['']):
    if block and (not line or size > _LONGEST_DOCUMENT):
      if line:
        counts['long_documents_cut'] += 1
      yield Document(block, are_sentences)
      block, size = [], 0
    if line:
      block.append(line)
      size += len(line)


def read_whole_file(
  lines: Iterable[str], counts: collections.Counter
) -> Iterator[Document]:
  """Yields one document of hard-wrapped lines, in paragraphs between blank ones."""
  paragraphs: list[str] = []
  open_lines: list[str] = []
  size = 0
  for line in itertools.chain(lines, ['']):
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
  if paragraphs:
    yield Document(paragraphs)


def read_wiki_pages(
  lines: Iterable[bytes], counts: collections.Counter
) -> Iterator[Document]:
  """Yields one document per WikiExtractor page, empty if it has only a title.

  A page is <doc ...>, the title, lines of text, </doc>. In the text, &, < and >
  are entities, unless WikiExtractor was told otherwise.
  """
  title: str | None = None
  page: list[str] = []
  inside = False
  for raw in lines:
    begin = PAGE.match(raw) if raw.startswith(b'<doc ') else None
    if begin or raw.startswith(b'</doc>'):
      if inside:
        yield Document(page)
      page, inside = [], bool(begin)
      if begin:
        title = html.unescape(clean.decode(begin[1], counts))
    elif inside:
      for line in split_wiki_lines(clean.decode(raw, counts), counts):
        if line == title:
          title = None  # the page begins by repeating its title
        else:
          page.append(line)
  if inside:
    yield Document(page)  # the file ends within a page


def split_wiki_lines(text: str, counts: collections.Counter) -> list[str]:
  """Returns the lines of WikiExtractor's text without entities and markup."""
  if '&' in text:
    text = clean.clean(html.unescape(text), counts)
  return [
    _MARKUP.sub('', line) if '<' in line or line.startswith(_MARKS) else line
    for line in split_lines(text)
  ]


def separate_articles(lines: Iterable[bytes]) -> Iterator[bytes]:
  """Yields the lines of WikiText with a blank one for each title, ' = Title = '.

  Its tokens in compounds and numbers, such as ' @-@ ', are joined.
  """
  for raw in lines:
    if TITLE.match(raw):
      yield b'\n'
    elif raw.strip() and not raw.startswith(b' = = '):
      yield _JOINT.sub(rb'\1', raw)


def make_documents(
  text: str, layout: str, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the document in a field of cleaned text, which may be empty."""
  if layout != 'files':
    yield Document(split_lines(text))
    return
  lines = ('' if clean.is_blank(x) else x for x in clean.break_lines(text))
  yield from list(read_whole_file(lines, counts)) or [Document([])]


def read_texts(
  texts: Iterable[bytes], layout: str, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the documents in texts, see `make_documents`."""
  for raw in texts:
    yield from make_documents(clean.decode(raw, counts), layout, counts)


def split_lines(text: str) -> list[str]:
  """Returns the lines of a text that are not blank."""
  lines = map(str.strip, clean.break_lines(text))
  return [x for x in lines if x[:1].isalnum() or not clean.is_blank(x)]


_OPENING = 50  # lines, in which the name is searched for
_MAX_HEADER = (
  1000  # lines; the longest small print, of the 1990s, has about 350
)

_NAME = re.compile(r'project gutenberg', re.I)
_BODY = re.compile(
  r'\s*\*+\s*START OF (?:THE |THIS )?PROJECT GUTENBERG'
  r'|\s*\*+\s*END\W* ?THE SMALL PRINT',
  re.I,
)
_FOOTER = re.compile(
  r'\s*\*+\s*END OF (?:THE |THIS )?PROJECT GUTENBERG'
  r'|\s*(?:\*+\s*)?(?:This is the )?END OF (?:THE |THIS )?PROJECT GUTENBERG'
  r'(?:\W?S\b| E-?(?:BOOK|TEXT)\b)',
  re.I,
)


def strip_gutenberg(lines: Iterable[str]) -> Iterator[str]:
  """Yields the lines of books without Project Gutenberg's headers and footers.

  A header ends with the last mark of _BODY in the first thousand lines. Text
  after a footer is dropped up to the next such mark, which begins another book,
  after an empty line. A text whose first lines do not name Project Gutenberg,
  or which has none of these marks, passes unchanged.
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
  starts = [n for n, line in enumerate(head) if _BODY.match(line)]
  if starts:
    n = starts[-1]
    # A long title goes on in the next lines, up to the closing asterisks.
    while n < len(head) and head[n].strip(' *') and not head[n].endswith('*'):
      n += 1
    head = head[n + 1 :]
  yield from head
  yield from book
