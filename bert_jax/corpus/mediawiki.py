"""Reads the articles of a MediaWiki XML dump, page by page."""

import collections
import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree import ElementTree

from bert_jax import errors
from bert_jax.corpus import wikitext
from bert_jax.corpus.document import Document

_BEGINNING = 4096  # bytes, to the first tag
_MEDIA, _FILE, _CATEGORY = '-2', '6', '14'  # namespaces that are not text

_REDIRECT = re.compile(r'\s*#\w+\s*:?\s*\[\[')


def is_dump(head: bytes) -> bool:
  """Returns whether a file that begins with `head` is a MediaWiki dump."""
  # Without byte order marks, and the zeros between the letters in UTF-16.
  begin = head[:_BEGINNING]
  text = re.sub(rb'^(\xef\xbb\xbf|\xff\xfe|\xfe\xff)|\0', b'', begin)
  return bool(re.match(rb'\s*(?:<\?xml[^<>]*\?>\s*)?<mediawiki\b', text))


def read_documents(
  file: BinaryIO, counts: collections.Counter
) -> Iterator[Document]:
  """Yields the articles of a dump as documents of running text.

  Args:
    file: the decompressed XML; one page of it is in memory at a time.
    counts: pages that are left out are added here: 'redirect_pages',
      'pages_of_other_namespaces' and 'unreadable_pages'.

  Raises:
    ValueError: if the XML is damaged or cut short, after all whole pages.
    errors.UserError: if the libraries are not installed.
  """
  what = 'MediaWiki dumps need mwxml and mwparserfromhell'
  advice = "pip install 'bert_jax[wikipedia]'."
  with errors.explaining(what, advice, ImportError):
    import mwparserfromhell  # noqa: F401
    import mwxml
    import mwxml.element_iterator
  not_text = set(wikitext.NOT_TEXT)
  n = 0
  try:
    # mwxml.Dump refuses dumps without <siteinfo>, and keeps an XML element of
    # every page in memory.
    root = mwxml.element_iterator.ElementIterator.from_file(file)
    for element in root:
      if element.tag == 'siteinfo':
        not_text |= _namespaces(element)
      elif element.tag == 'page':
        n += 1
        text = _article(mwxml, element, counts)
        try:
          paragraphs = wikitext.extract_text(text, not_text)
        except wikitext.TooDeep:
          counts['unreadable_pages'] += 1
          paragraphs = []
        if paragraphs:
          yield Document(paragraphs)
      element.clear()
      root.element.clear()
  except ElementTree.ParseError as error:
    # The message names line and column, then quotes the text after a colon.
    where = re.sub(r'(column \d+).*', r'\1', str(error), flags=re.S)
    raise ValueError(f'{where}, near page {n}') from error
  except EOFError as error:
    raise ValueError(f'the file ends near page {n}') from error


def _namespaces(siteinfo) -> set[str]:
  """Returns the wiki's own names of the namespaces that are not text."""
  out = set()
  for part in siteinfo:
    for namespace in part if part.tag == 'namespaces' else ():
      if namespace.attr('key') in (_MEDIA, _FILE, _CATEGORY):
        out.add((namespace.text or '').casefold())
  return out


def _article(mwxml, element, counts) -> str:
  """Returns the wikitext of a page, '' if the page is not an article."""
  try:
    page = mwxml.Page.from_element(element)
    if page.namespace:
      counts['pages_of_other_namespaces'] += 1
      return ''
    revision = next(iter(page), None)
    main = revision and revision.slots.contents.get('main')
    text = main and main.text or ''
    if main and main.model not in (None, 'wikitext'):
      raise ValueError(main.model)
  except (
    mwxml.errors.MalformedXML,
    AttributeError,
    TypeError,
    ValueError,
  ):  # a field that mwxml does not expect
    counts['unreadable_pages'] += 1
    return ''
  if page.redirect or _REDIRECT.match(text):
    counts['redirect_pages'] += 1
    return ''
  return text
