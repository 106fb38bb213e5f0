"""Converts wikitext to running text.

Comments, references, templates, tables, lists and headings, which a linear scan
can find, are removed first: they are most of a page, and the parser takes
quadratic time. The parser then reads the rest, paragraph by paragraph.
"""

import html
import re
from collections.abc import Iterator, Set

# Marks a place where something was cut. XML cannot contain it.
_CUT = '\x02'
# Stand for markup characters in entities and <nowiki>, which are plain text.
_SPELT = str.maketrans("<>[]{}|'", '\x03\x04\x05\x06\x07\x08\x0e\x0f')
_UNSPELT = {b: a for a, b in _SPELT.items()}

# The parser's time for a paragraph grows with the product of its characters and
# its markup openings. Summed over a real page and divided by the page's
# characters, this product is at most 40.
_MAX_COST = 100
_SMALL_PAGE = 100_000  # characters; shorter pages may cost as much as this one

NOT_TEXT = frozenset({'media', 'file', 'image', 'category'})  # everywhere

_OPAQUE = (
  'categorytree ce chem gallery graph hiero imagemap includeonly indicator '
  'inputbox mapframe maplink math nowiki pre ref references score section '
  'source syntaxhighlight table templatedata templatestyles timeline ol ul dl'
).split()
_OPEN_TAG = re.compile(rf'<(?:(!--)|({"|".join(_OPAQUE)})\b[^<>]*>)', re.I)
_CLOSE_TAG = {
  '!--': re.compile('-->'),
  **{name: re.compile(rf'</{name}\s*>', re.I) for name in _OPAQUE},
}
_BRACES = re.compile(r'{{+|}}+')
_TABLE = re.compile(rf'^[\s:{_CUT}]*(?:({{\|)|\|}})', re.M)
# Tags that only format their text. The parser would require them to be closed
# in the same paragraph.
_INLINE = re.compile(
  r'</?(?:abbr|b|bdi|big|cite|code|data|dfn|em|font|i|ins|kbd|mark|noinclude|'
  r'onlyinclude|q|s|samp|small|span|strong|sub|sup|time|tt|u|var)\b[^<>]*>',
  re.I,
)
_BLOCK = re.compile(
  r'</?(?:blockquote|center|div|h\d|hr|p|poem)\b[^<>]*>', re.I
)
_BREAK = re.compile(r'<[/\\]?br\b[^<>]*>', re.I)
_VARIANTS = re.compile(r'-\{([^{}]*)\}-')  # of Chinese and other scripts
_SWITCH = re.compile(r'__[^\W\d_]+__')  # such as __NOTOC__
# Lists, indented text, headings, rules, rows of broken tables, fixed layout.
_NOT_PROSE = re.compile(rf'[*#:;|! ]|{_CUT}*=.*=[\s{_CUT}]*$|----')
_MARKUP = re.compile(r"[\[\]{}<&]|''|://|__")
_OPENINGS = re.compile(r"\[|{|<|''|://")
_LEFT_OVER = re.compile(r'\[\[|\]\]|{{|}}|{\||\|}|</?\w+[^<>]*>')

_EXTENSION = re.compile(
  r'\.(?:jpe?g|png|gif|svg|tiff?|webp|xcf|og[gav]|oga|mp3|mp4|webm|wav|midi?|'
  r'pdf|djvu|flac|stl)$',
  re.I,
)
_LANGUAGE = re.compile(r'(?!voy:|mw:)(?:[a-z]{2,3}(?:-[a-z-]+)?|simple):')


class TooDeep(Exception):
  """The parser would take too long."""


def extract_text(wikitext: str, not_text: Set[str] = NOT_TEXT) -> list[str]:
  """Returns the running text of a page.

  Args:
    not_text: casefolded names of the namespaces whose links are not text.

  Raises:
    TooDeep: if the page would take the parser many seconds.
  """
  text = _cut_tags(wikitext.replace('\r\n', '\n'))
  text = _VARIANTS.sub(lambda m: _variant(m[1]), text)
  text = _cut_tables(_cut_templates(text))
  text = _INLINE.sub('', _BREAK.sub(' ', text))
  text = _BLOCK.sub('\n\n', text)
  out = []
  cost, limit = 0, _MAX_COST * max(len(wikitext), _SMALL_PAGE)
  for block in _blocks(text):
    cost += len(block) * len(_OPENINGS.findall(block))
    if cost > limit:
      raise TooDeep
    if _MARKUP.search(block):
      block = _plain(block, not_text)
    for paragraph in map(_tidy, block.split('\n')):
      if any(map(str.isalnum, paragraph)) and not _LEFT_OVER.search(paragraph):
        out.append(paragraph.translate(_UNSPELT))
  return out


# Cuts made before parsing, each in one linear scan.


def _cut_tags(text: str) -> str:
  """Cuts comments and tags without text; escapes the content of <nowiki>."""
  out = []
  at = 0
  unclosed = set()  # tags without a closing tag ahead: search for it only once
  for tag in _OPEN_TAG.finditer(text):
    if tag.start() < at:
      continue  # inside what was cut
    name = (tag[1] or tag[2]).lower()
    kept = _CUT
    end = tag.end()
    if not tag[0].endswith('/>') and name not in unclosed:
      close = _CLOSE_TAG[name].search(text, end)
      if not close:
        unclosed.add(name)
      elif name == 'nowiki':
        kept = text[end : close.start()].translate(_SPELT)
      end = close.end() if close else len(text) if name == '!--' else end
    out += [text[at : tag.start()], kept]
    at = end
  return ''.join([*out, text[at:]])


def _variant(rule: str) -> str:
  """Returns the text of -{rule}-, the first of several variants."""
  flags, bar, rest = rule.rpartition('|')
  if bar and set(flags) & set('THD-R'):
    return rest if 'R' in flags else ''
  match = re.match(r'\s*(?:[a-z-]+:|[^;:]*=>[a-z-]+:)([^;]*)', rest)
  return match[1] if match else rest


def _cut_templates(text: str) -> str:
  """Cuts {{templates}} and {{{arguments}}}, which may be nested."""
  spans = []
  stack = []  # [start, number of open braces]
  for run in _BRACES.finditer(text):
    count = len(run[0])
    if run[0][0] == '{':
      stack.append([run.start(), count])
      continue
    while count >= 2 and stack:
      top = stack[-1]
      taken = min(top[1], count)
      top[1] -= taken
      count -= taken
      _add_span(spans, top[0] + top[1], run.end() - count)
      if top[1] < 2:
        stack.pop()
  return _cut(text, spans)


def _cut_tables(text: str) -> str:
  """Cuts {| tables |}; an unclosed table ends at the next heading."""
  spans = []
  stack = []
  for mark in _TABLE.finditer(text):
    if mark[1]:
      stack.append(mark.start())
    elif stack:
      _add_span(spans, stack.pop(), mark.end())
  if stack:
    end = text.find('\n==', stack[0])
    _add_span(spans, stack[0], len(text) if end < 0 else end)
  return _cut(text, spans)


def _add_span(spans, start, end):
  """Adds a span and removes the spans inside it."""
  while spans and spans[-1][0] >= start:
    end = max(end, spans.pop()[1])
  spans.append((start, end))


def _cut(text, spans) -> str:
  out = []
  at = 0
  for start, end in spans:
    out += [text[at:start], _CUT]
    at = end
  return ''.join([*out, text[at:]])


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


# Parsing what is left.


def _plain(block: str, not_text: Set[str]) -> str:
  """Returns a block without markup; line feeds separate its paragraphs."""
  import mwparserfromhell

  code = mwparserfromhell.parse(_SWITCH.sub('', block))
  return ''.join(_text_of(code, not_text))


def _text_of(code, not_text) -> Iterator[str]:
  from mwparserfromhell import nodes

  for node in code.nodes if code else ():
    if isinstance(node, nodes.Text):
      yield node.value
    elif isinstance(node, nodes.Wikilink):
      yield from _link_text(node, not_text)
    elif isinstance(node, nodes.HTMLEntity):
      yield html.unescape(str(node)).translate(_SPELT)
    elif isinstance(node, nodes.ExternalLink):
      if node.title:
        yield from _text_of(node.title, not_text)
      else:
        yield _CUT if node.brackets else str(node.url)
    elif (
      isinstance(node, nodes.Tag) and str(node.tag).lower() not in _CLOSE_TAG
    ):
      yield from _text_of(node.contents, not_text)
    else:
      yield _CUT


def _link_text(node, not_text) -> Iterator[str]:
  title = str(node.title).strip()
  prefix, colon, _ = title.partition(':')
  if colon and (
    prefix.replace('_', ' ').strip().casefold() in not_text
    or _EXTENSION.search(title)
  ):
    yield '\n'  # a picture stands between paragraphs
  elif _LANGUAGE.match(title):
    yield _CUT
  elif node.text is not None:
    yield from _text_of(node.text, not_text)
  else:
    yield html.unescape(title.removeprefix(':').replace('_', ' '))


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
    ("'{2,}", ''),  # italics that are not closed
    (r'\s+', ' '),
  ]
]


def _tidy(paragraph: str) -> str:
  for pattern, replacement in _TIDY:
    paragraph = pattern.sub(replacement, paragraph)
  return paragraph.strip()
