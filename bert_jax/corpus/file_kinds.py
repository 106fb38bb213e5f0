"""Decides what kind of file a path is, and refuses what is not text."""

import codecs
import collections
import re

from bert_jax import errors
from bert_jax.corpus import clean, formats, mediawiki, text_files

# What `recognise` returns; LINES have an object each.
TEXT, PAGES, WIKITEXT, DUMP, LINES, JSON, PARQUET, ARROW = range(8)
INDIVISIBLE = DUMP, JSON, ARROW

_BLANK = b'\xef\xbb\xbf \t\r\n'  # with a byte order mark
_MOST_BAD = 0.05  # of the bytes; prose in CP1252 has less
_FEW_BAD = 8  # bytes, which a short file may have
_ROWS = 10  # of a table without a name that says so

_UNPACK = 'unpack it, and name the files in it'
_EXTRACT = 'save its text as plain text or lines of JSON'
_PULL = 'get the file that it stands for by: git lfs pull'
_EITHER = 'unpack it, or save its text as plain text or lines of JSON'
_TABLE = 'a table (CSV or TSV)', _EXTRACT
_HTML, _XML = ('HTML', _EXTRACT), ('XML', _EXTRACT)
_TAR = 'a tar archive', _UNPACK
_OFFICE = 'a document such as .docx or .rtf', _EXTRACT
# First bytes, or the extension, of what holds text but is none.
_BEGINNINGS = {
  rb'PK[\x03\x05\x07]': ('a zip archive or a document such as .docx', _EITHER),
  rb'Rar!\x1a|7z\xbc\xaf\x27\x1c': ('a RAR or 7z archive', _UNPACK),
  rb'.{257}ustar[\0 ]': _TAR,
  rb'\xd0\xcf\x11\xe0\xa1\xb1|\{\\rtf': _OFFICE,
  rb'%PDF-|%!PS-': ('a PDF or PostScript', _EXTRACT),
  rb'FEA1': ('a Feather file of version 1', _EXTRACT),
  rb"[\[(\s]*\{'[^'\n]+':\s": ('Python, not JSON', _EXTRACT),
  rb'version https://git-lfs': ('a pointer of git-lfs', _PULL),
  rb'<\?xml\b|<[\w:.-]+\s[^<>]*\bxmlns\b': _XML,
  rb'(?i)(<!--(?>.*?-->)\s*)*+<(!doctype|html|head|body|meta|title)\b': _HTML,
  rb'\[[\s\[]*"([^"\\\n]|\\.)*+"\s*([,\]]\s*["\[\d]|\]\s*\Z)': (
    'JSON without objects',
    _EXTRACT,
  ),
}
_EXTENSIONS = {
  '.xml': _XML,
  **dict.fromkeys(('.csv', '.tsv'), _TABLE),
  **dict.fromkeys(('.htm', '.html', '.xhtml', '.mht', '.mhtml'), _HTML),
  **dict.fromkeys(('.doc', '.docx', '.pdf'), _OFFICE),
  **dict.fromkeys(('.tar', '.tgz'), _TAR),
}
_JSON = re.compile(
  rb'(\[\s*)?\{\s*("([^"\\\n]|\\.)*+"\s*:|\}\s*[\[{,\]]|\}\s*\Z)'
)
_TALK = re.compile(rb'[^\t]*[:>\])]\t')
_LINE = re.compile(rb'\{([^\n]*\}[ \t\r]*(\n|\Z)|[^\n]*\Z)')


def recognise(path: str, head: bytes) -> int:
  """Returns what kind of text a file holds, such as `TEXT`; refuses what is none.

  It is decided by the first bytes, decompressed (`head`), then by the extension.
  """
  if mediawiki.is_dump(head):
    return DUMP
  if head.startswith(b'PAR1'):
    return PARQUET
  if re.match(rb'ARROW1|\xff{4}..\0\0', head, re.S):  # a file, or a stream
    return ARROW
  text_files.refuse_utf16(path, head)
  beginning = head.lstrip(_BLANK)
  for pattern, refused in _BEGINNINGS.items():
    if re.match(pattern, beginning, re.S):
      _refuse(path, refused)
  counts: collections.Counter[str] = collections.Counter()
  clean.decode(head, counts)
  refuse_bad_bytes(path, counts.total(), len(head))
  extension = text_files.get_extension(path)
  if extension in _EXTENSIONS:
    _refuse(path, _EXTENSIONS[extension])
  if _JSON.match(beginning):
    return LINES if _LINE.match(beginning) else JSON
  if extension in ('.jsonl', '.ndjson', '.json'):
    return JSON if extension == '.json' else LINES
  # Leading blank lines have no meaning in any of the formats.
  line = re.search(rb'.*[^\s\xef\xbb\xbf].*', head + b'\n.')[0]
  if formats.PAGE.match(line := line.removeprefix(codecs.BOM_UTF8)):
    return PAGES
  if formats.TITLE.match(line):
    return WIKITEXT
  if _is_table(head):
    _refuse(path, _TABLE)
  return TEXT


def _is_table(head: bytes) -> bool:
  """Returns whether all lines, but comments, have equally many inner tabs.

  Those of a talk are text, which begin with a speaker or a time: 'Ann:' or [9:30].
  """
  lines = [x.lstrip(_BLANK) for x in head.split(b'\n')[:-1]]
  rows = [x for x in lines if x and not x.startswith(b'#')]
  counts = {x.count(b'\t') for x in rows}
  is_table = len(rows) >= _ROWS and len(counts) == 1 and counts != {0}
  return is_table and not all(map(_TALK.match, rows))


def refuse_bad_bytes(path: str, bad: int, size: int):
  """Raises errors.UserError if too many bytes, `bad` of `size`, are not UTF-8."""
  if bad > max(_MOST_BAD * size, _FEW_BAD):
    raise errors.UserError(
      f'{path} is not text in UTF-8; leave it out if it is no text, or '
      f'{errors.advise_converting(path)}.'
    )


def _refuse(path, kind):
  what, advice = kind
  raise errors.UserError(f'{path} is {what}; {advice}.')
