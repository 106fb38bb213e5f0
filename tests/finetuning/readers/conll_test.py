"""Tests of reading words with tags."""

import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import conll


def read(tmp_path, text, **columns):
  path = tmp_path / 'words.conll'
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return conll.read(str(path), **columns)


def test_words_and_tags_of_sentences(tmp_path):
  text = 'EU\tNNP\tB-ORG\r\nrejects\tVBZ\tO\r\n\r\nPeter\tNNP\tB-PER\r\n'
  first, second = read(tmp_path, text).units
  assert (first.words, first.tags) == (['EU', 'rejects'], ['B-ORG', 'O'])
  assert (second.words, second.line) == (['Peter'], 4)


def test_the_columns_may_be_chosen(tmp_path):
  [found] = read(tmp_path, '1 Peter B-PER x\n2 runs O x\n', word=1, tag=2).units
  assert (found.words, found.tags) == (['Peter', 'runs'], ['B-PER', 'O'])
  [found] = read(tmp_path, 'Peter\nruns\n', tag=None).units
  assert (found.words, found.tags) == (['Peter', 'runs'], None)


@pytest.mark.parametrize(
  'text, documents',
  [
    ('-DOCSTART- O\n\na O\n\nb O\n\n-DOCSTART- O\n\nc O\n', [0, 0, 1]),
    ('a O\n\nb O\n\n\nc O\n', [0, 0, 1]),
    ('-DOCSTART- O\n\na O\n\nb O\n\nc O\n', [0, 0, 0]),
    ('-DOCSTART- O\na O\n\n\nb O\n\nc O\n', [0, 1, 1]),
    ('a O\n\nb O\n\nc O\n', [0, 1, 2]),  # nothing says what belongs together
  ],
)
def test_documents_begin_at_docstart_or_two_blank_lines(
  tmp_path, text, documents
):
  found = read(tmp_path, text)
  assert found.list_groups() == documents
  assert [x.words for x in found.units] == [['a'], ['b'], ['c']]


def test_tags_are_filled_in_and_all_other_lines_stay(tmp_path):
  text = '-DOCSTART- -X- O\r\n\r\n0 a x\r\n1 b x\r\n\r\n\n\n0 c x\n\n'
  found = read(tmp_path, text, word=1, tag=None)
  lines = found.list_tagged(['O', 'B-X', 'O'])
  assert lines == [
    '-DOCSTART- -X- O', '', 'a\tO', 'b\tB-X', '', '', '', 'c\tO', '', ''
  ]  # fmt: skip
  again = read(tmp_path, '\n'.join(lines))
  assert again.list_groups() == found.list_groups()


@pytest.mark.parametrize(
  'tags, expected',
  [
    # IOB1: B- only between two entities of a kind.
    ('I-PER I-PER B-PER O I-LOC', 'B-PER I-PER B-PER O B-LOC'),
    ('B-PER I-PER O B-LOC', 'B-PER I-PER O B-LOC'),  # BIO
    ('B-PER E-PER S-LOC S-LOC O', 'B-PER I-PER B-LOC B-LOC O'),  # BIOES
    ('B-PER I-PER L-PER U-LOC', 'B-PER I-PER I-PER B-LOC'),  # BILOU
    ('I-PER I-LOC', 'B-PER B-LOC'),
    ('B-creative-work I-creative-work', 'B-creative-work I-creative-work'),
  ],
)
def test_every_scheme_becomes_bio(tags, expected):
  assert conll.to_bio(tags.split()) == expected.split()


@pytest.mark.parametrize(
  'text, message',
  [
    ('a O\nb\n', r'line 2 has 1 column, line 1 has 2'),
    # Without counting, the word O would be tagged O.
    ('a O\nO\n', r'line 2 has 1 column, line 1 has 2'),
    ('a O\nNew York B-LOC\n', r'line 2 has 3 columns, line 1 has 2'),
    ('a O\nb b\n', 'line 2 has the tag .b., which is neither O nor like B-PER'),
    ('a\tO\nb\t\n', r'line 2 has 2 columns, none with number -1'),
    ('a PER\n', "line 1 has the tag 'PER', which is neither"),
    ('\n\n', 'has no words'),
    (b'a O\n\xe9 O\n', 'is not UTF-8 in line 2'),
  ],
)
def test_a_malformed_file_is_refused_in_one_line(tmp_path, text, message):
  with pytest.raises(errors.UserError, match=message) as caught:
    read(tmp_path, text)
  assert '\n' not in str(caught.value)
