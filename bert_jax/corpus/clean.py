"""Cleans text and counts what is removed or replaced.

Counters, by name:
  invalid_utf8: sequences of bytes (or lone surrogates) replaced by U+FFFD.
  control_characters: removed; the C0 controls but white space, and DEL.

Other white space within a line, such as tabs and carriage returns, becomes
spaces.
"""

import collections
import re
from collections.abc import Mapping

from bert_jax import errors

_TO_SPACE = b'\t\x0b\x0c\r'
_TABLE = bytes.maketrans(_TO_SPACE, b' ' * len(_TO_SPACE))
_CONTROLS = bytes(
  c for c in [*range(32), 127] if c not in _TO_SPACE and c != 10
)
_SURROGATES = re.compile('[\ud800-\udfff]')
_REPLACEMENT = '\ufffd'


def decode(raw: bytes, counts: collections.Counter) -> str:
  """Decodes and cleans bytes; what is not UTF-8 becomes U+FFFD."""
  kept = raw.translate(_TABLE, _CONTROLS)
  if len(kept) != len(raw):
    counts['control_characters'] += len(raw) - len(kept)
  try:
    return kept.decode()
  except UnicodeDecodeError:
    text = kept.decode('utf-8', 'replace')
    counts['invalid_utf8'] += text.count(_REPLACEMENT) - kept.count(
      _REPLACEMENT.encode()
    )
    return text


def describe_invalid(count: int, files: Mapping[str, int]) -> str:
  """Returns a warning of text that is not UTF-8, of {path: how many} or {}."""
  where, path = '', 'FILE'
  if files:
    path = max(files, key=lambda path: files[path])
    several = f' in {len(files):,} files, most of them'
    where = f'{several if len(files) > 1 else ""} in {path},'
  return (
    f'WARNING: {count:,} sequences of bytes{where} are not UTF-8, and their '
    'characters are lost; leave out what is not text, or '
    + errors.advise_converting(path)
  )


def clean(text: str, counts: collections.Counter) -> str:
  """Cleans text that a parser returned; line feeds stay."""
  try:
    raw = text.encode()
  except UnicodeEncodeError:
    text, found = _SURROGATES.subn(_REPLACEMENT, text)
    counts['invalid_utf8'] += found
    raw = text.encode()
  return decode(raw, counts)
