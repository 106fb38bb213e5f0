"""Tests of where pieces stand in their text."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_jax.tokenization import basic_tokenizer, offsets, tokenizer

WORDS = (
  *tokenizer.SPECIAL,
  *'the cafe ##s cat . , 京 都 は ##は ᄒ ##ᅡ ##ᆫ 한 ##국 é in σας ##ς'.split(),
)
UNCASED = tokenizer.Tokenizer(WORDS)
CASED = tokenizer.Tokenizer(WORDS, lowercase=False)
KEPT = tokenizer.Tokenizer(WORDS, lowercase=True, strip_accents=False)
UNKNOWN = {
  how: tokenizer.Tokenizer(tokenizer.SPECIAL, *how)
  for how in itertools.product([True, False], repeat=2)
}
# What texts in several languages are made of, with all that is awkward.
PARTS = (
  *"The CAFÉ cats cat . , 京都は 東京 は 한국 ΣΑΣ ς İn ß مِصْر हिन्दी ﬁ Å 's [MASK]".split(),
  *('cafe\u0301', '\u1112\u1161\u11ab', ' ', '  ', '\n', '\t', '\u3000'),
  *('\u2028', '\xa0', '\u200b', '\u200d', '\x00', '\x0b', '\ufffd', '\u00ad'),
  *('🐈‍⬛', '\u0301'),
  *('\u0327\u0301', '\u0301\u0327', '\u302e', 'a\u302e\u1b44', 'a\u302e\u0327'),
  *('\ud800', 'x' * 201),
)
TEXTS = st.lists(st.sampled_from(PARTS), max_size=8).map(''.join)


def find(words, text):
  """Returns (piece, what stands in the text) of each piece."""
  [found] = offsets.locate(words, [text])
  return [
    (words.vocab[i], text[a:b])
    for i, a, b in zip(found.ids, found.begins, found.ends, strict=True)
  ]


@pytest.mark.parametrize(
  ('words', 'text', 'expected'),
  [
    (
      UNCASED,
      'The CAFÉs,\ncat.',
      [
        *(('the', 'The'), ('cafe', 'CAFÉ'), ('##s', 's'), (',', ',')),
        *(('cat', 'cat'), ('.', '.')),
      ],
    ),
    # The accent is a character of its own, which belongs to the letter.
    (UNCASED, 'cafe\u0301s', [('cafe', 'cafe\u0301'), ('##s', 's')]),
    # Control characters are dropped, wherever they stand.
    (UNCASED, '\u200bc\x00at\u200b.', [('cat', 'c\x00at'), ('.', '.')]),
    (UNCASED, '京都は', [('京', '京'), ('都', '都'), ('は', 'は')]),
    # Three pieces of a syllable that is one character.
    (UNCASED, '한', [('ᄒ', '한'), ('##ᅡ', '한'), ('##ᆫ', '한')]),
    (CASED, '한국', [('한', '한'), ('##국', '국')]),
    (CASED, 'the The', [('the', 'the'), ('[UNK]', 'The')]),
    (KEPT, 'É', [('é', 'É')]),
    (UNCASED, 'xyz[MASK]', [('[UNK]', x) for x in ('xyz', '[', 'MASK', ']')]),
    (UNCASED, ' \n', []),
  ],
)
def test_pieces_stand_where_a_reader_sees_them(words, text, expected):
  assert find(words, text) == expected


@settings(deadline=None, max_examples=50)
@given(TEXTS, st.sampled_from([UNCASED, CASED, KEPT]))
def test_offsets_are_in_order_and_hold_what_the_piece_was_made_of(text, words):
  [found] = offsets.locate(words, [text])
  assert found.ids.tolist() == words.ids([text])[0]
  before = 0
  for i, a, b in zip(found.ids, found.begins, found.ends, strict=True):
    assert before <= a < b <= len(text)
    before = a
    if i != words.unk_id:
      piece = words.vocab[i].removeprefix('##')
      rest = basic_tokenizer.split_words(
        text[a:b], words.lowercase, words.strip_accents
      )
      # A sigma at the end of a part is not at the end of its word.
      assert piece.replace('ς', 'σ') in ''.join(rest).replace('ς', 'σ')


# Marks that are sorted and kept.
@example('a\u302e\u1b44', True, True)
@settings(deadline=None, max_examples=50)
@given(TEXTS | st.text(), st.booleans(), st.booleans())
def test_words_are_made_of_what_stands_there(text, lowercase, strips):
  [found] = offsets.locate(UNKNOWN[lowercase, strips], [text])
  made = [
    ''.join(basic_tokenizer.split_words(text[a:b], lowercase, strips))
    for a, b in zip(found.begins, found.ends, strict=True)
  ]
  words = basic_tokenizer.split_words(text, lowercase, strips)
  # What follows a sigma decides which one it becomes.
  assert [x.replace('ς', 'σ') for x in made] == [
    x.replace('ς', 'σ') for x in words
  ]
