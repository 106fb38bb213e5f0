"""Reads words with tags from CoNLL files: one word per line, blank lines.

A line has columns, split at tabs or else at ASCII blanks. Where the first column
numbers the words, they are in the second, and other lines are left out: comments,
and 1-2 and 1.1 of CoNLL-U. In other files, lines before a sentence that begin with
# and do not look like its words are comments.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_jax import errors
from bert_jax.finetuning.readers import schemes, splits, table_files

_START = '-DOCSTART-'
_BLANKS = ' \t\v\f'
_NO_WORD = re.compile('#.*|[0-9]+[-.][0-9]+')
# What few words have: a blank inside, many characters, a stop at their end.
_SENTENCE = re.compile(
  '\\S\\s+\\S|.{25}|[\u3040-\u30ff\u3400-\u9fff]{6}|.[。！？]$'
)


class Sentence(NamedTuple):
  """A sentence, or another unit between blank lines.

  Attributes:
    lines: numbers of its words' lines.
    tags: the tags of its words; None if they are not read.
  """

  document: int
  lines: Sequence[int]
  words: list[str]
  tags: list[str] | None


@dataclasses.dataclass(frozen=True)
class Words(splits.Content):
  """The sentences of a file, or some of them, in `units`, and all its lines.

  Attributes:
    notes: how the file was read, to print.
  """

  lines: Sequence[str] = ()
  notes: Sequence[str] = ()

  def list_groups(self):
    return [x.document for x in self.units]

  def list_keys(self):
    return [(x.lines[0], tuple(x.words)) for x in self.units]

  def list_tagged(self, tags: Iterable[str]) -> list[str]:
    """Returns the lines with tags: `word<tab>tag` for each word.

    All other lines, such as comments, are unchanged, so that documents and line
    numbers stay the same.
    """
    tagged, given = [line.strip() for line in self.lines], iter(tags)
    for sentence in self.units:
      for number, word in zip(sentence.lines, sentence.words, strict=True):
        tagged[number - 1] = f'{word}\t{next(given)}'
    return tagged


class _Row(NamedTuple):
  """A line that is not blank."""

  number: int
  sentence: int
  document: int
  columns: list[str]
  tabbed: bool


def read(
  path: str,
  word: int | None = None,
  tag: int | None = None,
  labelled: bool | None = True,
) -> Words:
  """Reads the sentences of a file, maybe compressed; schemes of tags become BIO.

  A document begins at a line whose word is -DOCSTART-, or after two blank
  lines. In a file without either, each sentence is a document.

  Args:
    word: column of the words, from 0; negative numbers count from the end. None
      is the first, or the second if the first numbers them.
    tag: column of the tags; None is the last, in CoNLL-U that of UPOS, in
      GermEval 2014 that of outer entities.
    labelled: whether tags are read; None reads them if there are any.
  """
  lines = re.split('\r\n|\n|\r', table_files.read_text(path))
  rows = _split_lines(lines)
  if not rows:
    raise errors.UserError(f'{path} has no words; give a file that has some.')
  sure = [x for x in rows if not x.columns[0].startswith('#')] or rows
  top, width = sure[0], len(sure[0].columns)
  # Of two columns, the first may be a word that is a number, before its tag.
  numbered = width > 1 + (labelled is True) and _are_numbered(rows)
  column = int(numbered) if word is None else word

  def list_tags(place):
    return {_get(path, x, top, place, blank=True) for x in sure}

  if tag is None:
    tag = 3 if numbered and width == 10 else -1  # CoNLL-U, or any other file
    if numbered and width == 4 and schemes.parse(list_tags(2)):
      tag = 2  # GermEval 2014, whose last column has the inner entities
  known = list_tags(tag)
  if labelled is None:
    labelled = width > 1 + numbered and known != {'_'}
  sure_columns = labelled or numbered or word is not None or width == 1
  if not sure_columns and schemes.parse(known - {'_'}) is None:
    _refuse_sentences(path, [' '.join(x.columns) for x in rows])

  words: list[_Row] = []
  for row in rows:
    if numbered:
      is_word = not _NO_WORD.fullmatch(row.columns[0])
    else:
      inside = words and words[-1].sentence == row.sentence
      is_word = inside or not _is_comment(row, top, tag, known)
    words += [row] if is_word else []
  tags = {_get(path, x, top, tag) for x in words} if labelled else set()
  forms = schemes.parse(tags)
  # Whether anything says what belongs together.
  marked = len({x.document for x in words}) > 1 or any(
    x.startswith(_START) for x in lines
  )
  units: list[Sentence] = []
  for _, group in itertools.groupby(words, lambda x: x.sentence):
    found = list(group)
    units.append(
      Sentence(
        found[0].document if marked else len(units),
        [x.number for x in found],
        [_get(path, x, top, column, blank=True) for x in found],
        _read_tags(path, found, top, tag, forms) if labelled else None,
      )
    )
  texts = [text for x in units for text in x.words]
  _refuse_sentences(path, texts)
  notes = [f'words in column {column}'] if numbered and word is None else []
  if labelled:
    what = _name(tags, forms)
    notes.append(f'{what} in column {tag}' if tag != -1 else what)
  counts = len(rows) - len(words), sum(not x.strip() for x in texts)
  for count, what in zip(counts, ('no word', 'a blank word'), strict=True):
    notes += [f'{errors.count(count, "line")} with {what}'] if count else []
  return Words(path, units, lines=lines, notes=notes)


def parse_column(field: str, given: str) -> int | None:
  """Returns the number of a column of `field`, from 0, or from -1 backwards."""
  try:
    return int(given) if given else None
  except ValueError:
    raise errors.UserError(
      f'{field}={given!r} is not the number of a column, from 0, or from -1 '
      'backwards.'
    ) from None


def _split_lines(lines) -> list[_Row]:
  """Returns the lines that are neither blank nor -DOCSTART-."""
  rows, sentence, document, blanks, starts = [], 0, 0, 0, False
  for number, line in enumerate(lines, 1):
    columns = _split(line)
    if columns and columns[0] != _START:
      document += bool(rows) and (starts or blanks > 1)
      blanks, starts = 0, False
      rows.append(_Row(number, sentence, document, columns, '\t' in line))
    else:
      starts = starts or bool(columns)
      blanks = 0 if columns else blanks + 1
      sentence += 1
  return rows


def _split(line: str) -> list[str]:
  """Returns the columns of a line; between tabs, a blank may be a word."""
  if not line.strip():
    return []
  if '\t' in line:
    return [column.strip(' ') or column for column in line.split('\t')]
  return re.split(f'[{_BLANKS}]+', line.strip(_BLANKS))


def _are_numbered(rows) -> bool:
  """Returns whether the first column numbers the words of each sentence."""
  sentence, last = -1, -1
  for row in rows:
    first = row.columns[0]
    if not _NO_WORD.fullmatch(first):
      if not re.fullmatch('[0-9]{1,6}', first):
        return False
      if row.sentence == sentence and int(first) != last + 1:
        return False
      sentence, last = row.sentence, int(first)
  return last >= 0


def _is_comment(row, top, tag, known) -> bool:
  """Returns whether a line before a sentence is a comment; # may be a word."""
  first, columns = row.columns[0], row.columns
  if not first.startswith('#'):
    return False
  if (len(columns), row.tabbed) != (len(top.columns), top.tabbed):
    return True
  if not all(columns) or re.match('#+ +[^ ]', first):
    return True
  # Without a scheme, any text is a tag.
  forms = schemes.parse(known | {columns[tag]}) or {}
  return schemes.parse(known) is not None and columns[tag] not in forms


def _get(path, row, top, index, blank=False) -> str:
  columns, width = row.columns, len(top.columns)
  if len(columns) != width:
    problem = (
      f'line {top.number} has {width}; a line is one word, all are alike.'
    )
  elif -width <= index < width and (blank or columns[index].strip()):
    return columns[index]
  else:
    problem = f'none with number {index}; correct that line, or the number.'
  count = errors.count(len(columns), 'column')
  raise errors.at_line(path, row.number, f'has {count}, {problem}')


def _refuse_sentences(path, words):
  """Raises errors.UserError if most words look like sentences."""
  long = [x for x in words if _SENTENCE.search(x)]
  if 2 * len(long) > len(words):
    raise errors.UserError(
      f'{path}: lines look like sentences, such as {long[0][:40]!r}; give one '
      'word per line, blank lines between sentences, and the column of the words '
      'unless it is the first (--text=1).'
    )


def _read_tags(path, rows, top, tag, forms) -> list[str]:
  """Returns the tags of a sentence, as BIO if they have a scheme."""
  tags = [_get(path, x, top, tag) for x in rows]
  if forms is None:
    return tags
  for row, found in zip(rows, tags, strict=True):
    if found not in forms:
      problem = f'has the tag {found!r}, but others are like B-PER'
      advice = 'correct that line, or the column of the tags.'
      raise errors.at_line(path, row.number, f'{problem}; {advice}')
  return schemes.to_bio([forms[x] for x in tags])


def _name(tags, forms) -> str:
  """Returns the letters of a scheme, or the number of tags without one."""
  if forms is None:
    return errors.count(len(tags), 'plain tag')
  letters = {x[0] for x in forms.values()} | {'O'}
  return ''.join(x for x in f'{schemes.LETTERS}O' if x in letters) + ' tags'
