"""Decides what kind of file a path is, and refuses what is not text."""

import collections
import re
import shlex

from bert_jax import errors
from bert_jax.corpus import clean, formats, mediawiki, text_files

# What `recognise` returns; LINES have an object each.
TEXT, PAGES, WIKITEXT, DUMP, LINES, JSON = range(6)

_BLANK = b'\xef\xbb\xbf \t\r\n'  # with a byte order mark
_SAMPLE = 1 << 14  # bytes to judge an encoding by
_MOST_BAD = 0.05  # of the bytes; prose in CP1252 has less
_FEW_BAD = 8  # bytes, which a short file may have
_ROWS = 10  # of a table without a name that says so
_FIRST = 16  # bytes; no text in UTF-8 has a zero among them

_UNPACK = 'unpack it, and name the files in it'
_EXTRACT = 'save its text as plain text or lines of JSON'
_PULL = 'get the file that it stands for by: git lfs pull'
_OFFICE = 'an Office document, such as .docx'
_BEGINNINGS = [
  (re.compile(pattern, re.S), what, advice)
  for pattern, what, advice in (
    (rb'PK\x03\x04.{26}(word|xl|ppt|_rels|docProps|\[Con)', _OFFICE, _EXTRACT),
    (rb'PK\x03\x04.{26}mimetypeapplication/vnd', _OFFICE, _EXTRACT),
    (rb'PK\x03\x04.{26}mimetypeapplication/epub', 'an EPUB book', _EXTRACT),
    (rb'\xd0\xcf\x11\xe0\xa1\xb1|\{\\rtf', _OFFICE, _EXTRACT),
    (rb'PK(\x03\x04|\x05\x06|\x07\x08)', 'a zip archive', _UNPACK),
    (rb'Rar!\x1a', 'a RAR archive', _UNPACK),
    (rb'7z\xbc\xaf\x27\x1c', 'a 7z archive', _UNPACK),
    (rb'.{257}ustar[\0 ]', 'a tar archive', _UNPACK),
    (rb'PAR1', 'a Parquet file', _EXTRACT),
    (rb'ARROW1|FEA1|\xff{4}..\0\0', 'an Arrow or Feather file', _EXTRACT),
    (rb'SQLite format 3\0', 'an SQLite database', _EXTRACT),
    (rb'\x89HDF\r\n|\x93NUMPY|\x80[\x02-\x05]', 'an array or pickle', _EXTRACT),
    (rb'%PDF-|%!PS-', 'a PDF or PostScript', _EXTRACT),
    (rb"[\[(\s]*\{'[^'\n]+':\s", 'Python, not JSON', _EXTRACT),
    (rb'version https://git-lfs', 'a pointer of git-lfs', _PULL),
    (rb'<\?xml\b|<[\w:.-]+\s[^<>]*\bxmlns\b', 'XML', _EXTRACT),
    (rb'(?i)(<!--(?>.*?-->)\s*)*+<(!doctype|html|head|body|meta|title)\b', 'HTML', _EXTRACT),
    (rb'\[[\s\[]*"([^"\\\n]|\\.)*+"\s*([,\]]\s*["\[\d]|\]\s*\Z)', 'JSON without objects', _EXTRACT),
  )
]  # fmt: skip
_TABLE = 'a table (CSV or TSV)', _EXTRACT
_EXTENSIONS = {
  '.xml': ('XML', _EXTRACT),
  **dict.fromkeys(('.csv', '.tsv'), _TABLE),
  **dict.fromkeys(('.htm', '.html', '.xhtml'), ('HTML', _EXTRACT)),
  **dict.fromkeys(('.doc', '.docx', '.pdf'), (_OFFICE + ' or PDF', _EXTRACT)),
  **dict.fromkeys(('.tar', '.tgz'), ('a tar archive', _UNPACK)),
}
_JSON = re.compile(
  rb'(\[\s*)?\{\s*("([^"\\\n]|\\.)*+"\s*:|\}\s*[\[{,\]]|\}\s*\Z)'
)
_LINE = re.compile(rb'\{([^\n]*\}[ \t\r]*(\n|\Z)|[^\n]*\Z)')


def recognise(path: str, head: bytes) -> int:
  """Returns what kind of text a file holds, such as `TEXT`.

  It is decided by the first bytes, decompressed (`head`), then by what they
  spell, then by the extension.

  Raises:
    errors.UserError: if it holds something else.
  """
  if mediawiki.is_dump(head):
    return DUMP
  refuse_not_text(path, head)
  extension = text_files.get_extension(path)
  if extension in _EXTENSIONS:
    _refuse(path, *_EXTENSIONS[extension])
  beginning = head.lstrip(_BLANK)
  if _JSON.match(beginning):
    return LINES if _LINE.match(beginning) else JSON
  if extension in ('.jsonl', '.ndjson', '.json'):
    return JSON if extension == '.json' else LINES
  if formats.is_wiki(head):
    return PAGES
  if formats.is_wikitext(head):
    return WIKITEXT
  if _is_table(head):
    _refuse(path, *_TABLE)
  return TEXT


def _is_table(head: bytes) -> bool:
  """Returns whether all lines, but comments, have equally many inner tabs."""
  lines = [x.lstrip(_BLANK) for x in head.split(b'\n')[:-1]]
  counts = [x.count(b'\t') for x in lines if x and not x.startswith(b'#')]
  return len(counts) >= _ROWS and min(counts) == max(counts) > 0


def refuse_not_text(path: str, head: bytes):
  """Raises errors.UserError if a file's first bytes are not text in UTF-8."""
  text_files.refuse_utf16(path, head)
  beginning = head.lstrip(_BLANK)
  for pattern, what, advice in _BEGINNINGS:
    if pattern.match(beginning):
      _refuse(path, what, advice)
  counts: collections.Counter[str] = collections.Counter()
  sample = head[:_SAMPLE]
  clean.decode(sample, counts)
  bad = len(sample) if b'\0' in head[:_FIRST] else counts.total()
  refuse_bad_bytes(path, bad, len(sample), head)


def refuse_bad_bytes(path: str, bad: int, size: int, head: bytes):
  """Raises errors.UserError if too many of `size` bytes are not text in UTF-8.

  Args:
    bad: how many are control characters or invalid.
    head: the first bytes, whose zeros may show the encoding.
  """
  if bad <= max(_MOST_BAD * size, _FEW_BAD):
    return
  zeros = [head[k::4].count(0) for k in range(4)]
  even, odd, most = zeros[0] + zeros[2], zeros[1] + zeros[3], len(head) / 4.5
  few = len(head) // 100  # zeros, as in what is compressed
  guess = 'UTF-16LE' if odd > 8 * even + few else ''
  guess = 'UTF-16BE' if even > 8 * odd + few else guess
  if min(zeros[2:]) > most > 2 * zeros[0]:
    guess = 'UTF-32LE'
  elif min(zeros[:2]) > most > 2 * zeros[3]:
    guess = 'UTF-32BE'
  advice = errors.advise_converting(path)
  if guess:
    advice = f'convert it with: iconv -f {guess} -t UTF-8 {shlex.quote(path)}'
  raise errors.UserError(
    f'{path} is not text in UTF-8; leave it out if it is no text, or {advice}.'
  )


def _refuse(path, what, advice):
  raise errors.UserError(f'{path} is {what}; {advice}.')
