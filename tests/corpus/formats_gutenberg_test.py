import itertools
import os
import pathlib

import pytest

from bert_jax.corpus import formats

_BOOK = ['', 'CHAPTER I', '', 'It was a dark night.', '']
_TITLE = 'The Project Gutenberg EBook of A Night, by A. Writer'


def _strip(*lines):
  return list(formats.strip_gutenberg(lines))


@pytest.mark.parametrize(
  'header',
  [
    [_TITLE, '', '*** START OF THIS PROJECT GUTENBERG EBOOK A NIGHT ***'],
    [_TITLE, '***START OF THE PROJECT GUTENBERG EBOOK A NIGHT***'],
    [_TITLE, '*** START OF THE PROJECT GUTENBERG EBOOK A VERY', 'LONG ***'],
    [
      '**Welcome To The World of Free Plain Vanilla Electronic Texts**',
      'Project Gutenberg presents',
      *['small print'] * 300,
      '*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*',
    ],
    [
      _TITLE,
      '***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***',
      '*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.03/17/97*END*',
    ],
    [
      _TITLE,
      '*** START OF THE PROJECT GUTENBERG EBOOK A NIGHT ***',
      '*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02/11/02*END*',
    ],
  ],
)
def test_the_header_is_dropped(header):
  assert _strip(*header, *_BOOK) == _BOOK


@pytest.mark.parametrize(
  'end',
  [
    '*** END OF THIS PROJECT GUTENBERG EBOOK A NIGHT ***',
    '***END OF THE PROJECT GUTENBERG EBOOK A NIGHT***',
    "End of Project Gutenberg's A Night, by A. Writer",
    'End of the Project Gutenberg EBook of A Night, by A. Writer',
    'End of The Project Gutenberg Etext of A Night',
    'This is the end of the Project Gutenberg Etext of A Night',
  ],
)
def test_the_footer_is_dropped(end):
  start = '*** START OF THIS PROJECT GUTENBERG EBOOK A NIGHT ***'
  assert _strip(_TITLE, start, *_BOOK, end, 'licence') == _BOOK


@pytest.mark.parametrize(
  'lines',
  [
    _BOOK,
    [],
    ['x'] * 60 + ['*** END OF THE PROJECT GUTENBERG EBOOK A NIGHT ***'],
    ['He read about Project Gutenberg.', *_BOOK],
    ['x'] * 60 + ['*** START OF THIS PROJECT GUTENBERG EBOOK A NIGHT ***'],
  ],
)
def test_a_text_without_the_header_passes_unchanged(lines):
  assert _strip(*lines) == lines


def test_the_words_of_a_book_are_not_its_footer():
  start = '*** START OF THIS PROJECT GUTENBERG EBOOK A NIGHT ***'
  book = ['*** END OF PART ONE ***', 'End of Project Gutenberg or not?']
  assert _strip(_TITLE, start, *book) == book


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


def test_only_the_first_lines_are_kept_in_memory():
  read = []

  def lines():
    for n in itertools.count():
      read.append(n)
      yield 'plain' if n else _TITLE

  assert next(formats.strip_gutenberg(lines())) == _TITLE
  assert len(read) == 1000
  read.clear()
  assert next(
    formats.strip_gutenberg(line for line in lines() if line == 'plain')
  )
  assert len(read) == 51


def _real():
  root = os.environ.get('BERT_JAX_TEST_DATA')
  if not root:
    pytest.skip('BERT_JAX_TEST_DATA names no directory with real data')
  return pathlib.Path(root) / 'books'


@pytest.mark.parametrize(
  'name, first, last',
  [
    ('972.txt', 'Produced by Aloysius', 'Nature_) that the domestic cow'),
    ('16215-8.txt', 'Produced by Jason Isbell', 'THE END.'),
  ],
)
def test_real_books_begin_and_end_with_their_own_words(name, first, last):
  path = _real() / 'gutenberg_raw' / name
  lines = path.read_text('latin-1').splitlines()
  found = [line for line in formats.strip_gutenberg(lines) if line]
  assert found[0].startswith(first)
  assert found[-1].startswith(last)
  assert not any('gutenberg' in line.lower() for line in found)
  assert len(found) > 0.9 * sum(map(bool, lines)) - 350


def test_real_texts_without_the_header_pass_unchanged():
  paths = sorted((_real() / '100_english_novels').glob('*.txt'))[:20]
  assert len(paths) == 20
  for path in paths:
    lines = path.read_text('utf-8', 'replace').splitlines()
    assert list(formats.strip_gutenberg(lines)) == lines
