"""Decides whether the tokenizer in a model's folder is exactly BERT's.

What the files declare is compared with BERT's first, then what a tokenizer.json
does to texts.
"""

import collections
import itertools
import operator
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tokenizers

from bert_jax import errors
from bert_jax.tokenization.tokenizer import SPECIAL, Tokenizer

# Classes of transformers, without Fast: those that do what a tokenizer.json
# says, and those that split as BERT's.
GENERIC = 'PreTrainedTokenizer', 'TokenizersBackend'
_SAME = tuple(
  f'{x}Tokenizer'
  for x in 'Bert ConvBert DistilBert Electra LayoutLM MobileBert'.split()
)
# Parts of a tokenizer.json, and what they are in BERT's.
_PARTS = {
  'model': ('WordPiece',),
  'normalizer': ('BertNormalizer', 'NoneType'),
  'pre_tokenizer': ('BertPreTokenizer',),
  'model.continuing_subword_prefix': ('##',),
  'model.unk_token': ('[UNK]',),
}
# Settings that change how text is split, and the only value that is BERT's.
_USUAL = {
  'do_basic_tokenize': True,
  'do_word_tokenize': True,
  'do_subword_tokenize': True,
  'split_special_tokens': False,
  'word_tokenizer_type': 'basic',
  'subword_tokenizer_type': 'wordpiece',
  **{f'{x[1:-1].lower()}_token': x for x in SPECIAL},
}
_EACH = 12  # pieces of a kind in a probe


def get_word(value: Any) -> str | None:
  """Returns the text of a token, which may be an object that describes it."""
  value = value.get('content') if isinstance(value, dict) else value
  return value if isinstance(value, str) else None


def refuse(directory: str, problem: str):
  """Raises errors.UserError since a tokenizer is not BERT's."""
  raise errors.UserError(
    f"{directory}: the tokenizer is not BERT's: {problem}; here text would be "
    'split into other pieces than its model has learnt, so use another model.'
  )


def check_declared(
  directory: str, settings: Mapping[str, Any], fast: tokenizers.Tokenizer | None
):
  """Raises errors.UserError if files of a folder name another tokenizer."""
  never = settings.get('never_split')
  # What reads a tokenizer.json does not look at it.
  never = never if fast is None and type(never) is list else []
  facts = [  # name, value, values that are BERT's
    ('tokenizer_class', settings['tokenizer_class'], (*_SAME, *GENERIC, '')),
    ('auto_map', 'AutoTokenizer' in str(settings.get('auto_map')), (False,)),
    ('never_split', [x for x in never if x not in SPECIAL], ([],)),
  ]
  for name, usual in _USUAL.items():
    value = settings.get(name)
    facts.append((name, get_word(value) or value, (usual, None)))
  for name, usual in _PARTS.items() if fast is not None else ():
    value = operator.attrgetter(name)(fast)
    value = value if isinstance(value, str) else type(value).__name__
    facts.append((f'{name} in tokenizer.json', value, usual))
  for name, value, usual in facts:
    if value not in usual:
      refuse(directory, f'its {name} is {value!r}, not {usual[0]!r}')


def check_pieces(directory: str, kind: str, vocab: Sequence[str]):
  """Raises errors.UserError if no piece begins with ##.

  Of BERT's class, or of letters alone, as of proteins, a vocabulary may lack them.
  """
  words = [x for x in vocab if len(x) > 1 and x not in SPECIAL]
  if kind not in _SAME and words and not any(x[:2] == '##' for x in words):
    refuse(directory, 'no piece begins with ##, nor is it a BertTokenizer')


def compare(directory: str, fast: tokenizers.Tokenizer, ours: Tokenizer):
  """Raises errors.UserError if tokenizer.json gives other ids than ours.

  Left out is what differs between Google's BERT and the one of `tokenizers`
  (docs/tokenizer.md): words of 101 to 200 letters, if they are [UNK] there;
  characters that Unicode has added or changed since 2002; final sigma. So are
  control characters that are in no piece, and special tokens within a text.
  """
  fast.no_truncation()
  fast.no_padding()
  framed = fast.post_processor is not None
  texts = [x for x in _list_probes(ours) if all(map(_is_old, x))]
  for text, ids in zip(texts, ours.ids(texts), strict=True):
    theirs = fast.encode(text).ids
    ids = [ours.cls_id, *ids, ours.sep_id] if framed else ids
    if theirs != ids:
      there, here = (
        errors.listing([ours.vocab[i] if i < ours.size else str(i) for i in x])
        for x in (theirs, ids)
      )
      text = text if len(text) < 60 else f'{text[:20]}... ({len(text)} letters)'
      refuse(
        directory, f'tokenizer.json makes of {text!r} {there}; here {here}'
      )
  pair, segments = fast.encode('a', 'b'), ours.encode('a', 'b')['segment_ids']
  if framed and pair.type_ids != segments:
    refuse(directory, f'its pairs have the segments {pair.type_ids}')


def _list_probes(ours) -> Iterator[str]:
  """Yields texts made of a tokenizer's pieces and added words."""
  kinds = collections.defaultdict(list)
  for piece in ours.vocab[:: 1 + ours.size // 20_000]:
    word = piece.removeprefix('##')
    if word and piece not in SPECIAL:
      whole = unicodedata.normalize('NFD', word) == word  # no accent, no Hangul
      kinds[unicodedata.category(word[0]), whole].append(word)
  for words in kinds.values():
    words = _spread(words)
    yield from words
    for a, b in itertools.pairwise(words):
      yield from (a + b, f'{a.capitalize()} {b.upper()}', f'{a}!?{b}_{a}')
  yield from (
    'a' * 100,
    'a' * 201,
    'CAFÉ cafe\u0301 Ñandú',
    "don't (e.g.) $5+5=10 ~ `x`",
    '☺ ❤',
  )
  yield ' a\u3000b\xa0c\t\n d  '
  for word, *_ in _spread(ours.added):
    yield from (word, f'a{word}b', word.upper(), word.lower(), f'- {word}.')


def _spread(items: Sequence) -> Sequence:
  """Returns at most `_EACH` items, evenly spread over all."""
  return items[:: max(1, len(items) // _EACH)][:_EACH]


def _is_old(c: str) -> bool:
  """Returns whether a character is as in Unicode 3.2, of 2002."""
  category = unicodedata.category(c)
  same = category == unicodedata.ucd_3_2_0.category(c)
  return same and category not in ('Co', 'Cs', 'Cn') and c != 'Σ'
