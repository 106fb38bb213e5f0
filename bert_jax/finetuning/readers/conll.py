"""Reads words with tags from CoNLL files: one word per line, blank lines.

A line has columns, split at tabs or else at white space. Tags are IOB1, BIO
(IOB2) or BIOES, which is recognised; they become BIO.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_jax import errors
from bert_jax.finetuning.readers import splits, table_files

_START = '-DOCSTART-'
# Prefixes of BIOES, also called BILOU, and what they are in BIO.
_BEGIN = {'B': 'B', 'S': 'B', 'U': 'B', 'I': 'I', 'E': 'I', 'L': 'I'}
_OUTSIDE = 'O'


class Sentence(NamedTuple):
  """A sentence, or another unit between blank lines.

  Attributes:
    tags: the tags of its words; None if they are not read.
  """

  document: int
  line: int
  words: list[str]
  tags: list[str] | None


@dataclasses.dataclass(frozen=True)
class Words(splits.Content):
  """The sentences of a file, or some of them, in `units`, and all its lines."""

  lines: Sequence[str] = ()

  def list_groups(self):
    return [x.document for x in self.units]

  def list_keys(self):
    return [(x.line, tuple(x.words)) for x in self.units]

  def list_tagged(self, tags: Iterable[str]) -> list[str]:
    """Returns the lines with tags: `word<tab>tag` for each word.

    All other lines, blank or -DOCSTART-, are unchanged, so that documents and
    line numbers stay the same.
    """
    found, given = [line.strip() for line in self.lines], iter(tags)
    for sentence in self.units:
      # A sentence's lines are contiguous.
      for i, word in enumerate(sentence.words, sentence.line - 1):
        found[i] = f'{word}\t{next(given)}'
    return found


def read(
  path: str, word: int = 0, tag: int | None = -1, needs_tag: bool = True
) -> Words:
  """Reads the sentences of a file, maybe compressed.

  A document begins at a line whose word is -DOCSTART-, or after two blank
  lines. In a file without either, each sentence is a document.

  Args:
    word: column of the words, from 0; negative numbers count from the end.
    tag: column of the tags; None reads none.
    needs_tag: whether a file's only column holds the tags.
  """
  lines = table_files.read_text(path).split('\n')
  found: list[Sentence] = []
  document = blanks = 0
  marked = False  # whether there is a line -DOCSTART-
  words, tags, first = [], [], 0
  top = None  # (its number, its columns) of the first line with a word
  for number, line in enumerate([*lines, ''], 1):
    columns = _split(line)
    start = bool(columns) and columns[0] == _START
    if columns and not start:
      if top is None:
        top = number, len(columns)
        if len(columns) < 2 and not needs_tag:
          tag = None
      _check_width(path, number, columns, *top)
      document += blanks > 1 and bool(found)
      blanks = 0
      first = first or number
      words.append(_get(path, number, columns, word))
      if tag is not None:
        tags.append(_check_tag(path, number, _get(path, number, columns, tag)))
      continue
    if words:
      kept = None if tag is None else to_bio(tags)
      found.append(Sentence(document, first, words, kept))
      words, tags, first = [], [], 0
    blanks = 0 if start else blanks + 1
    document += start and bool(found)
    marked |= start
  if not found:
    raise errors.UserError(f'{path} has no words; give a file that has some.')
  if not (marked or document):
    found = [x._replace(document=i) for i, x in enumerate(found)]
  return Words(path, found, lines=lines)


def parse_column(field: str, given: str, default: int) -> int:
  """Returns the number of a column of `field`, from 0, or from -1 backwards."""
  try:
    return int(given) if given else default
  except ValueError:
    raise errors.UserError(
      f'{field}={given!r} is not the number of a column, from 0, or from -1 '
      'backwards.'
    ) from None


def _split(line: str) -> list[str]:
  if not line.strip():
    return []
  if '\t' in line:
    return [column.strip() for column in line.split('\t')]
  return line.split()


def _check_width(path, number, columns, top, width):
  if len(columns) != width:
    raise errors.at_line(
      path,
      number,
      f'has {errors.count(len(columns), "column")}, line {top} has {width}; give '
      'all lines equally many.',
    )


def _get(path, number, columns, index) -> str:
  if not -len(columns) <= index < len(columns) or not columns[index]:
    raise errors.at_line(
      path,
      number,
      f'has {errors.count(len(columns), "column")}, none with number {index}; '
      'correct that line, or the number of the column.',
    )
  return columns[index]


def _check_tag(path, number, tag) -> str:
  prefix, dash, kind = tag.partition('-')
  if tag != _OUTSIDE and not (prefix in _BEGIN and dash and kind):
    raise errors.at_line(
      path,
      number,
      f'has the tag {tag!r}, which is neither O nor like B-PER (IOB1, BIO or '
      'BIOES); correct that line, or the column of the tags.',
    )
  return tag


def to_bio(tags: Sequence[str]) -> list[str]:
  """Returns tags of IOB1, BIO or BIOES as BIO.

  An entity begins at B-, S- and U-, after E-, S-, L- and U-, and at a tag of
  another kind than the tag before, as in IOB1 and in conlleval.

  >>> to_bio(['I-PER', 'I-PER', 'B-PER', 'I-LOC', 'O', 'S-LOC', 'E-LOC'])
  ['B-PER', 'I-PER', 'B-PER', 'B-LOC', 'O', 'B-LOC', 'B-LOC']
  """
  found, before = [], _OUTSIDE
  for tag in tags:
    prefix, _, kind = tag.partition('-')
    if tag != _OUTSIDE:
      other = before.partition('-')[2] != kind
      begins = _BEGIN[prefix] == 'B' or other or before[0] in 'ESLU'
      tag = f'{"B" if begins else "I"}-{kind}'
    found.append(tag)
    before = f'{prefix}-{kind}' if kind else _OUTSIDE
  return found
