"""Tests of the windows of passages."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_jax.finetuning import encode, span_windows
from bert_jax.finetuning.readers import squad
from bert_jax.model import classifier
from bert_jax.tokenization import offsets
from tests import models

# [PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s
CLS, SEP, THE, CAT, DOG, S = 2, 3, 5, 6, 7, 8
WORDS = models.TOKENIZER


def make(questions, passage, max_length=10, stride=2, query=2):
  spans = classifier.Spans(stride, query, 9, None)
  how = encode.How(WORDS, max_length, settings=spans)
  rows = [squad.Question(x, x, 0, ()) for x in questions]
  made, _ = span_windows.encode_questions(
    how, squad.Squad('', rows, passages=(passage,))
  )
  rows = np.split(made.encoded.ids, made.encoded.ends[:-1])
  return [row.tolist() for row in rows], made


def test_a_long_passage_has_windows_every_few_tokens():
  rows, made = make(['dog'], 'the cats dog the cat', max_length=8)
  # The cat ##s dog | ##s dog the cat, of 6 tokens in all.
  assert rows == [
    [CLS, DOG, SEP, THE, CAT, S, DOG, SEP],
    [CLS, DOG, SEP, S, DOG, THE, CAT, SEP],
  ]
  assert made.tokens.tolist() == [0, 2] and made.questions.tolist() == [0, 0]
  assert made.encoded.firsts.tolist() == [3, 3]
  # Up to ##s, at 5, the left context is the smaller one in the second window.
  assert made.starts.tolist() == [[3, 6], [4, 7]]


def test_a_long_question_is_cut_and_makes_room_for_less_of_the_passage():
  rows, made = make(['cat cat cat', ''], 'the dog', max_length=7)
  assert rows == [
    [CLS, CAT, CAT, SEP, THE, DOG, SEP],
    [CLS, SEP, THE, DOG, SEP],
  ]
  assert made.questions.tolist() == [0, 1]
  rows, _ = make(['cat cat cat'], 'the dog', max_length=5)
  assert rows == [[CLS, CAT, SEP, THE, SEP], [CLS, CAT, SEP, DOG, SEP]]


def test_a_question_about_nothing_has_a_row():
  rows, made = make(['dog'], ' ')
  assert rows == [[CLS, DOG, SEP, SEP]]
  assert made.starts.tolist() == [[3, 3]]


# A much shorter last window, with a little more context at token 260.
@example(321, 320, 200)
@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 25))
def test_windows_have_every_token_and_one_of_them_is_best(size, room, stride):
  spans = span_windows.split(size, room, stride)
  best = span_windows.find_best(spans)
  for token in range(size):
    # As it is written in run_squad.py, one token at a time.
    scores = [
      min(token - a, b - 1 - token) + 0.01 * (b - a) if a <= token < b else -1
      for a, b in spans
    ]
    chosen = [i for i, (a, b) in enumerate(best) if a <= token < b]
    assert chosen == [int(np.argmax(scores))]
  assert spans[-1][1] == size and all(0 <= b - a <= room for a, b in spans)


@pytest.mark.parametrize(
  ('text', 'answer', 'tokens'),
  [
    ('The CAT, dog', 'CAT', (1, 1)),
    ('The CATs dog', 'CATs dog', (1, 3)),
    ('The CATs dog', 'AT', (1, 1)),  # a part of a piece
    ('The  dog', ' ', None),
    ('The\u200b dog', '\u200b', None),
    ('dogé', 'é', (0, 0)),  # of [UNK], which is the whole word
  ],
)
def test_the_tokens_of_an_answer_are_those_with_its_characters(
  text, answer, tokens
):
  [located] = offsets.locate(WORDS, [text])
  begin = text.index(answer)
  found = span_windows.find_tokens(located, begin, begin + len(answer))
  assert found == tokens


def test_an_answer_is_a_label_only_where_all_of_it_is():
  _, made = make(['dog'], 'the cats dog the cat', max_length=8)
  # ##s dog: at 5 and 6, and at 3 and 4; cats: only in the first window.
  for span, expected in (
    ((2, 3), [[5, 6], [3, 4]]),
    ((1, 2), [[4, 5], [0, 0]]),
    ((3, 5), [[0, 0], [4, 6]]),
    ((3, 4), [[0, 0], [4, 5]]),  # not on [SEP]
    ((1, 5), [[0, 0], [0, 0]]),
    ((-1, -1), [[0, 0], [0, 0]]),
  ):
    parts = made.encoded, made.questions, made.tokens
    assert span_windows.label(*parts, np.array([span])).tolist() == expected
