"""What a label is: the one place that decides which values are one."""

import functools
import re
import unicodedata
from collections.abc import Collection
from typing import Any

from bert_jax import errors

# What pandas reads as missing, and what R, databases and spreadsheets write.
_MISSING = {
  *('', 'nan', 'NaN', '-nan', '-NaN', 'null', 'NULL', 'None', r'\N'),
  *('NA', 'N/A', 'n/a', '<NA>', '#N/A', '#NA', 'Null', 'NAN', 'NaT'),
}


def read(path: str, line: int, value: Any) -> str:
  """Returns a label as a text, the same for equal ones; '' if it is missing."""
  label = _name('' if value is None else str(value))
  if label is None:
    problem = f'has the label {str(value)[:60]!r}, a list or an object'
    advice = 'give one, or set finetuning.multi_label=True to learn several.'
    raise errors.at_line(path, line, f'{problem}; {advice}')
  return label


@functools.lru_cache
def _name(text: str) -> str | None:
  text = text.strip()
  if text in _MISSING:
    return ''
  if text[0] + text[-1] in ('[]', '{}'):
    return None
  if text in ('True', 'False', 'TRUE', 'FALSE'):  # true and false in JSON
    return text.lower()
  whole = re.fullmatch(r'(-?[0-9]+)\.0+', text)
  return whole[1] if whole else unicodedata.normalize('NFC', text)


def find_mark(labels: Collection[str]) -> str | None:
  """Returns which label of a file says that a row has none, if one does.

  In SNLI it is '-'; on Hugging Face's hub, -1 beside 0, 1, 2 and so on, or alone.
  """
  if '-' in labels:
    return None if '+' in labels else '-'
  others = set(labels) - {'-1'}
  numbered = others == set(map(str, range(len(others))))
  two = len(others) in (1, 2)  # -1 may be the third
  return '-1' if '-1' in labels and numbered and not two else None
