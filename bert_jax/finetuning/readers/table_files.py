"""Reads rows with named columns from TSV, CSV and JSONL files.

A TSV file is taken as it is: a quotation mark is a character like any other,
as in GLUE. A CSV file quotes fields that hold commas, quotes or line feeds.
In both, empty lines are none, unless there is but one column: then each is a row
without text. Each line of a JSONL file is an object. Files may be compressed. A
split of a dataset of TFDS is like a file, see `tfds_table`.
"""

import codecs
import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax import errors
from bert_jax.corpus import text_files, tfds_text
from bert_jax.finetuning.readers import tfds_table

EXTENSIONS = ('.tsv', '.csv', '.jsonl')


class Table(NamedTuple):
  """The rows of a file.

  Attributes:
    path: the file.
    names: its columns.
    rows: (line number, {column: value}); values of JSONL may be any scalar.
    ragged: numbers of lines that were left out, having too few columns.
  """

  path: str
  names: tuple[str, ...]
  rows: list[tuple[int, dict]]
  ragged: list[int]


def read(
  path: str, headless: Sequence[str] = (), ragged: bool = False
) -> Table:
  """Reads a file.

  Args:
    path: ends in one of `EXTENSIONS`, maybe followed by that of a compression;
      or tfds:NAME/CONFIG:SPLIT.
    headless: columns of a TSV file without a header.
    ragged: whether to leave out lines of a TSV file with too few columns, and
      columns beyond the header's; otherwise they are errors.

  Raises:
    errors.UserError: if the file cannot be read, is not UTF-8 or malformed.
  """
  if path.startswith(tfds_text.PREFIX):
    return Table(path, *tfds_table.read(path), [])
  kind = text_files.get_extension(path)
  if kind not in EXTENSIONS:
    raise errors.UserError(
      f'{path} does not end in {", ".join(EXTENSIONS)}; give a file that does.'
    )
  text = read_text(path)
  skipped: list[int] = []
  if kind == '.tsv':
    lines = _split_tsv(path, text, headless, ragged, skipped)
  elif kind == '.csv':
    lines = _split_csv(path, text)
  else:
    lines = _split_jsonl(path, text)
  rows = list(lines)
  if not rows:
    raise errors.UserError(f'{path} has no rows; give a file that has some.')
  return Table(path, tuple(rows[0][1]), rows, skipped)


def read_text(path: str) -> str:
  """Returns the text of a UTF-8 file, maybe compressed.

  Raises:
    errors.UserError: if it cannot be read or is not UTF-8.
  """
  try:
    with text_files.open_text(path) as file:
      content = file.read()
  except text_files.DAMAGED as error:
    if isinstance(error, errors.UserError):
      raise
    raise errors.UserError(
      f'cannot read {path}: {errors.first_line(error)}; is this the right path?'
    ) from error
  try:
    return content.decode('utf-8-sig')
  except UnicodeDecodeError as error:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
      raise errors.UserError(
        f'{path} is UTF-16; convert it, for example with: '
        f'iconv -f UTF-16 -t UTF-8 {path}'
      ) from None
    line = content.count(b'\n', 0, error.start) + 1
    raise errors.UserError(
      f'{path} is not UTF-8 in line {line} (byte 0x{content[error.start]:02x}); '
      'correct that line or, if the whole file has another encoding, convert it, '
      f'for example with: iconv -f ISO-8859-1 -t UTF-8 {path}'
    ) from None


def _split_tsv(path, text, headless, ragged, skipped) -> Iterator:
  # Not splitlines(), which also splits at U+2028 and others inside of texts.
  lines = text.removesuffix('\n').split('\n')
  names = list(headless)
  for number, line in enumerate(lines, 1):
    values = line.removesuffix('\r').split('\t')
    if not names:
      if values != ['']:
        names = values
        _check_names(path, number, names)
      continue
    if values == [''] and len(names) > 1:
      continue
    if ragged and len(values) < len(names):
      skipped.append(number)
    elif not ragged and len(values) != len(names):
      _refuse_ragged(path, number, len(values), names)
    else:
      yield number, dict(zip(names, values, strict=False))


def _split_csv(path, text) -> Iterator:
  reader = csv.reader(io.StringIO(text, newline=''), strict=True)
  csv.field_size_limit(2**31 - 1)  # of characters; by default 131,072
  names: list[str] = []
  first = 1  # the line at which a row begins
  while True:
    try:
      values = next(reader, None)
    except csv.Error as error:
      raise errors.UserError(
        f'{path} is no CSV at line {reader.line_num} ({error}); fields with a '
        'comma, a quote or a line feed need quotes around them, and quotes in '
        'them are doubled.'
      ) from None
    if values is None:
      return
    if not names:
      names = values
      _check_names(path, first, names)
    elif values or len(names) == 1:  # as in a TSV file
      values = values or ['']
      if len(values) != len(names):
        _refuse_ragged(path, first, len(values), names)
      yield first, dict(zip(names, values, strict=True))
    first = reader.line_num + 1


def _split_jsonl(path, text) -> Iterator:
  for number, line in enumerate(text.split('\n'), 1):
    if not line.strip():
      continue
    try:
      row = json.loads(line)
    except (ValueError, RecursionError) as error:
      raise errors.UserError(
        f'{path}: line {number} is not JSON ({error}); give one object per line.'
      ) from None
    if not isinstance(row, dict):
      raise errors.UserError(
        f'{path}: line {number} holds a {type(row).__name__}; give one object '
        'per line.'
      )
    yield number, row


def _check_names(path, number, names):
  twice = sorted({name for name in names if name and names.count(name) > 1})
  if twice:
    raise errors.UserError(
      f'{path}: line {number} names several columns {twice[0]!r}; give each '
      'column its own name.'
    )


def _refuse_ragged(path, number, got, names):
  raise errors.UserError(
    f'{path}: line {number} has {got} columns, the header has {len(names)} '
    f'({errors.listing(names)}); correct that line.'
  )
