"""Reads and writes the tokenizer files of a model's folder."""

import json
import os
from typing import Any

import tokenizers

from bert_jax import errors
from bert_jax.interop import config_file, foreign_tokenizer
from bert_jax.model import bert_config
from bert_jax.runtime import files, storage
from bert_jax.tokenization import basic_tokenizer, fast_tokenizer, wordpiece
from bert_jax.tokenization.fast_tokenizer import FastTokenizer
from bert_jax.tokenization.tokenizer import (
  SPECIAL,
  AddedWord,
  Tokenizer,
  check_vocab,
  read_vocab,
)

NAME = 'vocab.txt'
FAST = 'tokenizer.json'
SETTINGS = 'tokenizer_config.json'
WITHOUT_ROW = 'added without an embedding: '
_TOKENS, _ADDED = 'special_tokens_map.json', 'added_tokens.json'
_SPECIAL = {f'{x[1:-1].lower()}_token': x for x in SPECIAL}
_OF_BERT = 'do_lower_case', 'strip_accents', 'tokenize_chinese_chars'
_MOST = 1 << 24  # ids, of which some may have no piece
_EXTRA = 'additional_special_tokens', 'extra_special_tokens'  # until, from 5
_FLAGS = 'single_word', 'normalized', 'special'  # of an added word


def read(
  directory: str, config: bert_config.BertConfig
) -> tuple[Tokenizer, list[str]]:
  """Reads the Tokenizer of vocab.txt, or else of tokenizer.json.

  Words that other files add to it are kept whole. What happens to case and
  accents is read from tokenizer_config.json, or else from tokenizer.json, or else
  follows from the vocabulary. null for strip_accents means: if text is lower-cased.

  Returns:
    The tokenizer, and what it leaves out: pieces and words without embeddings.

  Raises:
    errors.UserError: also if the tokenizer is not exactly BERT's.
  """
  settings, fast = _read_settings(directory), _read_fast(directory)
  odd = TypeError, KeyError, AttributeError, ValueError, OverflowError
  kind, what = settings['tokenizer_class'], 'its added tokens cannot be read'
  how = f'{directory}: {what}', 'save the tokenizer again.', odd
  is_other = fast and type(fast.model).__name__ != 'WordPiece'
  if is_other and kind in foreign_tokenizer.GENERIC:
    with errors.explaining(*how):
      return _read_other(directory, settings, fast, config), []
  foreign_tokenizer.check_declared(directory, settings, fast)
  path = os.path.join(directory, NAME)
  ids = {} if fast is None else fast.get_vocab()
  # transformers 5 saves no vocab.txt.
  if fast is None or os.path.exists(path):
    vocab = read_vocab(path)
  else:
    path, pieces = os.path.join(directory, FAST), {i: x for x, i in ids.items()}
    count = min(max(pieces, default=0) + 1, _MOST)
    vocab = [pieces.get(i, '') for i in range(count)]
    check_vocab(vocab, path)
  case = _read_case(directory, settings, fast, vocab)
  if fast is None:
    foreign_tokenizer.check_pieces(directory, kind, vocab)
  else:
    _check_same(path, vocab, ids, fast.get_added_tokens_decoder())
  with errors.explaining(*how):
    added = _list_added(settings, fast, vocab)
  rows, left_out = _lay_out(directory, vocab, added, config)
  words = tuple(x for x in added if x.id < len(rows))
  tokenizer = Tokenizer(tuple(rows), *case, words)
  if fast is not None:
    foreign_tokenizer.compare(directory, fast, tokenizer)
  return tokenizer, left_out


def _read_other(directory, settings, fast, config) -> FastTokenizer:
  """Returns a tokenizer that is not WordPiece; its settings may not change it."""
  foreign_tokenizer.check_declared(directory, settings, None)
  path, said = os.path.join(directory, FAST), settings.get('add_prefix_space')
  there = getattr(fast.pre_tokenizer, 'add_prefix_space', bool(said))
  changed = ['add_prefix_space'] * (bool(said) != there)
  known = fast.get_added_tokens_decoder()
  for i, x in (settings.get('added_tokens_decoder') or {}).items():
    flags = {*x} & {'content', 'lstrip', 'rstrip', *_FLAGS}
    if any(getattr(known.get(int(i)), k, None) != x[k] for k in flags):
      changed.append(x['content'])
  _list_added(settings, fast, ())
  added = fast.get_added_tokens_decoder()
  changed += [x.content for i, x in added.items() if i not in known]
  if changed:
    raise errors.UserError(
      f'{path} and the {SETTINGS} beside it differ in {errors.listing(changed)}; '
      'save the tokenizer again.'
    )
  tokenizer = fast_tokenizer.parse(storage.read(path), path)
  check_size(tokenizer, config)
  return tokenizer


def _read_json(directory: str, name: str) -> dict[str, Any]:
  path = os.path.join(directory, name)
  return files.read_json(path) if os.path.exists(path) else {}


def _read_settings(directory) -> dict[str, Any]:
  """Returns what the small files say of a tokenizer."""
  about, tokens, added, settings = (
    _read_json(directory, x) for x in ('config.json', _TOKENS, _ADDED, SETTINGS)
  )
  kind = settings.get('tokenizer_class') or about.get('tokenizer_class') or ''
  kind = str(kind).removesuffix('Fast')
  said = {name: x for name, x in settings.items() if x or name not in tokens}
  said.setdefault('auto_map', about.get('auto_map'))
  return {**tokens, **said, 'tokenizer_class': kind, _ADDED: added}


def _read_fast(directory) -> tokenizers.Tokenizer | None:
  path = os.path.join(directory, FAST)
  if not os.path.exists(path):
    return None
  what = f'{path} cannot be read by tokenizers {tokenizers.__version__}'
  with errors.explaining(what, 'save the tokenizer again.', Exception):
    return tokenizers.Tokenizer.from_str(storage.read(path).decode())


def _check_same(path, vocab, ids, added):
  """Raises errors.UserError if vocab.txt has other ids than tokenizer.json."""
  ours = {x: i for i, x in enumerate(vocab) if x}
  extra = {x.content for x in added.values()} - ours.keys()
  theirs = {x.strip(' \t\r'): i for x, i in ids.items() if x not in extra}
  theirs.pop('', None)
  if differences := ours.items() ^ theirs.items():
    piece, _ = min(differences, key=lambda x: (x[1], x[0] not in ours))
    here, there = (x.get(piece, 'missing') for x in (ours, theirs))
    raise errors.UserError(
      f'{path} and the {FAST} beside it differ: {piece!r} is {here} in the first '
      f'and {there} in the other, which transformers reads; delete the one that '
      'the model was not trained with.'
    )


def _list_added(settings, fast, vocab) -> list[AddedWord]:
  """Returns the words that files add, by id; adds them to `fast`, if given."""
  listed = settings.get('added_tokens_decoder') or {}
  ids = {x['content']: int(i) for i, x in listed.items()}
  ids |= {word: int(i) for word, i in settings[_ADDED].items()}
  special = [x for name, x in settings.items() if name.endswith('_token')]
  for extra in (settings.get(name) or () for name in _EXTRA):
    special += extra.values() if isinstance(extra, dict) else extra
  names = {x for x in map(foreign_tokenizer.get_word, special) if x}
  if fast is None:
    pieces = {x: i for i, x in enumerate(vocab)}
    fast = tokenizers.Tokenizer(tokenizers.models.WordPiece(pieces))
  known = {x.content for x in fast.get_added_tokens_decoder().values()}
  flags = {
    x['content']: {name: x[name] for name in _FLAGS if name in x}
    for x in listed.values()
  }
  for word in sorted(
    {*ids, *names} - known, key=lambda x: (ids.get(x, _MOST), x)
  ):
    usual = {'normalized': word not in names, 'special': word in names}
    given = usual | flags.get(word, {})
    fast.add_tokens([tokenizers.AddedToken(word, **given)])
  added = sorted(fast.get_added_tokens_decoder().items())
  words = []
  for i, x in added:
    place, is_piece = ids.get(x.content, i), fast.model.token_to_id(x.content)
    flags = x.special, x.single_word, x.normalized, is_piece is not None
    if x.content not in SPECIAL:
      words.append(AddedWord(x.content, place, *flags))
  return words


def _lay_out(directory, vocab, added, config) -> tuple[list[str], list[str]]:
  """Returns the words with embeddings in their order, and names of the others."""
  rows = list(vocab[: config.vocab_size])
  if not set(SPECIAL) <= set(rows):
    check_size(Tokenizer(tuple(vocab)), config)
  left_out = [f'{NAME}: {word}' for word in vocab[len(rows) :]]
  for word, i, *_ in added:
    if i >= config.vocab_size:
      left_out.append(WITHOUT_ROW + word)
      continue
    rows += [''] * (i + 1 - len(rows))
    if i < 0 or rows[i] not in ('', word):
      reason = f'{word!r} is added as {i}, which is {rows[i]!r}'
      foreign_tokenizer.refuse(directory, reason)
    rows[i] = word
  return rows, left_out


def _read_case(directory, settings, fast, vocab) -> tuple[bool, bool | None]:
  """Returns `lowercase` and `strip_accents`; BERT's class overrules `fast`."""
  path, said = os.path.join(directory, SETTINGS), settings
  each = settings.get('tokenize_chinese_chars', True)
  if fast is not None:
    old = fast.normalizer or tokenizers.normalizers.BertNormalizer(
      handle_chinese_chars=False, strip_accents=False, lowercase=False
    )
    flags = {'do_lower_case': old.lowercase, 'strip_accents': old.strip_accents}
    generic = settings['tokenizer_class'] in foreign_tokenizer.GENERIC
    said = settings | flags if generic else flags | settings
    each = each and old.handle_chinese_chars
  # Without Chinese characters in the vocabulary, it makes no difference.
  if each is False and any(map(basic_tokenizer.is_ideograph, ''.join(vocab))):
    foreign_tokenizer.refuse(directory, 'it keeps Chinese characters together')
  lowercase = said.get('do_lower_case')
  if 'do_lower_case' not in said:
    lowercase = not _has_capitals(vocab)
  if not isinstance(lowercase, bool):
    config_file.refuse(path, 'do_lower_case', lowercase, 'true or false')
  strip_accents = said.get('strip_accents')
  if 'do_lower_case' not in said and strip_accents is None:
    strip_accents = lowercase and not basic_tokenizer.find_accents(vocab)[1]
  if fast is not None and fast.normalizer:
    old.lowercase, old.strip_accents = lowercase, strip_accents
    fast.normalizer = old
  return lowercase, strip_accents


def read_length(directory: str) -> int | None:
  """Returns the tokens of a text that a model is for; None if it does not say."""
  length = _read_json(directory, SETTINGS).get('model_max_length')
  # Without a limit, transformers writes 10^30.
  return length if type(length) is int and 0 < length < 2**16 else None


def _has_capitals(vocab):
  # Only in words: Google's uncased Chinese vocabulary has [UNK] and <S>.
  words = (piece.removeprefix('##') for piece in vocab)
  return any(word.isalpha() and word != word.lower() for word in words)


def check_size(tokenizer: Tokenizer, config: bert_config.BertConfig):
  """Raises errors.UserError if the vocabulary is larger than the model's."""
  if tokenizer.size > config.vocab_size:
    raise errors.UserError(
      f'the vocabulary has {tokenizer.size} entries, the model only '
      f'{config.vocab_size}; use the vocabulary it was trained with.'
    )


def make_files(
  tokenizer: Tokenizer, length: int, segments: bool = True
) -> dict[str, str]:
  """Returns the files by which transformers gives the same ids, {name: content}.

  Args:
    length: tokens of a text that the model is for.
    segments: whether the model reads them (`token_type_ids`).
  """
  inputs = ['input_ids', *['token_type_ids'] * segments, 'attention_mask']
  settings: dict[str, Any] = {
    # Loads tokenizer.json unchanged. BertTokenizer of transformers 5 builds its
    # own, in which words of 101 to 200 characters become [UNK].
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'do_lower_case': tokenizer.lowercase,
    'strip_accents': tokenizer.strip_accents,
    'tokenize_chinese_chars': True,
    'model_max_length': length,
    'model_input_names': inputs,
    'clean_up_tokenization_spaces': False,
    **_SPECIAL,
  }
  texts = {_TOKENS: to_json(_SPECIAL)}
  if isinstance(tokenizer, FastTokenizer):
    settings = {k: x for k, x in settings.items() if k not in _OF_BERT}
    library = tokenizers.Tokenizer.from_str(tokenizer.text)
    texts[FAST] = tokenizer.text
    # transformers sets it to that of the settings.
    prefix = getattr(library.pre_tokenizer, 'add_prefix_space', False)
    settings['add_prefix_space'] = prefix
    numbers = tokenizer.encode('a', 'b')['segment_ids']
    if segments and library.encode('a', 'b').type_ids != numbers:
      library.post_processor = _frame(tokenizer)
      texts[FAST] = library.to_str(pretty=True)
  else:
    texts[FAST] = _make_fast(tokenizer).to_str(pretty=True)
    texts[NAME] = tokenizer.to_bytes().decode()
  return texts | {SETTINGS: to_json(settings)}


def to_json(value) -> str:
  return json.dumps(value, indent=2, ensure_ascii=False) + '\n'


def _frame(tokenizer):
  return tokenizers.processors.TemplateProcessing(
    single='[CLS]:0 $A:0 [SEP]:0',
    pair='[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1',
    special_tokens=[('[CLS]', tokenizer.cls_id), ('[SEP]', tokenizer.sep_id)],
  )


def _make_fast(tokenizer):
  """Returns the `tokenizers.Tokenizer` that tokenizer.json holds."""
  pieces = {word: i for i, word in enumerate(tokenizer.vocab)}
  # It numbers other added words from the number of pieces on, so that they have
  # to be pieces, too, where some pieces are equal.
  if len(pieces) == tokenizer.size:
    others = {x.word for x in tokenizer.added if not x.is_piece}
    pieces = {word: i for word, i in pieces.items() if word not in others}
  fast = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(
      pieces,
      unk_token='[UNK]',
      max_input_chars_per_word=wordpiece.MAX_CHARS_PER_WORD,
    )
  )
  fast.normalizer = tokenizers.normalizers.BertNormalizer(
    clean_text=True,
    handle_chinese_chars=True,
    strip_accents=tokenizer.strip_accents,
    lowercase=tokenizer.lowercase,
  )
  fast.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  fast.decoder = tokenizers.decoders.WordPiece(prefix='##')
  fast.post_processor = _frame(tokenizer)
  fast.add_special_tokens(list(SPECIAL))
  if tokenizer.added:
    added = tokenizer.finder.get_added_tokens_decoder()
    fast.add_tokens([x for _, x in sorted(added.items())])
  return fast
