import random
import string

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from bert_jax.tokenization import basic_tokenizer, wordpiece

_PRINTABLE = ''.join(map(chr, range(32, 127)))


def _spell(word):
  """Gives a word two ids that name it, or none at all."""
  h = sum(c * 31**k for k, c in enumerate(word)) % (1 << 32)
  return np.array([h, len(word)][: len(word) % 3], '<u4').tobytes()


def _expected(lines, lower=True):
  words = [
    [w.encode() for w in basic_tokenizer.split_words(x, lower)] for x in lines
  ]
  found = [b''.join(map(_spell, x)) for x in words]
  return b''.join(found), [len(x) // 4 for x in found]


def _ids(table, lines):
  ids, counts = table(''.join(f'{line}\n' for line in lines).encode('latin-1'))
  return ids.tobytes(), counts.tolist()


def _table(lower=True):
  return wordpiece.ByteWords(_spell, np.dtype('<u4'), lower)


@pytest.mark.parametrize('lower', [True, False])
@hypothesis.settings(deadline=None, max_examples=40)
@hypothesis.given(
  st.lists(st.text(st.sampled_from(_PRINTABLE + 'aab  '), max_size=60))
)
def test_lines_have_the_ids_of_their_words(lower, lines):
  table = _table(lower)
  assert _ids(table, lines) == _expected(lines, lower)
  assert _ids(table, lines) == _expected(lines, lower)  # remembered


def test_words_of_every_length_are_told_apart():
  rng = random.Random(0)
  # Words that agree in all characters but one, at any place.
  words = []
  for n in range(1, 40):
    word = ''.join(rng.choices(string.ascii_lowercase, k=n))
    words += [word[:k] + 'z0'[k % 2] + word[k + 1 :] for k in range(n)]
  lines = [' '.join(words), *words, '', ' ', words[-1] + '.']
  assert _ids(_table(), lines) == _expected(lines)


def test_bytes_above_127_are_letters_of_their_own_case():
  table = _table()
  assert _ids(table, ['Z\xe9\x80, \xff']) == (
    b''.join(map(_spell, [b'z\xe9\x80', b',', b'\xff'])),
    [sum(len(x) % 3 for x in ('zee', ',', 'y'))],
  )


@pytest.mark.parametrize('slots, most', [(4, 10**6), (1 << 10, 20), (4, 3)])
def test_growing_and_beginning_anew_change_nothing(monkeypatch, slots, most):
  monkeypatch.setattr(wordpiece, '_SLOTS', slots)
  monkeypatch.setattr(wordpiece, '_MOST', most)
  rng = random.Random(1)
  table = _table()
  for _ in range(5):
    words = [
      ''.join(rng.choices('abc', k=rng.randint(1, 20))) for _ in range(200)
    ]
    lines = [' '.join(words), words[0]]
    assert _ids(table, lines) == _expected(lines)
  assert (len(table._slots) > slots) == (slots == 4)
