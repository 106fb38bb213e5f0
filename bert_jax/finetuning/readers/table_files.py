"""Reads rows with named columns from TSV, CSV and JSONL files; writes tables.

In TSV a quotation mark is a character like any other, as in GLUE; CSV quotes
fields. In both, empty lines are left out, unless there is only one column: then
each is a row without text. JSON is an object per line or one list of objects,
which are counted as lines; what is in an object inside has a name such as
labels.binary.
"""

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

from bert_jax import errors
from bert_jax.corpus import text_files

EXTENSIONS = ('.tsv', '.csv', '.jsonl')
# Extensions of further files, and which of these they are read like.
_LIKE = {'.txt': '.tsv', '.json': '.jsonl', '.ndjson': '.jsonl'}
READ = (*EXTENSIONS, *_LIKE)
_BREAKS = '\t', '\n', '\r'  # which a field of a TSV file cannot hold


class Table(NamedTuple):
  """The rows of a file."""

  path: str
  names: tuple[str, ...]
  rows: list[tuple[int, dict]]  # (line number, {column: value})
  ragged: list[int]  # lines that were left out: too few columns


def read(
  path: str, headless: Sequence[str] = (), ragged: bool = False
) -> Table:
  """Reads a file, maybe compressed.

  `headless` are the columns of a TSV file whose first line does not name them;
  `ragged` leaves out its lines with too few columns, and columns beyond the header's,
  which are errors otherwise.
  """
  extension = text_files.get_extension(path)
  kind = _LIKE.get(extension, extension)
  if kind not in EXTENSIONS:
    raise errors.UserError(
      f'{path} does not end in {", ".join(READ)}; save a sheet (Excel) as CSV '
      'and other tables (Parquet, Arrow) as JSONL, in UTF-8.'
    )
  # Of CSV, also lines that end in a carriage return alone.
  lines = _read_lines(path, '' if kind == '.csv' else '\n')
  skipped: list[int] = []
  if kind == '.tsv':
    values = _split_tsv(lines)
    named = _name_values(path, values, headless, ragged, skipped)
  elif kind == '.csv':
    named = _name_values(path, _split_csv(path, lines))
  else:
    named = _split_json(path, lines)
  rows = list(named)
  if not rows:
    raise errors.UserError(f'{path} has no rows; give a file that has some.')
  # Objects of JSONL may lack fields that others have.
  names = rows if kind == '.jsonl' else rows[:1]
  names = dict.fromkeys(name for _, row in names for name in row)
  return Table(path, tuple(names), rows, skipped)


def describe_names(names: Sequence[str]) -> str:
  return errors.listing([x if len(x) < 40 else f'{x[:36]}...' for x in names])


def read_text(path: str) -> str:
  """Returns the text of a UTF-8 file, maybe compressed."""
  return ''.join(_read_lines(path, ''))


def _read_lines(path, newline: str) -> Iterator[str]:
  advice = 'is this the right path?'
  with errors.explaining(f'cannot read {path}', advice, text_files.DAMAGE):
    try:
      with text_files.open_text(path) as file:
        text = io.TextIOWrapper(file, 'utf-8-sig', newline=newline)
        yield from text
    except UnicodeDecodeError:
      _refuse_encoding(path)
    except OSError as error:
      if not text_files.is_damage(error, path):
        raise
      raise errors.UserError(f'{errors.first_line(error)}; {advice}') from error


def _refuse_encoding(path):
  with text_files.open_text(path) as file:
    for number, line in enumerate(file, 1):
      if number == 1:
        text_files.refuse_utf16(path, line)
      try:
        line.decode()
      except UnicodeDecodeError as error:
        raise errors.UserError(
          f'{path} is not UTF-8 in line {number} (byte '
          f'0x{line[error.start]:02x}); correct that line or, if the whole file '
          f'has another encoding, {errors.advise_converting(path)}.'
        ) from None


def _split_tsv(lines) -> Iterator[tuple[int, list[str]]]:
  for number, line in enumerate(lines, 1):
    line = line.removesuffix('\n').removesuffix('\r')
    yield number, line.split('\t') if line else []


def _split_csv(path, lines) -> Iterator[tuple[int, list[str]]]:
  reader = csv.reader(lines, strict=True)
  csv.field_size_limit(2**31 - 1)  # of characters; by default 131,072
  first = 1  # the line at which a row begins
  try:
    for values in reader:
      yield first, values
      first = reader.line_num + 1
  except csv.Error as error:
    raise errors.UserError(
      f'{path} is not CSV at line {reader.line_num} ({error}); fields with a '
      'comma, a quote or a line feed need quotes around them, and quotes in '
      'them are doubled; the separator is the comma.'
    ) from None


def _name_values(
  path, rows, headless=(), ragged=False, skipped=None
) -> Iterator[tuple[int, dict[str, str]]]:
  names = list(headless)
  for number, values in rows:
    if not names or (number == 1 and set(headless) <= set(values)):
      names = [x.strip() for x in values]
      if twice := sorted({x for x in names if x and names.count(x) > 1}):
        problem = f'names several columns {twice[0]!r}; give each its own name.'
        raise errors.at_line(path, number, problem)
    elif values or len(names) == 1:
      values = values or ['']
      if ragged and len(values) < len(names):
        skipped.append(number)
        continue
      if not ragged and len(values) != len(names):
        count, known = errors.count(len(values), 'column'), len(names)
        problem = f'has {count}, not {known} ({describe_names(names)})'
        advice = (
          'correct that line; commas separate columns of .csv, tabs others.'
        )
        raise errors.at_line(path, number, f'{problem}; {advice}')
      yield number, dict(zip(names, values, strict=False))


def _split_json(path, lines) -> Iterator[tuple[int, dict]]:
  """Yields (number, object) of a file with one a line, or of one list."""
  first = next(lines, '')
  whole = first.lstrip().startswith('[')
  texts = [first + ''.join(lines)] if whole else itertools.chain([first], lines)
  for number, text in enumerate(texts, 1):
    if not text.strip():
      continue
    try:
      value, problem = _DECODER.decode(text), ''
    except (ValueError, RecursionError) as error:
      value, problem, whole = None, f'is not JSON ({error})', False
    for place, row in enumerate(value, 1) if whole else [(number, value)]:
      if not isinstance(row, dict):
        problem = problem or f'holds a {type(row).__name__}'
        advice = 'give one object per line, or one list of objects.'
        raise errors.at_line(path, place, f'{problem}; {advice}')
      yield place, row


def _flatten(row: dict) -> dict:
  """Returns {name: value}, what is in an object inside as 'OUTER.INNER'."""
  if dict not in map(type, row.values()):
    return row
  flat: dict = {}
  for name, x in row.items():
    inner = x.items() if isinstance(x, dict) else ()
    flat |= {f'{name}.{k}': y for k, y in inner} or {name: x}
  return flat


_DECODER = json.JSONDecoder(object_hook=_flatten)


def open_new(path: str) -> TextIO:
  r"""Opens a file to write UTF-8 to it, and "\ud83d" for half an emoji."""
  return open(
    path, 'w', encoding='utf-8', errors='backslashreplace', newline=''
  )


def write_table(path: str, rows: Iterable[Sequence], kind: str = '.tsv'):
  """Writes rows as .tsv or .csv, the first of which names the columns.

  TSV has no quotes: csv.Error is raised for a tab or a line feed.
  """
  how = {'delimiter': '\t', 'quoting': csv.QUOTE_NONE, 'quotechar': None}
  how = how if kind == '.tsv' else {}
  with open_new(path) as file:
    writer = csv.writer(file, lineterminator='\n', **how)
    quoting = csv.writer(file, lineterminator='\n', quoting=csv.QUOTE_ALL)
    for row in rows:
      # Python before 3.13 does not quote a carriage return of its own accord.
      bare = kind == '.tsv' or not any('\r' in str(x) for x in row)
      (writer if bare else quoting).writerow(row)


def fits_tsv(text: str) -> bool:
  """Returns whether a text can be a field: it has no tab and no line feed."""
  return not any(x in text for x in _BREAKS)


def format_number(value: float) -> str:
  """Returns a number in 8 digits; float32 has hardly more.

  >>> format_number(3.2e-5), format_number(0.5)
  ('3.2e-05', '0.5')
  """
  return f'{value:.8g}'
