"""Tests of the rows that tag words, with context from their document."""

import numpy as np
import pytest

from bert_jax.finetuning import encode, tags
from bert_jax.finetuning.readers import conll
from tests import models

# [PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s
THE, CAT, DOG, S = 5, 6, 7, 8


def make(length, *documents):
  """Encodes documents, which are lists of sentences."""
  sentences = [
    conll.Sentence(i, 1, text.split(), None)
    for i, document in enumerate(documents)
    for text in document
  ]
  how = encode.How(models.TOKENIZER, length)
  encoded, positions, ends = tags.make_windows(how, sentences)
  rows = np.split(encoded.ids, encoded.ends[:-1])
  found = [x.tolist() for x in np.split(positions, ends[:-1])]
  return [row.tolist()[1:-1] for row in rows], found


def test_a_word_is_tagged_at_its_first_piece():
  rows, positions = make(16, ['the cats dog'])
  assert rows == [[THE, CAT, S, DOG]]
  assert positions == [[1, 2, 4]]


def test_a_sentence_sees_its_neighbours_up_to_the_length():
  rows, positions = make(7, ['the the', 'cats', 'dog dog'])
  assert rows == [
    [THE, THE, CAT, S, DOG],
    [THE, CAT, S, DOG, DOG],
    [THE, CAT, S, DOG, DOG],
  ]
  assert positions == [[1, 2], [2], [4, 5]]


def test_context_ends_where_the_document_does():
  rows, _ = make(16, ['the'], ['cat', 'dog'])
  assert rows == [[THE], [CAT, DOG], [CAT, DOG]]


def test_a_sentence_that_is_too_long_gets_more_rows_and_loses_no_word():
  rows, positions = make(6, ['cats the dog cats the'])
  assert rows == [[CAT, S, THE, DOG], [DOG, CAT, S, THE]]
  assert positions == [[1, 3, 4], [2, 4]]


def test_a_word_longer_than_a_row_is_cut_and_one_without_pieces_unknown():
  rows, positions = make(5, ['dogssss'])
  assert rows == [[DOG, S, S]] and positions == [[1]]
  rows, positions = make(5, ['\u200b'])
  assert rows == [[1]] and positions == [[1]]


@pytest.mark.parametrize('length', range(5, 20))
def test_every_word_is_tagged_once_whatever_the_length(length):
  document = ['the cats', 'dogs ' * 7, 'cat', 'the ' * 9]
  words = sum(len(x.split()) for x in document)
  rows, positions = make(length, document)
  assert sum(map(len, positions)) == words
  assert max(map(len, rows)) <= length - 2
  firsts = [
    row[i - 1] for row, x in zip(rows, positions, strict=True) for i in x
  ]
  pieces = {'the': THE, 'cats': CAT, 'cat': CAT, 'dogs': DOG}
  assert firsts == [pieces[w] for x in document for w in x.split()]
