import functools
import unicodedata

import hypothesis
import pytest
import tokenizers
from hypothesis import strategies as st

from bert_jax.tokenization import basic_tokenizer
from tests import google_tokenizer

# Characters that the procedure treats in some way, and some that it does not.
_ODD = (
  'aZ09 .,\'"[]#$^`|~\0\t\n\r\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u200b\u200d\u2028'
  '\u2029\u3000\ufffd\ufeff\ue000\U0010fffd\ud800\udfff\u0378'
  'ΑΣσςİıßſẞÉé\u0301\u0327\u0345\u0307\u093f\u20dd\u212a\u1fef\u037e\u0387'
  '一龥㐀豈\ufaff\U00020000\U0002b820\U0002f800かカ゛、。한글하\U0001f600'
)
_CHARACTERS = st.one_of(
  st.sampled_from(_ODD), st.characters(exclude_categories=())
)
_TEXTS = st.text(_CHARACTERS, max_size=40)


@pytest.mark.parametrize(
  'text, lower, cased',
  [
    ('', [], []),
    ('Hi, Tom!', ['hi', ',', 'tom', '!'], ['Hi', ',', 'Tom', '!']),
    ("don't a_b", ['don', "'", 't', 'a', '_', 'b'], None),
    ('3.5$ x^2', ['3', '.', '5', '$', 'x', '^', '2'], None),
    ('Ünï\u0301', ['uni'], ['Ünï\u0301']),
    ('a\0b\x0bc\x1cd\x85e\ufffdf\u200bg\xadh', ['abcdefgh'], None),
    ('a b\tc\nd\re\xa0f\u3000g\u2028h', list('abcdefgh'), None),
    ('東京a東', ['東', '京', 'a', '東'], None),
    ('\U0002b820x', ['\U0002b820', 'x'], None),
    ('ひらカナ。', ['ひらカナ', '。'], None),
    ('x\ue000y', ['x\ue000y'], None),
    ('\ud800 x', ['\ud800', 'x'], None),
    ('\u0378', ['\u0378'], None),
    ('a\u0301 \u0301', ['a'], ['a\u0301', '\u0301']),
    ('«a—b»', ['«', 'a', '—', 'b', '»'], None),
    ('İK\u1fef', ['ik', '`'], ['İK\u1fef']),
  ],
)
def test_words_are_those_of_the_description(text, lower, cased):
  assert basic_tokenizer.split_words(text, True) == lower
  assert basic_tokenizer.split_words(text, False) == (
    lower if cased is None else cased
  )


def test_every_treated_character_equals_the_literal_procedure():
  kinds = 'MPZC'  # marks, punctuation, spaces, controls: all; others: some
  codes = [
    code
    for code in range(0x110000)
    if code < 0x600
    or code % 512 == 0
    or (unicodedata.category(chr(code))[0] in kinds and code < 0xE000)
    or code in range(0xF8F0, 0x10000)
    if code % 8 == 0
    or unicodedata.category(chr(code)) not in ('Cn', 'Co', 'Cs')
  ]
  assert len(codes) > 4000
  for code in codes:
    text = f'a{chr(code)}Σ'
    for lowercase in (True, False):
      expected = google_tokenizer.words(text, lowercase)
      words = basic_tokenizer.split_words(text, lowercase)
      assert words == expected, hex(code)


@hypothesis.settings(deadline=None, max_examples=80)
@hypothesis.given(_TEXTS, st.booleans())
def test_any_text_equals_the_literal_procedure(text, lowercase):
  expected = google_tokenizer.words(text, lowercase)
  assert basic_tokenizer.split_words(text, lowercase) == expected


@pytest.mark.parametrize(
  'text, kept, stripped',
  [
    ('한국어 Й É', ['한국어', 'й', 'é'], ['한국어', 'и', 'e']),
    ('हिन्दी में', ['हिन्दी', 'में'], ['हिनदी', 'म']),
    ('ภาษาไทยที่', ['ภาษาไทยที่'], ['ภาษาไทยท']),
    ('がぱ', ['がぱ'], ['かは']),
    ('שָׁלוֹם', ['שָׁלוֹם'], ['שלום']),
    ('ΟΔΟΣ', ['οδοσ'], ['οδος']),
    ('İ', ['i\u0307'], ['i']),
    ('É 東É!', ['é', '東', 'é', '!'], ['e', '東', 'e', '!']),
  ],
)
def test_lower_case_can_keep_accents(text, kept, stripped):
  assert basic_tokenizer.split_words(text, True, False) == kept
  as_google = [unicodedata.normalize('NFD', word) for word in stripped]
  assert basic_tokenizer.split_words(text, True, True) == as_google
  assert basic_tokenizer.split_words(text, True) == as_google


_normalizer = functools.cache(tokenizers.normalizers.BertNormalizer)
_SPLIT = tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str


def _hugging_face(text, lowercase, strip_accents):
  normalizer = _normalizer(lowercase=lowercase, strip_accents=strip_accents)
  return [word for word, _ in _SPLIT(normalizer.normalize_str(text))]


@functools.cache
def _is_alike(c):
  """Says whether `tokenizers` classes a character as this Python does.

  It has other tables of Unicode, and drops private use: docs/tokenizer.md.
  """
  return unicodedata.category(c) not in ('Co', 'Cs') and all(
    _hugging_face(f'a{c}b {c}', lowercase, strip)
    == basic_tokenizer.split_words(f'a{c}b {c}', lowercase, strip)
    for lowercase in (True, False)
    for strip in (True, False)
  )


@hypothesis.settings(deadline=None, max_examples=80)
@hypothesis.given(
  st.lists(
    st.one_of(
      st.sampled_from(_ODD),
      st.characters(),
      st.sampled_from('한글각\u1112\u1161\u11abहिन्दीทที่がはשָׁىًÉ\u0301\u0327ΣσΑİ'),
    ).filter(_is_alike),
    max_size=40,
  ),
  st.sampled_from([(True, False), (False, True), (False, False)]),
)
def test_any_text_has_the_words_of_tokenizers(characters, how):
  text = ''.join(characters)
  assert basic_tokenizer.split_words(text, *how) == _hugging_face(text, *how)
