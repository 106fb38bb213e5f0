"""Reads words with tags from CoNLL files: one word per line, blank lines.

A line has columns, split at tabs or else at ASCII blanks. Where the first column
numbers the words, they are in the second, and other lines are left out: comments,
and 1-2 and 1.1 of CoNLL-U. In other files, lines before a sentence that begin with
# and do not look like its words are comments. Schemes of tags become BIO.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_jax import errors
from bert_jax.finetuning.readers import splits, table_files

# The number of a line and its columns; flat, for Python's collector of garbage.
_Row = tuple
_Blocks = list[tuple[int, list[_Row]]]  # (document, rows)

# Schemes that say where entities begin and end: IOB1, IOB2 (BIO), IOE1, IOE2,
# BIOES, BILOU, BMES and BMEWO, also without kinds (B, I, O) or with the kind in
# front (PER-B), and kinds alone (PER, O). Others, such as parts of speech, have none.
_OUTSIDE = 'O'
_LETTERS = 'BIMELUSW'  # begin, inside, middle, end, last, unit, single, whole
_LETTER, _KIND = f'(?P<letter>[{_LETTERS}])', '(?P<kind>.+)'
_FORMS = (
  *(f'{_LETTER}-{_KIND}', f'{_LETTER}_{_KIND}', f'{_KIND}[-_]{_LETTER}'),
  f'{_LETTER}(?P<kind>)',
)
# Parts of speech of tweets include O, too, but are single characters.
_KIND_ALONE = '(?P<letter>)(?P<kind>..+)'
_START = '-DOCSTART-'
_BLANKS = re.compile(r'[ \v\f]+')
_NUMBER = re.compile('[0-9]{1,6}')
_NO_WORD = re.compile('#.*|[0-9]+[-.][0-9]+')
# What few words have: a blank inside, many characters, a stop at their end.
_SENTENCE = re.compile(
  '\\S\\s+\\S|.{25}|[\u3040-\u30ff\u3400-\u9fff]{6}|.[。！？]$'
)


class Sentence(NamedTuple):
  """A sentence, or another unit between blank lines."""

  document: int
  lines: Sequence[int]  # numbers of its words' lines
  words: list[str]
  tags: list[str] | None  # of its words, if they are read


@dataclasses.dataclass(frozen=True)
class Words(splits.Content):
  """The sentences of a file, or some of them, in `units`, and all its lines."""

  lines: Sequence[str] = ()

  def list_groups(self):
    return [x.document for x in self.units]

  def list_keys(self):
    return [(x.lines[0], tuple(x.words)) for x in self.units]

  def list_tagged(self, tags: Iterable[str]) -> list[str]:
    """Returns the lines, with `word<tab>tag` for each word; others unchanged."""
    tagged, given = [line.strip() for line in self.lines], iter(tags)
    for sentence in self.units:
      for number, word in zip(sentence.lines, sentence.words, strict=True):
        tagged[number - 1] = f'{word}\t{next(given)}'
    return tagged


class _Layout(NamedTuple):
  """Which columns of a file are read."""

  top: _Row  # its first row, whose columns all rows have
  numbered: bool  # whether the first column numbers the words
  word: int
  tag: int
  known: set[str]  # what the column of tags holds
  labelled: bool


def read(
  path: str,
  word: int | None = None,
  tag: int | None = None,
  labelled: bool | None = True,
) -> Words:
  """Reads the sentences of a file, maybe compressed.

  A document begins at a line whose word is -DOCSTART-, or after two blank
  lines. In a file without either, each sentence is a document.

  Columns of words and tags are counted from 0, or from -1 backwards. None is the
  first, or the second if the first numbers words; and the last, in CoNLL-U that of
  UPOS, in GermEval 2014 that of outer entities. `labelled` None reads tags if there
  are any.
  """
  text = table_files.read_text(path)
  lines = text.replace('\r\n', '\n').replace('\r', '\n').split('\n')
  blocks = _split_lines(lines)
  if not blocks or lines[0].startswith(('{"', '[{')):
    what = 'holds JSON' if blocks else 'has no words'
    raise errors.UserError(
      f'{path} {what}; give a file with one word per line.'
    )
  how = _find_columns(path, blocks, word, tag, labelled)
  units, left_out = _make_sentences(path, blocks, lines, how)
  texts = [text for x in units for text in x.words]
  _refuse_sentences(path, texts)
  notes = []
  if how.numbered and word is None:
    notes.append(f'words in column {how.word}')
  if how.labelled:
    units, what = _to_bio(path, units)
    notes.append(f'{what} in column {how.tag}' if how.tag != -1 else what)
  counts = left_out, sum(map(str.isspace, texts)) + texts.count('')
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


def _split_lines(lines) -> _Blocks:
  """Returns the rows between blank lines and -DOCSTART-, with their document."""
  blocks, document, blanks, starts, inside = [], 0, 0, False, False
  for number, line in enumerate(lines, 1):
    columns = _split(line)
    if not columns or columns[0] == _START:
      starts = starts or bool(columns)
      blanks = 0 if columns else blanks + 1
      inside = False
      continue
    if not inside:
      document += bool(blocks) and (starts or blanks > 1)
      blocks.append((document, []))
      blanks, starts, inside = 0, False, True
    blocks[-1][1].append((number, *columns))
  return blocks


def _split(line: str) -> tuple[str, ...]:
  """Returns the columns of a line; between tabs, a blank may be a word."""
  if not line.strip():
    return ()
  if '\t' not in line:
    return tuple(_BLANKS.split(line.strip(' \v\f')))
  if ' ' not in line:
    return tuple(line.split('\t'))
  return tuple(x.strip(' ') or x for x in line.split('\t'))


def _find_columns(path, blocks: _Blocks, word, tag, labelled) -> _Layout:
  rows = [x for _, block in blocks for x in block]
  rows = [x for x in rows if not x[1].startswith('#')] or rows
  top, width = rows[0], len(rows[0]) - 1
  # Of two columns, the first may be a word that is a number, before its tag.
  numbered = width > 1 + (labelled is True) and _are_numbered(blocks)
  column = int(numbered) if word is None else word
  if tag is None:
    tag = 3 if numbered and width == 10 else -1  # CoNLL-U, or any other file
    if numbered and width == 4 and parse_scheme({*_take(path, rows, top, 2)}):
      tag = 2  # GermEval 2014, whose last column has the inner entities
  known = {*_take(path, rows, top, tag)}
  if labelled and (column - tag) % width == 0:
    raise errors.UserError(
      f'{path}: words and tags are both in column {column} of {width}; give each '
      'word a tag behind a blank or tab, or name the columns.'
    )
  if labelled is None:
    labelled = width > 1 + numbered and known != {'_'}
  sure = labelled or numbered or word is not None or width == 1
  if not sure and parse_scheme(known - {'_'}) is None:
    _refuse_sentences(path, [' '.join(x) for _, *x in rows])
  return _Layout(top, numbered, column, tag, known, labelled)


def _are_numbered(blocks: _Blocks) -> bool:
  for _, block in blocks:
    firsts = [x[1] for x in block if not _NO_WORD.fullmatch(x[1])]
    begin = int(firsts[0]) if firsts and _NUMBER.fullmatch(firsts[0]) else 0
    if firsts != [str(begin + i) for i in range(len(firsts))]:
      return False
  return True


def _make_sentences(path, blocks: _Blocks, lines, how: _Layout):
  """Returns (sentences, number of lines that were left out)."""
  units, left_out = [], 0
  for document, block in blocks:
    if how.numbered:
      rows = [x for x in block if not _NO_WORD.fullmatch(x[1])]
    else:
      rows = block[_count_comments(block, lines, how) :]
    left_out += len(block) - len(rows)
    if rows:
      tags = None
      if how.labelled:
        tags = _take(path, rows, how.top, how.tag, blank=False)
      words = _take(path, rows, how.top, how.word)
      units.append(Sentence(document, [x[0] for x in rows], words, tags))
  # Something has to say what belongs together.
  if units[0].document == units[-1].document:
    if not any(x.startswith(_START) for x in lines):
      units = [x._replace(document=i) for i, x in enumerate(units)]
  return units, left_out


def _count_comments(block, lines, how: _Layout) -> int:
  """Returns how many lines before a sentence are comments; # may be a word."""
  for i, (number, *columns) in enumerate(block):
    if not columns[0].startswith('#'):
      return i
    tabbed = {'\t' in lines[x - 1] for x in (number, how.top[0])}
    like = len(columns) == len(how.top) - 1 and all(columns)
    if like and len(tabbed) == 1 and not re.match('#+ +[^ ]', columns[0]):
      # Without a scheme, any text is a tag.
      forms = parse_scheme(how.known | {columns[how.tag]}) or {}
      if parse_scheme(how.known) is None or columns[how.tag] in forms:
        return i
  return len(block)


def _take(path, rows, top: _Row, index, blank=True) -> list[str]:
  """Returns a column of rows, all of which have as many as the row `top`."""
  width, taken = len(top) - 1, []
  there = -width <= index < width
  for number, *columns in rows:
    if len(columns) != width:
      problem = (
        f'line {top[0]} has {width}; give each word a line, and all lines '
      )
      problem += 'equally many'
    elif not there or not (blank or columns[index].strip()):
      problem = f'none with number {index}; correct that line, or the number'
    else:
      taken.append(columns[index])
      continue
    count = errors.count(len(columns), 'column')
    raise errors.at_line(path, number, f'has {count}, {problem}.')
  return taken


def _refuse_sentences(path, words):
  words = words[:1000]  # enough to tell
  long = [x for x in words if _SENTENCE.search(x)]
  if 2 * len(long) > len(words):
    raise errors.UserError(
      f'{path}: lines look like sentences, such as {long[0][:40]!r}; give one '
      'word per line, and blank lines between sentences; if these are columns, '
      "give the number of the words', such as --text=0."
    )


def _to_bio(path, units) -> tuple[list[Sentence], str]:
  """Returns sentences with tags as BIO if they have a scheme, and its letters."""
  tags = {tag for x in units for tag in x.tags}
  forms = parse_scheme(tags)
  if forms is None:
    return units, errors.count(len(tags), 'plain tag')
  for tag in tags - forms.keys():
    [line, *_] = (x.lines[x.tags.index(tag)] for x in units if tag in x.tags)
    problem = f'has the tag {tag!r}, but others are like B-PER'
    advice = 'correct that line, or the column of the tags.'
    raise errors.at_line(path, line, f'{problem}; {advice}')
  letters = {x[0] for x in forms.values()} | {'O'}
  letters |= {'I'} if letters <= set('BIO') else set()
  scheme = ''.join(x for x in f'{_LETTERS}O' if x in letters)
  return [
    x._replace(tags=to_bio([forms[tag] for tag in x.tags])) for x in units
  ], f'{scheme} tags'


def parse_scheme(tags: set[str]) -> dict[str, str] | None:
  """Returns {tag: it as B-PER or B} of a file's tags; None without a scheme.

  Where some tags are like B-PER or I-PER, others that are not are left out.

  >>> parse_scheme({'O', 'PER_B'}), parse_scheme({'NOUN', 'VERB'})
  ({'O': 'O', 'PER_B': 'B-PER'}, None)
  """
  outside = {x: _OUTSIDE for x in tags & {_OUTSIDE, '-'}}
  inside = sorted(tags - outside.keys())
  sure = any(x.startswith(('B-', 'I-')) for x in inside)
  for form in (*_FORMS, *([_KIND_ALONE] if _OUTSIDE in tags else [])):
    parsed = {x: y for x in inside if (y := re.fullmatch(form, x))}
    if len(parsed) == len(inside) or sure:
      return outside | {
        x: '-'.join(filter(None, (y['letter'] or 'I', y['kind'])))
        for x, y in parsed.items()
      }
  return None


def to_bio(tags: Sequence[str]) -> list[str]:
  """Returns a sentence's tags, as from `parse_scheme`, as BIO.

  An entity begins at B-, S-, U- and W-, after E-, L-, S-, U- and W-, and at a tag
  of another kind than the tag before, as in IOB1 and in conlleval.

  >>> to_bio(['I-PER', 'I-PER', 'B-PER', 'I-LOC', 'O', 'S-LOC', 'E-LOC'])
  ['B-PER', 'I-PER', 'B-PER', 'B-LOC', 'O', 'B-LOC', 'B-LOC']
  """
  made, before = [], _OUTSIDE
  for tag in tags:
    if tag != _OUTSIDE:
      other = before == _OUTSIDE or before[1:] != tag[1:]
      begins = other or tag[0] in 'BSUW' or before[0] in 'ELSUW'
      made.append('IB'[begins] + tag[1:])
    else:
      made.append(tag)
    before = tag
  return made
