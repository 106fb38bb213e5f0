"""Reads and writes the tokenizer files of a model's folder."""

import dataclasses
import os

from bert_jax import errors
from bert_jax.interop import config_file
from bert_jax.model import bert_config
from bert_jax.runtime import files
from bert_jax.tokenization import basic_tokenizer
from bert_jax.tokenization.tokenizer import (
  SPECIAL,
  Tokenizer,
  check_vocab,
  read_vocab,
)

NAME = 'vocab.txt'
FAST = 'tokenizer.json'
SETTINGS = 'tokenizer_config.json'


def read(
  directory: str, config: bert_config.BertConfig
) -> tuple[Tokenizer, list[str]]:
  """Reads the Tokenizer of vocab.txt, or else of tokenizer.json.

  Whether text is lower-cased is read from tokenizer_config.json, or else from
  tokenizer.json, or else inferred: it is not if the vocabulary has pieces with
  capitals. `strip_accents` is read from these files, too; null or no value
  means that it is done if text is lower-cased, as Hugging Face defines it.

  Returns:
    The tokenizer, and what it leaves out: pieces without embeddings, and words
    that were added to a tokenizer.json, which are split here like any others.
  """
  path, fast_path, vocab_path = (
    os.path.join(directory, name) for name in (SETTINGS, FAST, NAME)
  )
  theirs = files.read_json(path) if os.path.exists(path) else {}
  fast = files.read_json(fast_path) if os.path.exists(fast_path) else {}
  # transformers 5 saves no vocab.txt.
  if os.path.exists(vocab_path) or not fast:
    vocab = read_vocab(vocab_path)
  else:
    vocab = _fast_vocabulary(fast, fast_path)
  normalizer = fast.get('normalizer')
  if not isinstance(normalizer, dict):
    normalizer = {}
  _check_split(theirs, normalizer, vocab, path)
  lowercase = normalizer.get('lowercase', not _has_capitals(vocab))
  lowercase = theirs.get('do_lower_case', lowercase)
  if not isinstance(lowercase, bool):
    config_file.refuse(path, 'do_lower_case', lowercase, 'true or false')
  strip_accents = normalizer.get('strip_accents')
  strip_accents = theirs.get('strip_accents', strip_accents)
  if not isinstance(strip_accents, bool | None):
    allowed = 'true, false or null'
    config_file.refuse(path, 'strip_accents', strip_accents, allowed)
  tokenizer, left_out = _cut(Tokenizer(vocab, lowercase, strip_accents), config)
  return tokenizer, left_out + _list_added(fast, vocab)


def _check_split(theirs, normalizer, vocab, path):
  """Raises errors.UserError if text was split otherwise when a model learnt."""
  problem = ''
  if theirs.get('tokenizer_class') == 'BertJapaneseTokenizer':
    problem = 'BertJapaneseTokenizer, which splits words by MeCab'
  each = normalizer.get('handle_chinese_chars', True)
  # Without Chinese characters in the vocabulary, it makes no difference.
  if theirs.get('tokenize_chinese_chars', each) is False and any(
    map(basic_tokenizer.is_ideograph, ''.join(vocab))
  ):
    problem = 'one that keeps Chinese characters together'
  if problem:
    raise errors.UserError(
      f"{path}: the tokenizer is {problem}; there is only BERT's here, so use "
      'another model.'
    )


def _has_capitals(vocab):
  # Only in words: Google's uncased Chinese vocabulary has [UNK] and <S>.
  words = (piece.removeprefix('##') for piece in vocab)
  return any(word.isalpha() and word != word.lower() for word in words)


def _fast_vocabulary(fast, path):
  """Returns the pieces of a tokenizer.json in the order of their ids."""
  wordpiece = fast.get('model')
  ids = wordpiece.get('vocab') if isinstance(wordpiece, dict) else None
  words = ()
  if isinstance(ids, dict) and all(type(i) is int for i in ids.values()):
    words = tuple(sorted(ids, key=ids.get))
  if not words or [ids[word] for word in words] != list(range(len(words))):
    raise errors.UserError(
      f'{path} holds no WordPiece vocabulary with ids 0, 1, 2 ...; put the '
      "model's vocab.txt beside it."
    )
  check_vocab(words, path)
  return words


def _list_added(fast, vocab):
  """Returns the words that a tokenizer.json adds to its pieces."""
  added = fast.get('added_tokens')
  found = [
    x.get('content')
    for x in (added if isinstance(added, list) else ())
    if isinstance(x, dict)
  ]
  words = {x for x in found if isinstance(x, str)}.difference(vocab)
  return [f'{FAST}: {word}' for word in sorted(words)]


def write(directory: str, tokenizer: Tokenizer):
  """Writes vocab.txt."""
  text = ''.join(f'{word}\n' for word in tokenizer.vocab)
  files.write_text(os.path.join(directory, NAME), text)


def check_size(tokenizer: Tokenizer, config: bert_config.BertConfig):
  """Raises errors.UserError if the vocabulary is larger than the model's."""
  if tokenizer.size > config.vocab_size:
    raise errors.UserError(
      f'the vocabulary has {tokenizer.size} entries, the model only '
      f'{config.vocab_size}; use the vocabulary it was trained with.'
    )


def _cut(tokenizer, config):
  """Drops pieces without embeddings; returns the tokenizer and their names."""
  kept = tokenizer.vocab[: config.vocab_size]
  if not set(SPECIAL) <= set(kept):
    check_size(tokenizer, config)
  names = [f'{NAME}: {word}' for word in tokenizer.vocab[len(kept) :]]
  return dataclasses.replace(tokenizer, vocab=kept), names
