import time

import pytest
import sentencex

from bert_jax.corpus.document import Document, fold, split, split_joined
from bert_jax.tokenization import basic_tokenizer


def test_copies_become_equal_and_nothing_is_left_of_blank_paragraphs():
  one = (
    'Dr. Smith  left. He was\u00a0tired. ',
    '',
    ' \n\u200b',
    'So it\u2028ends',
  )
  other = (
    '\ufeffDr. Smith left.\u200b He was tired.',
    'So\u00ad it  ends',
    '\u200d',
  )
  assert fold(Document([*one])) == fold(Document([*other]))
  assert fold(Document([*one], True)) == (
    ['Dr. Smith left. He was tired.', 'So it ends'],
    True,
  )


@pytest.mark.parametrize(
  'text, folded',
  [
    ('ភាសា\u200bខ្មែរ', 'ភាសា ខ្មែរ'),
    ('ภาษา\u200b\u200bไทย\u200b', 'ภาษา ไทย'),
    ('\u200bမြန်မာ\u200bABC', 'မြန်မာ ABC'),
    ('ພາສາ\u200b1', 'ພາສາ 1'),
    ('བོད\u200bསྐད', 'བོད སྐད'),
    ('soft\u200bware', 'software'),
    ('می\u200cخواهم', 'میخواهم'),  # as by the tokenizer
  ],
)
def test_a_zero_width_space_ends_words_of_scripts_without_spaces(text, folded):
  assert fold(Document([text])).paragraphs == [folded]


def test_folding_changes_no_word_and_most_text_not_at_all():
  assert fold(Document([' a '])).paragraphs == ['a']
  texts = ['Any text, “such” as – Gödel’s 1.5 €.', '中文。', '한국어 e\u0301']
  assert fold(Document(texts)).paragraphs == texts
  odd = 'a\u00a0b\u3000c\x85d\u2029e\ufefff\u2060g\u200eh\ti\u0000j ﬁ\ufffd'
  [folded] = fold(Document([odd])).paragraphs
  words = basic_tokenizer.split_words
  assert words(folded, True) == words(odd, True)


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


@pytest.mark.parametrize(
  'text, sentences',
  [
    (
      '5" of it. We left. She said "No. Never." He went. "Once. "Twice."',
      ['5" of it.', 'We left.', 'She said "No. Never."', 'He went.', '"Once.']
      + ['"Twice."'],
    ),
    ('"I came." "He did. Yes," I said. Go.', None),
    ('他说"你好。再见。"然后走了。他来了。', None),
  ],
)
def test_a_stray_quotation_mark_glues_no_sentences(text, sentences):
  expected = sentences or list(map(str.strip, sentencex.segment('en', text)))
  assert split(Document([text]), 'en') == expected


@pytest.mark.parametrize('text', ['“a. ', '"(a. “b. ', '😀.', 'a', '" a" b. '])
def test_long_text_is_split_whole_in_linear_time(text):
  size = 200_000
  begin = time.process_time()
  found = split(Document([text * (size // len(text))]), 'en')
  assert time.process_time() - begin < 2  # the first took 3 s
  assert ''.join(''.join(found).split()) == ''.join(
    (text * (size // len(text))).split()
  )


def test_joined_sentences_are_the_text():
  paragraphs = ['He left. “She” did not.', '我來了。你走了。', 'End']
  text = Document(paragraphs)
  parts = split_joined(text, 'en')
  assert parts[:2] == ['He left.', ' “She” did not.']
  assert ''.join(parts) == '\n'.join(paragraphs)
  assert [x.strip() for x in parts] == split(text, 'en')
  lines = Document(['One.', 'Two.'], are_sentences=True)
  assert split_joined(lines, 'en') == ['One.', ' Two.']


def test_a_whole_text_keeps_what_bert_drops():
  text = 'می\u200cخواهم  \U0001f469\u200d\U0001f52c ไทย\u200bไทย'
  assert fold(Document([text, ' ']), whole=True).paragraphs == [
    text.replace('  ', ' ')
  ]
