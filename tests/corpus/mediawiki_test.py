import collections
import io

import pytest

from bert_jax.corpus import mediawiki, text_files
from tests import peak

_ROOT = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">'


def _page(text, ns=0, inside=''):
  text = text.replace('&', '&amp;').replace('<', '&lt;')
  return (
    f'<page><title>T</title><ns>{ns}</ns><id>1</id>{inside}<revision>'
    f'<id>2</id><text xml:space="preserve">{text}</text></revision></page>'
  )


def _read(xml, encoding='utf-8'):
  counts = collections.Counter()
  file = io.BytesIO(xml.encode(encoding))
  found = [d.paragraphs for d in mediawiki.read_documents(file, counts)]
  return found, dict(counts)


def _plain(text):
  return mediawiki.extract_text(text)


def test_pages_are_documents_and_what_is_left_out_is_counted():
  xml = ''.join(
    [
      _ROOT,
      _page('One.\n\nTwo.'),
      _page('Talk.', ns=1),
      _page('#REDIRECT [[Other]]', inside='<redirect title="Other" />'),
      _page('#ПРЕНАСОЧВАНЕ [[Other]]'),
      _page('{{only|a template}}'),
      _page('{}').replace('<text', '<model>json</model><text'),
      _page('Last.'),
      '</mediawiki>',
    ]
  )
  found, counts = _read(xml)
  assert found == [['One.', 'Two.'], ['Last.']]
  assert counts == {
    'pages_of_other_namespaces': 1,
    'redirect_pages': 2,
    'unreadable_pages': 1,
  }


def test_the_wiki_names_its_own_namespaces():
  siteinfo = (
    '<siteinfo><namespaces><namespace key="6">Datei</namespace>'
    '<namespace key="14">Kategorie</namespace></namespaces></siteinfo>'
  )
  text = '[[Datei:A|Text.]] Word.\n\n[[Kategorie:B]] [[:Kategorie:C|Link.]]'
  xml = f'{_ROOT}{siteinfo}{_page(text)}</mediawiki>'
  assert _read(xml)[0] == [['Word.', 'Link.']]


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig', 'utf-16'])
def test_dumps_are_recognised_and_read_in_any_unicode(encoding):
  xml = f'{_ROOT}{_page("Григорий е тук.")}</mediawiki>'
  assert _read(xml, encoding) == ([['Григорий е тук.']], {})
  assert mediawiki.is_dump(_ROOT.encode(encoding))
  declared = '<?xml version="1.0"?>\n' + _ROOT
  assert mediawiki.is_dump(declared.encode(encoding))
  assert not mediawiki.is_dump('<doc id="1"> of <mediawiki'.encode(encoding))
  assert not mediawiki.is_dump(''.encode(encoding))


def test_a_dump_that_is_cut_short_gives_its_whole_pages_first():
  xml = f'{_ROOT}\n{_page("One.")}\n{_page("Two.")}'[:-20]
  counts = collections.Counter()
  found = mediawiki.read_documents(io.BytesIO(xml.encode()), counts)
  assert next(found).paragraphs == ['One.']
  with pytest.raises(text_files.DAMAGE, match='line 3, column'):
    next(found)


def test_entities_that_grow_without_end_are_an_error():
  entities = '<!ENTITY a0 "laughing">' + ''.join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)
  )
  xml = f'<!DOCTYPE x [{entities}]>{_ROOT}<page><title>&a9;</title></page>'
  with pytest.raises(text_files.DAMAGE, match='amplification'):
    _read(xml)


def test_memory_does_not_grow_with_the_pages():
  class Endless(io.RawIOBase):
    def __init__(self, pages):
      super().__init__()
      page = _page('Text.').encode()
      self.parts = [b'</mediawiki>', *[page] * pages, _ROOT.encode()]

    def read(self, size=-1):
      return self.parts.pop() if self.parts else b''

  def measure(pages):
    found = mediawiki.read_documents(Endless(pages), collections.Counter())
    return peak.measure(lambda: collections.deque(found, maxlen=0))

  measure(10)  # imports
  # XML elements that were kept would be 100 bytes and more a page.
  assert measure(600) < measure(100) + 30_000


@pytest.mark.parametrize(
  'markup',
  [
    '* item [[link]]\n# item\n:indented\n; term',
    '== Heading ==',
    '==Heading== <!-- why -->',
    '{| class="a"\n|-\n| cell\n\n{|\n| inner\n|}\n| cell\n|}',
    '{{infobox\n| a = {{b|{{{c}}}}}\n\n| d = {e\n}}',
    '[[File:A.jpg|thumb|Caption with [[a link]].]]',
    '[[Bild:A.jpg|thumb|Caption.]]',
    '[[Category:A]]\n[[de:Titel]]',
    '<ref name="a">Source.</ref><ref name=b />',
    '<gallery>\nA.jpg|Caption\n</gallery>',
    '<math>x < y</math>',
    '{{quote|\n\nInside a template.\n\n}}',
    '{|\n| cell\n\nInside a table.\n\n|}',
    '<pre>\ncode\n</pre>\n code by its indent',
    '<!-- comment\n\ncomment -->',
    '__NOTOC__',
    '----',
    '{|\n| a table that is not closed\n\n==Heading==',
  ],
)
def test_what_is_no_running_text_is_left_out(markup):
  assert _plain(f'Before.\n\n{markup}\n\nAfter.') == ['Before.', 'After.']


@pytest.mark.parametrize(
  'markup, text',
  [
    (
      "'''Bold''' and ''italic'' and '''''both'''''",
      'Bold and italic and both',
    ),
    ('[[Link]]s and [[Target|text]]', 'Links and text'),
    ('[[wikt:word|word]] and [[:fr:Mot|mot]]', 'word and mot'),
    ('[http://a.org the site] and [http://a.org]', 'the site and'),
    ('A&nbsp;B &mdash; &#67; &lt;D&gt;', 'A B — C <D>'),
    ('[[A&nbsp;B]]', 'A B'),
    ('<small>Small</small> H<sub>2</sub>O<br />new', 'Small H2O new'),
    ('<nowiki>[[not]] a {{link}}</nowiki>', '[[not]] a {{link}}'),
    ("A&#39;&#39;B <nowiki>it's</nowiki>", "A''B it's"),
    ('One line\nand the next.', 'One line and the next.'),
    ('Word<ref>Source.</ref>, word {{x}}.', 'Word, word.'),
    ('He ({{lang|x}}; born 1900) ({{a}}) was.', 'He (born 1900) was.'),
    ('-{zh-hans:简; zh-hant:繁}- -{字}- -{H|hidden}-', '简 字'),
    ('{{a|{b}} text', 'text'),
  ],
)
def test_text_stays_and_its_markup_goes(markup, text):
  assert _plain(markup) == [text]


@pytest.mark.parametrize(
  'unit',
  ['[[a|', '{{a|', '{{a|[[b|', '{|\n', '<b>', '<ref>', '<!--', "<b '", "''["],
)
def test_markup_that_is_never_closed_takes_no_time(unit):
  # Ten thousand would keep the parser for minutes.
  xml = f'{_ROOT}{_page(unit * 10_000)}{_page("Next.")}</mediawiki>'
  assert _read(xml)[0][-1] == ['Next.']
