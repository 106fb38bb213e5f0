"""What labels and tags are: the one place that decides which values are one."""

import functools
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

from bert_jax import errors

# What pandas reads as missing, and what R, databases and spreadsheets write.
_MISSING = {
  *('', 'nan', 'NaN', '-nan', '-NaN', 'null', 'NULL', 'None', r'\N'),
  *('NA', 'N/A', 'n/a', '<NA>', '#N/A', '#NA', 'Null', 'NAN', 'NaT'),
}
# Schemes that say where entities begin and end: IOB1, IOB2 (BIO), IOE1, IOE2,
# BIOES, BILOU, BMES and BMEWO, also without kinds (B, I, O) or with the kind in
# front (PER-B), and kinds alone (PER, O). Others, such as parts of speech, have none.
_OUTSIDE = 'O'
LETTERS = 'BIMELUSW'  # begin, inside, middle, end, last, unit, single, whole
_LETTER, _KIND = f'(?P<letter>[{LETTERS}])', '(?P<kind>.+)'
_FORMS = (
  *(f'{_LETTER}-{_KIND}', f'{_LETTER}_{_KIND}', f'{_KIND}[-_]{_LETTER}'),
  f'{_LETTER}(?P<kind>)',
)
# Parts of speech of tweets include O, too, but are single characters.
_KIND_ALONE = '(?P<letter>)(?P<kind>..+)'


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
