"""Schemes of tags that say where entities begin and end; they become BIO.

Known are IOB1, IOB2 (BIO), IOE1, IOE2, BIOES, BILOU, BMES and BMEWO, also without
kinds (B, I, O) or with the kind in front (PER-B), and kinds alone (PER, O). Other
tags, such as parts of speech, have no scheme.
"""

import re
from collections.abc import Sequence

OUTSIDE = 'O'
LETTERS = 'BIMELUSW'  # begin, inside, middle, end, last, unit, single, whole
_LETTER, _KIND = f'(?P<letter>[{LETTERS}])', '(?P<kind>.+)'
_FORMS = f'{_LETTER}-{_KIND}', f'{_LETTER}_{_KIND}', f'{_KIND}[-_]{_LETTER}'
_NO_KIND = f'{_LETTER}(?P<kind>)'
# Parts of speech of tweets include O, too, but are single characters.
_KIND_ALONE = '(?P<letter>)(?P<kind>..+)'


def parse(tags: set[str]) -> dict[str, str] | None:
  """Returns {tag: it as B-PER or B} of a file's tags; None without a scheme.

  Where some tags are like B-PER or I-PER, others that are not are left out.

  >>> parse({'O', 'PER_B'}), parse({'O', 'PER'}), parse({'NOUN', 'VERB'})
  ({'O': 'O', 'PER_B': 'B-PER'}, {'O': 'O', 'PER': 'I-PER'}, None)
  """
  outside = {x: OUTSIDE for x in tags & {OUTSIDE, '-'}}
  inside = sorted(tags - outside.keys())
  sure = any(x.startswith(('B-', 'I-')) for x in inside)
  for form in (*_FORMS, _NO_KIND, *([_KIND_ALONE] if OUTSIDE in tags else [])):
    parsed = {x: y for x in inside if (y := re.fullmatch(form, x))}
    if len(parsed) == len(inside) or sure:
      return outside | {
        x: '-'.join(filter(None, (y['letter'] or 'I', y['kind'])))
        for x, y in parsed.items()
      }
  return None


def to_bio(tags: Sequence[str]) -> list[str]:
  """Returns a sentence's tags, as from `parse`, as BIO.

  An entity begins at B-, S-, U- and W-, after E-, L-, S-, U- and W-, and at a tag
  of another kind than the tag before, as in IOB1 and in conlleval.

  >>> to_bio(['I-PER', 'I-PER', 'B-PER', 'I-LOC', 'O', 'S-LOC', 'E-LOC'])
  ['B-PER', 'I-PER', 'B-PER', 'B-LOC', 'O', 'B-LOC', 'B-LOC']
  """
  made, before = [], OUTSIDE
  for tag in tags:
    if tag != OUTSIDE:
      other = before == OUTSIDE or before[1:] != tag[1:]
      begins = other or tag[0] in 'BSUW' or before[0] in 'ELSUW'
      made.append('IB'[begins] + tag[1:])
    else:
      made.append(tag)
    before = tag
  return made
