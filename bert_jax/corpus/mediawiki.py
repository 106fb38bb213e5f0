"""Reads the articles of a MediaWiki XML dump, page by page, as running text.

Wikitext is converted by regular expressions in linear time. What is no text
(comments, references, templates, tables, lists, headings) is cut; links become
their text. A paragraph in which markup is left, since it was not closed, is left
out.
"""

import collections
import html
import itertools
import re
from collections.abc import Callable, Iterator, Set
from typing import BinaryIO
from xml.etree import ElementTree

from bert_jax.corpus.document import Document

_REDIRECT = re.compile(r'\s*#\w+\s*:?\s*\[\[')
_NAMESPACES = '-2', '6', '14'  # media, files and categories, which are no text
_NOT_TEXT = frozenset({'media', 'file', 'image', 'category'})  # everywhere

# Marks a place where something was cut. XML cannot contain it.
_CUT = '\x02'
# Stand for markup characters in <nowiki>, which are plain text.
_SPELT = str.maketrans("<>[]{}|'", '\x03\x04\x05\x06\x07\x08\x0e\x0f')
_UNSPELT = {b: a for a, b in _SPELT.items()}
_DEEPEST = 30  # level of nested markup; what is deeper is left out

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


def is_dump(head: bytes) -> bool:
  """Returns whether a file that begins with `head` is a MediaWiki dump."""
  # Without byte order marks, and the zeros between the letters in UTF-16.
  text = re.sub(rb'^(\xef\xbb\xbf|\xff\xfe|\xfe\xff)|\0', b'', head)
  return bool(re.match(rb'\s*(?:<\?xml[^<>]*\?>\s*)?<mediawiki\b', text))


def read_documents(
  file: BinaryIO, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the articles of a dump of decompressed XML, one page at a time.

  Other pages are counted. Where the dump is cut short, raises ParseError.
  """
  not_text = set(_NOT_TEXT)
  events = ElementTree.iterparse(file, ('start', 'end'))
  _, root = next(events)
  for event, element in events:
    name = element.tag.rpartition('}')[2]
    if event == 'end' and name == 'namespaces':
      own = [x for x in element if x.get('key') in _NAMESPACES]
      not_text |= {(x.text or '').casefold() for x in own}
    elif event == 'end' and name == 'page':
      text = _find_article(element, counts)
      if paragraphs := extract_text(text, not_text):
        yield Document(paragraphs)
      root.clear()


def _find_article(page: ElementTree.Element, counts) -> str:
  """Returns the wikitext of a page, '' if the page is not an article."""
  text = page.findtext('{*}revision/{*}text') or ''
  if page.findtext('{*}ns', '0') != '0':
    reason = 'pages_of_other_namespaces'
  elif page.findtext('{*}revision/{*}model', 'wikitext') != 'wikitext':
    reason = 'unreadable_pages'
  elif page.find('{*}redirect') is not None or _REDIRECT.match(text):
    reason = 'redirect_pages'
  else:
    return text
  counts[reason] += 1
  return ''


def extract_text(wikitext: str, not_text: Set[str] = _NOT_TEXT) -> list[str]:
  """Returns the running text of a page; `not_text` are casefolded namespaces."""
  text = wikitext.replace('\r\n', '\n')
  text = _replace(_OPAQUE_TAG, lambda m: (m[1] or _CUT).translate(_SPELT), text)
  text = _VARIANTS.sub(lambda m: _variant(m[1]), text)
  text = _replace(_TABLE, _CUT, _replace(_TEMPLATE, _CUT, text))
  text = _BLOCK.sub('\n\n', _BREAK.sub(' ', text))
  text = _TAG.sub('', text)
  out = []
  for is_prose, lines in itertools.groupby(text.split('\n'), _is_prose):
    if not is_prose:
      continue
    block = _SWITCH.sub('', ' '.join(lines))
    block = _replace(_LINK, lambda m: _link_text(m[1], not_text), block)
    block = _EXTERNAL.sub(lambda m: m[1] or _CUT, block)
    for paragraph in _QUOTES.sub('', block).split('\n'):
      for pattern, replacement in _TIDY:
        paragraph = pattern.sub(replacement, paragraph)
      tidy = paragraph.strip()
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


def _is_prose(line: str) -> bool:
  return bool(line.strip(' \t' + _CUT)) and not _NOT_PROSE.match(line)


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
