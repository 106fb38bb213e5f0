"""Reads the articles of a MediaWiki XML dump, page by page."""

import collections
import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree import ElementTree

from bert_jax.corpus import text_files, wikitext
from bert_jax.corpus.document import Document

_NOT_TEXT = '-2', '6', '14'  # namespaces: media, files and categories

_REDIRECT = re.compile(r'\s*#\w+\s*:?\s*\[\[')


def is_dump(head: bytes) -> bool:
  """Returns whether a file that begins with `head` is a MediaWiki dump."""
  # Without byte order marks, and the zeros between the letters in UTF-16.
  text = re.sub(rb'^(\xef\xbb\xbf|\xff\xfe|\xfe\xff)|\0', b'', head)
  return bool(re.match(rb'\s*(?:<\?xml[^<>]*\?>\s*)?<mediawiki\b', text))


def read_documents(
  file: BinaryIO, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the articles of a dump of decompressed XML, one page at a time.

  Other pages are counted. Raises text_files.Damaged after all whole ones.
  """
  not_text = set(wikitext.NOT_TEXT)
  try:
    events = ElementTree.iterparse(file, ('start', 'end'))
    _, root = next(events)
    for event, element in events:
      name = element.tag.rpartition('}')[2]
      if event == 'end' and name == 'namespaces':
        own = [x for x in element if x.get('key') in _NOT_TEXT]
        not_text |= {(x.text or '').casefold() for x in own}
      elif event == 'end' and name == 'page':
        text = _find_article(element, counts)
        if paragraphs := wikitext.extract_text(text, not_text):
          yield Document(paragraphs)
        root.clear()
  except ElementTree.ParseError as error:
    # It names line and column, then quotes the text after a colon.
    where = re.sub(r'(column \d+).*', r'\1', str(error), flags=re.S)
    raise text_files.Damaged(where) from error


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
