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


def test_abbreviations_are_those_of_the_language():
  text = ['Am 3. Oktober kam er. Er ging.']
  german = split(Document(text), 'de')
  assert german == ['Am 3. Oktober kam er.', 'Er ging.']
  assert split(Document(text), 'en')[0] == 'Am 3.'


def test_other_scripts_have_their_own_full_stops():
  found = split(Document(['今日は晴れ。明日は雨。']), 'ja')
  assert found == ['今日は晴れ。', '明日は雨。']


def test_unknown_languages_still_split():
  assert split(Document(['Aa bb. Cc dd.']), 'xx') == [
    'Aa bb.',
    'Cc dd.',
  ]
