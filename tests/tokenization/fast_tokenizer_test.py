"""A tokenizer.json gives the library's ids, in BERT's frame, and its words."""

import json

import numpy as np
import pytest
import tokenizers

from bert_jax import errors
from bert_jax.tokenization import fast_tokenizer, offsets
from tests import bpe

MAILED = "don't  see <mail>(the\ncats, naïve): 12a"


def test_text_cannot_put_special_tokens_into_training_data():
  words = bpe.load()
  special = {words._index[x] for x in bpe.SPECIAL}
  assert not special & {*words.ids(['a [MASK] [SEP]'])[0]}
  masked = words.encode('the [MASK] sat', 'cat')
  assert words.tokens(masked['input_ids'])[:4] == [
    *('[CLS]', 'the', '[MASK]', 'Ġsat')
  ]
  assert masked['segment_ids'] == [0] * 5 + [1] * (
    len(words.ids(['cat'])[0]) + 1
  )
  [packed] = words.packed(['the cat'])
  assert np.frombuffer(packed, '<u2').tolist() == words.ids(['the cat'])[0]
  assert words.decode(words.ids([MAILED])[0]) == MAILED


def test_truncation_and_padding_of_the_file_are_not_used():
  library = tokenizers.Tokenizer.from_str(bpe.make())
  library.enable_truncation(3)
  library.enable_padding(length=8)
  words = fast_tokenizer.parse(library.to_str().encode(), 'x.json')
  assert words.ids([bpe.TEXT]) == bpe.load().ids([bpe.TEXT])


def test_words_begin_where_the_library_cuts():
  words = bpe.load()
  for text in (bpe.TEXT, MAILED):
    made = words.library.encode(text, add_special_tokens=False)
    goes_on = np.diff(made.word_ids) == 0
    assert words.continues(np.array([made.ids]))[0, 1:].tolist() == (
      goes_on.tolist()
    )


def test_offsets_are_of_the_original_text_without_spaces_before_pieces():
  text = 'the  cafe\u0301 cats'
  [found] = offsets.locate(bpe.load(), [text])
  parts = [text[a:b] for a, b in zip(found.begins, found.ends, strict=True)]
  assert parts[0] == 'the'
  assert parts[-1] in 'cats' and ''.join(parts).endswith('cats')
  assert not any(x != x.strip() for x in parts)
  assert found.ids.tolist() == bpe.load().ids([text])[0]


def change_frame(last):
  frame = json.loads(bpe.make())['post_processor']
  frame['single'][2]['SpecialToken']['id'] = last
  return {'post_processor': frame}


@pytest.mark.parametrize(
  'changes, said',
  [
    ({'added_tokens': []}, r'lacks the special tokens \[PAD\], \[UNK\]'),
    ({'decoder': None}, 'lacks a pre_tokenizer or a decoder'),
    ({'post_processor': None}, r'frames a as a, unlike \[CLS\] a \[SEP\]'),
    (change_frame('[CLS]'), r'frames a as \[CLS\] a \[CLS\]'),
    ({'model': {'type': 'Other'}}, 'cannot be read by tokenizers'),
  ],
)
def test_others_are_refused(changes, said):
  with pytest.raises(errors.UserError, match=said):
    bpe.load(**changes)


def test_equal_pieces_with_other_merges_are_another_tokenizer(tmp_path):
  model = json.loads(bpe.make())['model']
  model['merges'] = model['merges'][::-1]
  assert bpe.load(model=model).vocab == bpe.load().vocab
  assert bpe.load(model=model) != bpe.load()
  path = tmp_path / 'tokenizer.json'
  path.write_bytes(bpe.load().to_bytes())
  assert fast_tokenizer.load(str(path), False, None) == bpe.load()
  with pytest.raises(errors.UserError, match='set data.lowercase=False'):
    fast_tokenizer.load(str(path), True)
