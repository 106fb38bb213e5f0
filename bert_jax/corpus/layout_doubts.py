"""Notices files whose layout may be another than the one they are read in.

They are counted, by names that `data.summary` explains.
"""

import collections
from collections.abc import Iterator, Sequence

from bert_jax.corpus.document import Document

NAMES = WRAPPED, UNBROKEN, BROKEN = 'hard_wrapped', 'unbroken', 'finely_broken'

_LINES = 400  # to judge a file by
_WIDTHS = range(20, 200)  # characters of a line that was cut
_LARGE, _MANY_LINES = 256 << 10, 1000  # characters; lines
_LONGEST = 4 << 20  # characters; `formats` cuts here
# The paragraphs of 20 novels have 425 bytes on average.
_MANY, _SHORT = 10, 1000  # documents, and their characters on average
_STOPS = tuple('.!?:;…。！？।॥۔؟։။"”\'’»)')


def watch(
  documents: Iterator[Document], counts: collections.Counter
) -> Iterator[Document]:
  """Yields the documents of a file; counts it if it may be hard-wrapped."""
  lines: list[str] = []
  for document in documents:
    yield document
    lines += document.paragraphs[:_LINES]
    if len(lines) >= _LINES:
      break
  counts.update([WRAPPED] * _is_wrapped(lines[:_LINES]))
  yield from documents


def _is_wrapped(lines: Sequence[str]) -> bool:
  """Returns whether most lines seem to be cut at a width, within sentences."""
  width = sorted(map(len, lines))[len(lines) * 95 // 100] if lines else 0
  within = [x for x in lines if len(x) >= 0.8 * width and x[-1] not in _STOPS]
  return width in _WIDTHS and len(within) > max(len(lines), _LINES // 10) / 2


def watch_blocks(
  documents: Iterator[Document], is_whole: bool, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the documents between a file's blank lines; counts odd files.

  Unless they are all of the file, they are of its first part.
  """
  number = size = lines = 0
  for number, document in enumerate(documents, 1):
    yield document
    size += sum(map(len, document.paragraphs))
    lines += len(document.paragraphs)
    if number == _MANY or size > _LONGEST:
      break
  is_large = size >= _LARGE or lines >= _MANY_LINES
  is_single = is_whole and number == 1
  is_unbroken = size > _LONGEST * number or (is_single and is_large)
  counts.update([UNBROKEN] * is_unbroken)
  counts.update([BROKEN] * (number == _MANY and size < _MANY * _SHORT))
  yield from documents
