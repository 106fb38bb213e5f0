"""The procedure of google-research/bert's tokenization.py, read literally.

Slow and plain on purpose: it judges bert_jax/tokenization/basic_tokenizer.py and tokenizer.py.
"""

import unicodedata


def ids(text: str, index: dict[str, int], lowercase: bool) -> list[int]:
  """Returns the ids of a text; index gives the id of each piece."""
  return [
    index[piece]
    for word in words(text, lowercase)
    for piece in pieces(word, index)
  ]


def words(text: str, lowercase: bool) -> list[str]:
  """Returns the words and punctuation marks of a text."""
  text = separate_cjk(clean(text))
  out = []
  for token in text.split():
    if lowercase:
      token = strip_accents(token.lower())
    out += split_punctuation(token)
  return ' '.join(out).split()


def clean(text: str) -> str:
  """Drops control characters and makes all white space blanks."""
  out = ''
  for c in text:
    if c == '\x00' or c == '\ufffd' or is_control(c):
      continue
    out += ' ' if is_space(c) else c
  return out


def separate_cjk(text: str) -> str:
  """Puts blanks around CJK ideographs."""
  return ''.join(f' {c} ' if is_cjk(c) else c for c in text)


def strip_accents(token: str) -> str:
  """Drops combining marks after canonical decomposition."""
  decomposed = unicodedata.normalize('NFD', token)
  return ''.join(c for c in decomposed if unicodedata.category(c) != 'Mn')


def split_punctuation(token: str) -> list[str]:
  """Makes each punctuation mark a word."""
  out = ['']
  for c in token:
    if is_punctuation(c):
      out += [c, '']
    else:
      out[-1] += c
  return [word for word in out if word]


def pieces(word: str, index: dict[str, int]) -> list[str]:
  """Takes the longest piece that fits, again and again."""
  if len(word) > 200:
    return ['[UNK]']
  out = []
  start = 0
  while start < len(word):
    prefix = '##' if start > 0 else ''
    for end in range(len(word), start, -1):
      if prefix + word[start:end] in index:
        break
    else:
      return ['[UNK]']
    out.append(prefix + word[start:end])
    start = end
  return out


def is_space(c: str) -> bool:
  return c in ' \t\n\r' or unicodedata.category(c) == 'Zs'


def is_control(c: str) -> bool:
  return c not in '\t\n\r' and unicodedata.category(c) in ('Cc', 'Cf')


def is_punctuation(c: str) -> bool:
  code = ord(c)
  return (
    33 <= code <= 47
    or 58 <= code <= 64
    or 91 <= code <= 96
    or 123 <= code <= 126
    or unicodedata.category(c)[0] == 'P'
  )


def is_cjk(c: str) -> bool:
  code = ord(c)
  return (
    0x4E00 <= code <= 0x9FFF
    or 0x3400 <= code <= 0x4DBF
    or 0x20000 <= code <= 0x2A6DF
    or 0x2A700 <= code <= 0x2B73F
    or 0x2B740 <= code <= 0x2B81F
    or 0x2B820 <= code <= 0x2CEAF
    or 0xF900 <= code <= 0xFAFF
    or 0x2F800 <= code <= 0x2FA1F
  )
