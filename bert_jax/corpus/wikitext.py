"""Converts wikitext to running text, by regular expressions in linear time.

What is no text (comments, references, templates, tables, lists, headings) is
cut; links become their text. A paragraph in which markup is left, since it was
not closed, is left out.
"""

import html
import re
from collections.abc import Callable, Iterator, Set

# Marks a place where something was cut. XML cannot contain it.
_CUT = '\x02'
# Stand for markup characters in <nowiki>, which are plain text.
_SPELT = str.maketrans("<>[]{}|'", '\x03\x04\x05\x06\x07\x08\x0e\x0f')
_UNSPELT = {b: a for a, b in _SPELT.items()}
_DEEPEST = 30  # level of nested markup; what is deeper is left out

NOT_TEXT = frozenset({'media', 'file', 'image', 'category'})  # everywhere

# With their content, these are no text.
_OPAQUE = (
  'categorytree|ce|chem|gallery|graph|hiero|imagemap|includeonly|indicator|'
  'inputbox|mapframe|maplink|math|pre|ref|references|score|section|source|'
  'syntaxhighlight|table|templatedata|templatestyles|timeline|ol|ul|dl'
)
# Up to the next tag of its name, so that each is looked for once.
_OPAQUE_TAG = re.compile(
  r'<!--.*?(?:-->|\Z)|<nowiki\s*>((?:(?!<nowiki).)*?)</nowiki\s*>'
  rf'|<({_OPAQUE})\b[^<>]*(?:(?<=/)>|>(?:(?!<\2\b).)*?</\2\s*>)',
  re.I | re.S,
)
# Without what is of the same kind within: the innermost are replaced first.
_TEMPLATE = re.compile(r'{{{[^{}]*}}}|{{(?:(?!{{|}}).)*}}', re.S)
_TABLE = re.compile(
  rf'^[\s:{_CUT}]*{{\|(?:(?!^[\s:{_CUT}]*{{\|).)*?(?:^[\s:{_CUT}]*\|}}|\Z|^(?===))',
  re.M | re.S,
)
_LINK = re.compile(r'\[\[((?:(?!\[\[|\]\]).)*)\]\]', re.S)
_EXTERNAL = re.compile(r'\[(?:\w+:)?//[^\s\]]*\s*([^\[\]]*)\]')

_BLOCK = re.compile(
  r'</?(?:blockquote|center|div|h\d|hr|p|poem)\b[^<>]*>', re.I
)
_BREAK = re.compile(r'<[/\\]?br\b[^<>]*>|&nbsp;', re.I)
_TAG = re.compile(r'</?[a-z][^<>]*>', re.I)  # which only formats its text
# Of four marks, the first is an apostrophe, and of three as in l'''arte''.
_QUOTES = re.compile(
  r"'{5,}|(?<=[dlnDLN])''(?='\w(?:[^']|'(?!'))*+''(?!'))|'{2,3}(?!')"
)
_VARIANTS = re.compile(r'-\{([^{}]*)\}-')  # of Chinese and other scripts
_SWITCH = re.compile(r'__[^\W\d_]+__')  # such as __NOTOC__
# Lists, indented text, headings, rules, rows of broken tables, fixed layout.
_NOT_PROSE = re.compile(rf'[*#:;|! ]|{_CUT}*=.*=[\s{_CUT}]*$|----')
_LEFT_OVER = re.compile(r'\[\[|\]\]|{{|}}|{\||\|}')

_EXTENSION = re.compile(r'\.\w{3,4}$')  # of a file
_LANGUAGE = re.compile(r'(?!voy:|mw:)(?:[a-z]{2,3}(?:-[a-z-]+)?|simple):')


def extract_text(wikitext: str, not_text: Set[str] = NOT_TEXT) -> list[str]:
  """Returns the running text of a page; `not_text` are casefolded namespaces."""
  text = wikitext.replace('\r\n', '\n')
  text = _replace(_OPAQUE_TAG, lambda m: (m[1] or _CUT).translate(_SPELT), text)
  text = _VARIANTS.sub(lambda m: _variant(m[1]), text)
  text = _replace(_TABLE, _CUT, _replace(_TEMPLATE, _CUT, text))
  text = _BLOCK.sub('\n\n', _BREAK.sub(' ', text))
  text = _TAG.sub('', text)
  out = []
  for block in _blocks(text):
    block = _replace(
      _LINK, lambda m: _link_text(m[1], not_text), _SWITCH.sub('', block)
    )
    block = _EXTERNAL.sub(lambda m: m[1] or _CUT, block)
    for paragraph in _QUOTES.sub('', block).split('\n'):
      tidy = _tidy(paragraph)
      plain = ' '.join(html.unescape(tidy).translate(_UNSPELT).split())
      if any(map(str.isalnum, plain)) and not _LEFT_OVER.search(tidy):
        out.append(plain)
  return out


def _replace(
  pattern: re.Pattern, by: str | Callable[[re.Match], str], text: str
) -> str:
  """Replaces what is nested from the inside to the outside."""
  for _ in range(_DEEPEST):
    text, count = pattern.subn(by, text)
    if not count:
      break
  return text


def _variant(rule: str) -> str:
  """Returns the text of -{rule}-, the first of several variants."""
  flags, bar, rest = rule.rpartition('|')
  if bar and set(flags) & set('THD-R'):
    return rest if 'R' in flags else ''
  match = re.match(r'\s*(?:[a-z-]+:|[^;:]*=>[a-z-]+:)([^;]*)', rest)
  return match[1] if match else rest


def _blocks(text: str) -> Iterator[str]:
  """Yields the lines of each paragraph, joined."""
  lines = []
  for line in text.split('\n'):
    if line.strip(' \t' + _CUT) and not _NOT_PROSE.match(line):
      lines.append(line)
    elif lines:
      yield ' '.join(lines)
      lines = []
  if lines:
    yield ' '.join(lines)


def _link_text(link: str, not_text: Set[str]) -> str:
  title, bar, text = link.partition('|')
  title = title.strip()
  prefix, colon, _ = title.partition(':')
  if colon and (
    prefix.replace('_', ' ').strip().casefold() in not_text
    or _EXTENSION.search(title)
  ):
    return '\n'  # a picture stands between paragraphs
  if _LANGUAGE.match(title):
    return _CUT
  return text if bar else title.removeprefix(':').replace('_', ' ')


_TIDY = [
  (re.compile(pattern), replacement)
  for pattern, replacement in [
    (r'\s+', ' '),
    (rf'{_CUT}(?: ?{_CUT})+', _CUT),
    # The text in brackets or between commas may have been cut. Repetitions are
    # bounded, so that long runs do not take quadratic time.
    (rf'([(（])(?:[\s,;:，；、،؛]{{0,9}}{_CUT}){{1,9}}[\s,;:，；、،؛]*', r'\1'),
    (rf'(?:[\s,;，；、،؛]{{0,9}}{_CUT}){{1,9}}\s?([)）])', r'\1'),
    (r'\s?(?:\([\s,;:،؛]*\)|（[\s，；、]*）)', ''),
    (rf',(?:[{_CUT}\s]*,)+', ','),
    (rf'\s*{_CUT}[{_CUT}\s]*(?=[.,;:!?。，；、،؛])', ''),
    (_CUT, ''),
  ]
]


def _tidy(paragraph: str) -> str:
  for pattern, replacement in _TIDY:
    paragraph = pattern.sub(replacement, paragraph)
  return paragraph.strip()
