"""Tests of reading words with tags."""

import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import conll


def read(tmp_path, text, **columns):
  path = tmp_path / 'words.conll'
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return conll.read(str(path), **columns)


def test_the_columns_may_be_chosen(tmp_path):
  [found] = read(tmp_path, '1 Peter B-PER x\n2 runs O x\n', word=1, tag=2).units
  assert (found.words, found.tags) == (['Peter', 'runs'], ['B-PER', 'O'])
  [found] = read(tmp_path, 'Peter\nruns\n', labelled=False).units
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
  found = read(tmp_path, text, word=1, labelled=False)
  lines = found.list_tagged(['O', 'B-X', 'O'])
  assert lines == [
    '-DOCSTART- -X- O', '', 'a\tO', 'b\tB-X', '', '', '', 'c\tO', '', ''
  ]  # fmt: skip
  again = read(tmp_path, '\n'.join(lines))
  assert again.list_groups() == found.list_groups()


def test_a_blank_between_tabs_is_a_word(tmp_path):
  text = 'Ann\tB-X\n\u2009\tO\n \tO\n\tO\nNew\u00a0York\tB-X\n\t\n\nb\tO\n'
  found = read(tmp_path, text)
  assert [x.words for x in found.units] == [
    ['Ann', '\u2009', ' ', '', 'New\u00a0York'], ['b']
  ]  # fmt: skip
  assert found.notes == ['BIO tags', '3 lines with a blank word']
  lines = found.list_tagged('ABCDEF')
  assert lines[1:4] == ['\u2009\tB', ' \tC', '\tD']
  # Only tabs and ASCII blanks separate columns.
  [found] = read(tmp_path, 'a\u3000b \v O\nc O\n').units
  assert found.words == ['a\u3000b', 'c']


GERMEVAL = (
  '#\thttp://a.b/c\t[2009-10-17]\n'
  '1\tTU\tB-ORG\tO\n2\tMünchen\tI-ORG\tB-LOC\n3\t#\tO\tO\n\n'
  '#\thttp://a.b/d\t[2009-10-18]\t\n1\tEnde\tO\tO\n'
)
KLUE = '## klue-ner-v1_train_00000-nsmc\t<어:QT> 가\n어\tB-QT\n \tO\n가\tO\n'
CONLL_U = (
  '# newdoc\n# text = du Bois a b c d e f\n'
  + '1-2\tdu' + '\t_' * 8 + '\n'
  + '1\tde\tde\tADP\tP' + '\t_' * 5 + '\n'
  + '2\tle\tle\tDET\tD' + '\t_' * 5 + '\n'
  + '2.1\tva' + '\t_' * 8 + '\n'
)  # fmt: skip


@pytest.mark.parametrize(
  'text, words, tags, notes',
  [
    (
      GERMEVAL,
      ['TU', 'München', '#', 'Ende'],
      ['B-ORG', 'I-ORG', 'O', 'O'],
      ['words in column 1', 'BIO tags in column 2', '2 lines with no word'],
    ),
    (
      KLUE,
      ['어', ' ', '가'],
      ['B-QT', 'O', 'O'],
      ['BIO tags', '1 line with no word', '1 line with a blank word'],
    ),
    (
      CONLL_U,
      ['de', 'le'],
      ['ADP', 'DET'],
      ['words in column 1', '2 plain tags in column 3', '4 lines with no word'],
    ),
    # As many columns as words have, but no tag.
    ('# id 7 en\na _ _ B-X\n', ['a'], ['B-X'], ['BIO tags', '1 line with no word']),
    # A word is a word: #tag, or # itself, also with a tag of its own.
    ('#tag O\na B-X\n', ['#tag', 'a'], ['O', 'B-X'], ['BIO tags']),
    ('#\tB-Y\na\tB-X\n', ['#', 'a'], ['B-Y', 'B-X'], ['BIO tags']),
    ('#\tSYM\nb\tNUM\n', ['#', 'b'], ['SYM', 'NUM'], ['2 plain tags']),
    ('a O\n# O\n', ['a', '#'], ['O', 'O'], ['IO tags']),
  ],
)  # fmt: skip
def test_files_as_they_are_published(tmp_path, text, words, tags, notes):
  found = read(tmp_path, text)
  assert [w for x in found.units for w in x.words] == words
  assert [t for x in found.units for t in x.tags] == tags
  assert found.notes == notes
  lines = found.list_tagged('T' * len(words))
  assert len(lines) == len(text.split('\n'))
  plain = read(tmp_path, text, word=1 if '1\t' in text else 0, labelled=False)
  assert [x.words for x in plain.units] == [x.words for x in found.units]


@pytest.mark.parametrize(
  'text, tags',
  [
    ('a\nb\n', None),
    ('1\ta\n2\tb\n', None),
    ('a _\nb _\n', None),
    ('a O\nb B-X\n', ['O', 'B-X']),
  ],
)
def test_a_test_file_may_lack_the_tags(tmp_path, text, tags):
  [found] = read(tmp_path, text, labelled=None).units
  assert (found.words, found.tags) == (['a', 'b'], tags)


@pytest.mark.parametrize(
  'text',
  [
    'Ann lives in Paris\nBob works in Rome\n',
    'Ann lives in Paris\n',
    '1\tAnn lives in Paris\n2\tBob works\n',
    'Ann lives in Paris\tBob works\n',
    '王小明在北京\n李明在上海\n他在上海。\n',
  ],
)
def test_sentences_are_no_words(tmp_path, text):
  with pytest.raises(errors.UserError, match='look like sentences, such as .*'):
    read(tmp_path, text, labelled=False)


@pytest.mark.parametrize(
  'text, message',
  [
    ('a O\nb\n', r'line 2 has 1 column, line 1 has 2'),
    (' \tO\nb\n', r'line 2 has 1 column, line 1 has 2'),
    # Without counting, the word O would be tagged O.
    ('a O\nO\n', r'line 2 has 1 column, line 1 has 2'),
    ('a O\nNew York B-LOC\n', r'line 2 has 3 columns, line 1 has 2'),
    ('a B-X\nb b\n', 'line 2 has the tag .b., but others are like B-PER'),
    ('a\tO\nb\t\n', r'line 2 has 2 columns, none with number -1'),
    ('a\nb\n', 'words and tags are both in column 0 of 1'),
    ('a,O\nb,O\n', 'words and tags are both in column 0 of 1'),
    ('\n\n', 'has no words'),
    ('{"tokens": ["a"]}\n', 'holds JSON; give a file with one word per line'),
    (b'a O\n\xe9 O\n', 'is not UTF-8 in line 2'),
  ],
)
def test_a_malformed_file_is_refused_in_one_line(tmp_path, text, message):
  with pytest.raises(errors.UserError, match=message) as caught:
    read(tmp_path, text)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'tags, expected',
  [
    # IOB1: B- only between two entities of a kind.
    ('I-PER I-PER B-PER O I-LOC', 'B-PER I-PER B-PER O B-LOC'),
    ('B-PER I-PER O B-LOC', 'B-PER I-PER O B-LOC'),  # BIO
    # IOE1: E- only between two entities of a kind; IOE2: at each end.
    ('I-PER E-PER I-PER O I-LOC', 'B-PER I-PER B-PER O B-LOC'),
    ('E-PER E-PER I-PER E-PER', 'B-PER B-PER B-PER I-PER'),
    ('B-PER E-PER S-LOC S-LOC O', 'B-PER I-PER B-LOC B-LOC O'),  # BIOES
    ('B-PER I-PER L-PER U-LOC', 'B-PER I-PER I-PER B-LOC'),  # BILOU
    ('B-PER M-PER E-PER O S-PER', 'B-PER I-PER I-PER O B-PER'),  # BMES
    ('B-PER M-PER E-PER W-PER', 'B-PER I-PER I-PER B-PER'),  # BMEWO
    ('I-PER I-LOC', 'B-PER B-LOC'),
    ('B I O I', 'B I O B'),  # a single kind, without its name
    ('B M E S B E', 'B I I B B I'),
    ('PER PER O LOC', 'B-PER I-PER O B-LOC'),
    ('PER-B PER-I O', 'B-PER I-PER O'),
    ('PER_B PER_I -', 'B-PER I-PER O'),
    ('B_PER I_PER O', 'B-PER I-PER O'),
    ('B-creative-work I-creative-work', 'B-creative-work I-creative-work'),
    ('O O', 'O O'),
  ],
)
def test_every_scheme_becomes_bio(tags, expected):
  forms = conll.parse_scheme(set(tags.split()))
  found = [forms[tag] for tag in tags.split()]
  assert conll.to_bio(found) == expected.split()


@pytest.mark.parametrize(
  'tags',
  [
    'NOUN VERB PUNCT',
    'NOUN VERB -',
    'N O V ,',  # of tweets
    'NN -LRB- NNP|SG B',
    'NNG+JX I SL',
  ],
)
def test_parts_of_speech_have_no_scheme(tags):
  assert conll.parse_scheme(set(tags.split())) is None


def test_an_odd_tag_among_those_of_a_scheme_is_left_out():
  assert conll.parse_scheme({'O', 'B-PER', 'PER'}) == {
    'O': 'O',
    'B-PER': 'B-PER',
  }
