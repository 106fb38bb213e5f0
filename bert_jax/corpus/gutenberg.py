"""Removes header and licence from Project Gutenberg books."""

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
  """Yields the lines of a book without Project Gutenberg's header and footer.

  The header ends with the last '*** START OF ...' or '*END THE SMALL PRINT'
  in the first thousand lines, the footer begins with '*** END OF ...' or 'End
  of the Project Gutenberg EBook ...'. A text whose first lines do not name
  Project Gutenberg, or which has none of these marks, passes unchanged.

  Args:
    lines: the lines of a file; at most a thousand are in memory at a time.
  """
  lines = iter(lines)
  opening = list(itertools.islice(lines, _OPENING))
  if not any(map(_NAME.search, opening)):
    yield from opening
    yield from lines
    return
  head = opening + list(itertools.islice(lines, _MAX_HEADER - _OPENING))
  body = itertools.chain(head[_header_end(head) :], lines)
  yield from itertools.takewhile(lambda line: not _FOOTER.match(line), body)


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
