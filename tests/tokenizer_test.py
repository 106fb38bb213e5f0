import os
import pathlib
import pickle

import pytest
import tokenizers

from bert_jax import errors, tokenizer

_PIECES = (
  '[PAD] [UNK] [CLS] [SEP] [MASK] the man went un ##aff ##able [ ] mask . '
  'a b c 東 京 ##b'
).split()


def _load(tmp_path, pieces=_PIECES, lowercase=True, end='\n'):
  path = tmp_path / 'vocab.txt'
  path.write_bytes(end.join([*pieces, '']).encode())
  return tokenizer.Tokenizer.load(str(path), lowercase)


def _real(name):
  root = os.environ.get('BERT_JAX_TEST_DATA')
  if not root:
    pytest.skip('BERT_JAX_TEST_DATA names no directory with real data')
  return pathlib.Path(root) / name


def _without_cache(wordpiece):
  plain = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(
      vocab={piece: i for i, piece in enumerate(wordpiece.vocab)},
      unk_token='[UNK]',
      max_input_chars_per_word=200,
    )
  )
  plain.normalizer = tokenizers.normalizers.BertNormalizer(
    lowercase=wordpiece.lowercase
  )
  plain.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  return plain


def test_longest_pieces_are_taken_first_and_case_is_dropped(tmp_path):
  wordpiece = _load(tmp_path)
  ids = wordpiece.ids(['The MAN went.', 'unaffable', '', 'thé zebra'])
  assert ids == [[5, 6, 7, 14], [8, 9, 10], [], [5, 1]]
  assert wordpiece.tokens(ids[1]) == ['un', '##aff', '##able']
  assert wordpiece.decode(ids[1] + [6]) == 'unaffable man'


def test_cased_vocabulary_keeps_case_and_accents(tmp_path):
  wordpiece = _load(tmp_path, lowercase=False)
  assert wordpiece.ids(['The the thé']) == [[1, 5, 1]]


def test_chinese_characters_are_words(tmp_path):
  assert _load(tmp_path).ids(['東京a東']) == [[18, 19, 15, 18]]


def test_words_of_more_than_200_characters_are_unknown(tmp_path):
  wordpiece = _load(tmp_path)
  ids = wordpiece.ids(['a' + 'b' * 199, 'a' + 'b' * 200])
  assert ids == [[15] + [20] * 199, [1]]


def test_corpus_text_cannot_inject_special_tokens(tmp_path):
  wordpiece = _load(tmp_path)
  assert wordpiece.ids(['the [MASK]']) == [[5, 11, 13, 12]]
  encoded = wordpiece.encode('the[MASK] .')
  assert encoded['input_ids'] == [2, 5, 4, 14, 3]


def test_encode_adds_segments_and_padding(tmp_path):
  assert _load(tmp_path).encode('the man', 'went', max_length=8) == {
    'input_ids': [2, 5, 6, 3, 7, 3, 0, 0],
    'input_mask': [1, 1, 1, 1, 1, 1, 0, 0],
    'segment_ids': [0, 0, 0, 0, 1, 1, 0, 0],
  }


def test_truncation_shortens_the_longer_text(tmp_path):
  wordpiece = _load(tmp_path)
  pair = wordpiece.encode('the man', 'a b c a b c', max_length=7)
  assert pair['input_ids'] == [2, 5, 6, 3, 15, 16, 3]
  equal = wordpiece.encode('the man', 'a b', max_length=6)
  assert equal['input_ids'] == [2, 5, 6, 3, 15, 3]
  single = wordpiece.encode('a b c a', max_length=4)
  assert single['input_ids'] == [2, 15, 16, 3]
  with pytest.raises(errors.UserError, match='max_length=2 .* at least 3'):
    wordpiece.encode('a', 'b', max_length=2)


def test_special_ids_come_from_the_vocabulary(tmp_path):
  wordpiece = _load(tmp_path, ['x', *_PIECES])
  assert (wordpiece.pad_id, wordpiece.unk_id, wordpiece.cls_id) == (1, 2, 3)
  assert (wordpiece.sep_id, wordpiece.mask_id, wordpiece.size) == (4, 5, 22)


def test_control_characters_join_what_they_stand_between(tmp_path):
  wordpiece = _load(tmp_path)
  texts = [f'a{c}b' for c in '\x0b\x0c\x1c\x1d\x1e\x1f\x85\x00\u200b']
  assert wordpiece.ids(texts) == [[15, 20]] * 9
  spaces = [f'a{c}b' for c in ' \t\n\r\xa0\u2009\u2028\u3000']
  assert wordpiece.ids(spaces) == [[15, 16]] * 8


def test_every_character_splits_as_without_the_cache(tmp_path):
  wordpiece = _load(tmp_path)
  plain = _without_cache(wordpiece)
  # Three million code points take seconds; these hold all special ones.
  blocks = [range(1, 0x3100), range(0x4DF0, 0x4E10), range(0xF8F0, 0xFFF0)]
  texts = [f'a{chr(c)}b' for block in blocks for c in block]
  expected = [plain.encode(t, add_special_tokens=False).ids for t in texts]
  assert wordpiece.ids(texts) == expected


def test_a_full_cache_changes_no_ids(tmp_path, monkeypatch):
  monkeypatch.setattr(tokenizer, '_MAX_CACHED_CHARS', 4)
  wordpiece = _load(tmp_path)
  for _ in range(2):
    assert wordpiece.ids(['the man', 'went the']) == [[5, 6], [7, 5]]
    assert wordpiece.ids(['a b']) == [[15, 16]]
  assert len(wordpiece._cache) == 2


def test_a_copy_leaves_the_cache_behind(tmp_path):
  wordpiece = _load(tmp_path)
  wordpiece.ids(['the man'])
  copy = pickle.loads(pickle.dumps(wordpiece))
  assert copy == wordpiece
  assert set(vars(copy)) == {'vocab', 'lowercase'}
  assert copy.ids(['the man']) == [[5, 6]]


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'is empty'),
    (b'\n\n', 'is empty'),
    (b'[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n', r'lacks \[MASK\]'),
    (b'[PAD]\nthe\nman\nthe\n', "'the' in lines 2 and 4"),
    (b'[PAD]\n\nman\n', 'empty line 2'),
    (b'[PAD]\ncaf\xe9\n', 'not UTF-8 at byte 9'),
  ],
)
def test_bad_vocabularies_are_refused(tmp_path, content, message):
  path = tmp_path / 'vocab.txt'
  path.write_bytes(content)
  with pytest.raises(errors.UserError, match=message):
    tokenizer.Tokenizer.load(str(path))


def test_missing_vocabulary_is_named(tmp_path):
  with pytest.raises(errors.UserError, match='none.txt cannot be read'):
    tokenizer.Tokenizer.load(str(tmp_path / 'none.txt'))


def test_windows_line_ends_and_byte_order_mark_are_no_part_of_pieces(tmp_path):
  pieces = ['\ufeff[PAD]', *_PIECES[1:], '\u2028']
  wordpiece = _load(tmp_path, pieces, end='\r\n')
  assert wordpiece.vocab == (*_PIECES, '\u2028')


def test_ids_under_the_released_uncased_vocabulary():
  wordpiece = tokenizer.Tokenizer.load(
    str(_real('vocab/bert-base-uncased/vocab.txt'))
  )
  encoded = wordpiece.encode(
    'our deeds are the reason of this earthquake may allah forgive us all',
    max_length=18,
  )
  assert encoded['input_ids'] == [
    *[101, 2256, 15616, 2024, 1996, 3114, 1997, 2023, 8372, 2089, 16455],
    *[9641, 2149, 2035, 102, 0, 0, 0],
  ]
  assert encoded['input_mask'] == [1] * 15 + [0] * 3
  assert encoded['segment_ids'] == [0] * 18
  text = 'forest fire near la ronge sask canada'
  assert wordpiece.encode(text)['input_ids'] == [
    *[101, 3224, 2543, 2379, 2474, 6902, 3351, 21871, 2243, 2710, 102]
  ]


@pytest.mark.parametrize('lowercase', [True, False])
def test_the_cache_is_exact_on_many_languages(lowercase):
  wordpiece = tokenizer.Tokenizer.load(
    str(_real('vocab/bert-base-multilingual-cased/vocab.txt')), lowercase
  )
  files = sorted(p for p in _real('multilingual').rglob('*') if p.is_file())
  lines = [
    line for path in files for line in path.read_text('utf-8').split('\n')[:150]
  ]
  assert len(lines) > 2000
  plain = _without_cache(wordpiece)
  expected = [
    e.ids for e in plain.encode_batch(lines, add_special_tokens=False)
  ]
  assert wordpiece.ids(lines) == expected
