import collections

import pytest

from bert_jax.corpus import formats, sources
from tests.corpus.sources_test import read_groups


@pytest.fixture
def in_ranges(tmp_path):
  """Reads a file in ranges of some bytes, as several processes would."""

  def read(raw, step, layout='paragraphs'):
    path = tmp_path / 'a'
    path.write_bytes(raw)
    ranges = [
      sources.Range(0, str(path), k, min(k + step, len(raw)), len(raw))
      for k in range(0, len(raw), step)
    ]
    return [x.paragraphs for x in read_groups([ranges], layout)[0]]

  return read


_TEXT = b'\n\nOne.\nTwo.\n \n\t\nThree.\r\n\r\n\r\nFour.\nFive.\n\0\x01\nSix.'
_PAGES = (
  b'\n<doc id="12" url="https://x?curid=12" title="Cats &amp; "Dogs"">\n'
  b'Cats & "Dogs"\n\nThey fight.\nCats & "Dogs"\n\n</doc>\n'
  b'<doc id="13" url="https://x?curid=13" title="Owls">\nOwls\n</doc>\n'
  b'<doc id="14" url="https://x?curid=14" title="Mice">\nMice\n\nHide.\n'
)
_ARTICLES = (
  b' \n = Cats = \n \n They fight 2 @.@ 5 foes . \n They hide . \n \n'
  b' = = Food = = \n \n Well @-@ fed . \n \n = Owls = \n \n They fly . \n'
)


@pytest.mark.parametrize(
  'layout, raw, expected',
  [
    (
      'paragraphs',
      _TEXT,
      [['One.', 'Two.'], ['Three.'], ['Four.', 'Five.'], ['Six.']],
    ),
    ('lines', _PAGES, [['They fight.', 'Cats & "Dogs"'], ['Hide.']]),
    (
      'lines',
      _ARTICLES,
      [['They fight 2.5 foes .', 'They hide .', 'Well-fed .'], ['They fly .']],
    ),
    ('lines', b'One.\nTwo.\n\n \nThree.', [['One.'], ['Two.'], ['Three.']]),
    ('files', b'{"text": "A\\nB"}\n\n{"text": "C"}', [['A B'], ['C']]),
  ],
)
def test_every_document_comes_once_however_a_file_is_cut(
  in_ranges, layout, raw, expected
):
  for step in (1, *range(4, len(raw) + 1, 5)):
    assert in_ranges(raw, step, layout) == expected, step


def test_no_part_of_a_long_line_is_taken_for_a_blank_line(in_ranges):
  zeros, words = bytes(3_000_000), b'word ' * 10
  few = b'First of a few lines.\n' * 9000  # else these are no text
  raw = few + b'\n' + (zeros + words) * 2 + zeros + b'\nword\n\nLast.'
  for step in (1_000_000, 2_500_000, len(raw)):
    found = in_ranges(raw, step)
    assert [' '.join(d).split() for d in found[1:]] == [
      ['word'] * 21,
      ['Last.'],
    ]


def test_documents_too_long_for_memory_are_cut_and_counted():
  lines = ['word ' * 20_000] * 100  # of 100 kB
  for read in (
    lambda counts: formats.read_blocks(lines, False, counts),
    lambda counts: formats.read_whole_file(lines, counts),
  ):
    counts = collections.Counter()
    sizes = [sum(map(len, d.paragraphs)) for d in read(counts)]
    assert max(sizes) < 5 << 20 and sum(sizes) > 9.9e6
    assert counts == {'long_documents_cut': len(sizes) - 1}, sizes


# Every end of a line that people have, and blank lines that hold something.
@pytest.mark.parametrize(
  'end', ['\r', '\r\n', '\n', '\x85', '\u2028', '\u2029']
)
@pytest.mark.parametrize(
  'blank', ['', ' ', '\u200b', '\ufeff', '\u00ad', '\ufffd']
)
def test_lines_end_and_separate_documents_whatever_they_hold(
  in_ranges, end, blank
):
  raw = end.join(
    ['Öne.', 'Two.', blank, 'Three.', '"', blank, 'Four.', '']
  ).encode()
  expected = [['Öne.', 'Two.'], ['Three.', '"'], ['Four.']]
  for step in (1, 2, 5, 11, len(raw)):
    assert in_ranges(raw, step) == expected, step


@pytest.mark.parametrize(
  'line, plain',
  [
    ('A <a href="Big%20cat">big cat</a> &lt;3', 'A big cat <3'),
    ('See &lt;a href="Owl"&gt;owls&lt;/a&gt;', 'See owls'),
    ('## History', 'History'),
    ('Section::::Food.', 'Food.'),
    ('BULLET::::- Mice', 'Mice'),
    ('<h2>Food</h2>', 'Food'),
    ('#1 of C++::x < 3', '#1 of C++::x < 3'),
  ],
)
def test_markup_of_wikiextractor_is_left_out(in_ranges, line, plain):
  raw = f'<doc id="1" title="A">\nA\n\n{line}\n</doc>\n'.encode()
  assert in_ranges(raw, len(raw)) == [[plain]]


_BOOK = ['', 'CHAPTER I', '', 'It was a dark night.', '']
_TITLE = 'The Project Gutenberg EBook of A Night, by A. Writer'
_START = '*** START OF THIS PROJECT GUTENBERG EBOOK A NIGHT ***'
_SMALL = '{}THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*'


def _strip(*lines):
  return list(formats.strip_gutenberg(lines))


@pytest.mark.parametrize(
  'header',
  [
    [_TITLE, '', _START],
    [_TITLE, '*** START OF THE PROJECT GUTENBERG EBOOK A VERY', 'LONG ***'],
    ['Project Gutenberg presents', *['x'] * 300, _SMALL.format('*END ')],
    [_TITLE, '***START**' + _SMALL.format(''), _SMALL.format('*END*')],
  ],
)
def test_the_header_is_dropped(header):
  assert _strip(*header, *_BOOK) == _BOOK


@pytest.mark.parametrize(
  'end',
  [
    '*** END OF THIS PROJECT GUTENBERG EBOOK A NIGHT ***',
    "End of Project Gutenberg's A Night, by A. Writer",
    'End of the Project Gutenberg EBook of A Night, by A. Writer',
    'This is the end of the Project Gutenberg Etext of A Night',
  ],
)
def test_the_footer_is_dropped(end):
  assert _strip(_TITLE, _START, *_BOOK, end, 'licence') == _BOOK


@pytest.mark.parametrize('lines', [_BOOK, [], ['x'] * 60 + [_START]])
def test_a_text_without_the_header_passes_unchanged(lines):
  assert _strip(*lines) == lines


@pytest.mark.parametrize('size', [1, 1200])  # within and beyond the header
def test_every_book_of_a_file_is_kept(size):
  def book(n):
    return [
      f'The Project Gutenberg EBook of Volume {n}, by A. Writer',
      f'*** START OF THIS PROJECT GUTENBERG EBOOK VOLUME {n} ***',
      *[f'Text of {n}.'] * size,
      f'End of the Project Gutenberg EBook of Volume {n}, by A. Writer',
      f'*** END OF THIS PROJECT GUTENBERG EBOOK VOLUME {n} ***',
      'licence',
      # Around 2002 it was at the end, with the mark of a header.
      '*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02/11/02*END*',
      '',
    ]

  found = _strip(*(line for n in range(3) for line in book(n)))
  texts = [line for line in found if line]
  assert texts == [f'Text of {n}.' for n in range(3) for _ in range(size)]
  for n in (1, 2):
    first = found.index(f'Text of {n}.')
    assert not found[first - 1]  # a document ends there
