"""Cleans text and counts what is removed or replaced.

Counters are 'invalid_utf8', sequences of bytes (or lone surrogates) replaced by
U+FFFD, and 'control_characters', removed. Tabs become spaces.
"""

import collections
import re

from bert_jax.tokenization import basic_tokenizer

_TABLE = bytes.maketrans(b'\t', b' ')
_CONTROLS = bytes(c for c in [*range(32), 127] if c not in b'\t\n\v\f\r')
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


def break_lines(text: str) -> list[str]:
  """Returns the lines of a text, whatever ends them.

  Form feeds and vertical tabs do, too, but make no blank line beside another end.
  """
  lines = text.removesuffix('\n').split('\n')
  if not has_rare_end(text):
    return lines
  if '\f' in text or '\v' in text:
    lines = [line.strip('\v\f') for line in lines]
  return '\n'.join(lines).splitlines() or ['']


def has_rare_end(text: str) -> bool:
  """Returns whether a line ends within a text, but not by a line feed."""
  if text.isascii():
    return '\r' in text or '\f' in text or '\v' in text
  return any(end in text for end in '\r\f\v\x85\u2028\u2029')


def is_blank(line: str) -> bool:
  """Returns whether a cleaned line holds nothing that the tokenizer keeps."""
  line = line.strip()
  if not line or line[0].isascii():  # nearly all
    return not line
  return not line.translate(basic_tokenizer.CLEANED).strip()


def clean(text: str, counts: collections.Counter) -> str:
  """Cleans text that a parser returned; its ends of lines stay."""
  try:
    raw = text.encode()
  except UnicodeEncodeError:
    text, count = _SURROGATES.subn(_REPLACEMENT, text)
    counts['invalid_utf8'] += count
    raw = text.encode()
  return decode(raw, counts)
