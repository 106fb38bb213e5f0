import pytest

from bert_jax.corpus.document import Document, split


def test_paragraphs_are_split_and_white_space_is_reduced():
  paragraphs = ['Dr. Smith  left.\nHe was\ttired. ', '', ' \n', 'So it ends']
  assert split(Document(paragraphs), 'en') == [
    'Dr. Smith left.',
    'He was tired.',
    'So it ends',
  ]


def test_sentences_are_left_alone():
  lines = ['One. Two.  Three.', ' ']
  assert split(Document(lines, True), 'en') == ['One. Two.  Three.']


@pytest.mark.parametrize(
  'language, sentences',
  [
    ('de', ['Am 3. Oktober kam er.', 'Er ging.']),
    ('en', ['Am 3.', 'Oktober kam er.', 'Er ging.']),
    ('ja', ['今日は晴れ。', '明日は雨。']),
    ('xx', ['Aa bb.', 'Cc dd.']),  # unknown
  ],
)
def test_sentences_end_as_in_the_language(language, sentences):
  text = ('' if language == 'ja' else ' ').join(sentences)
  assert split(Document([text]), language) == sentences
