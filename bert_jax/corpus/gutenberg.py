"""Removes headers and licences from Project Gutenberg books."""

import itertools
import re
from collections.abc import Iterable, Iterator

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


def strip(lines: Iterable[str]) -> Iterator[str]:
  """Yields the lines of books without Project Gutenberg's headers and footers.

  A header ends with the last '*** START OF ...' or '*END THE SMALL PRINT'
  in the first thousand lines, a footer begins with '*** END OF ...' or 'End
  of the Project Gutenberg EBook ...'. What follows a footer is dropped up to
  the next of the former marks, which begins another book, after an empty line.
  A text whose first lines do not name Project Gutenberg, or which has none of
  these marks, passes unchanged.

  Args:
    lines: the lines of a file; at most a thousand are in memory at a time.
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
