"""Reads a folder with a BERT, of ours or of Hugging Face."""

import json
import os

import safetensors
import safetensors.numpy

from bert_jax import errors
from bert_jax import model as model_lib
from bert_jax import tokenizer as tokenizer_lib
from bert_jax.interop import table


def load(directory: str):
  """Reads a BERT folder of ours or of Hugging Face, with safetensors.

  Args:
    directory: local folder; nothing outside it is read.

  Returns:
    (params, config, with_nsp, tokenizer): nested dict of float32 arrays,
    `model.BertConfig`, whether there is an NSP head, `tokenizer.Tokenizer`.
    What config.json does not say is the default of BertConfig: dtype and the
    shape of the initial distribution.

  Raises:
    errors.UserError: for a folder that is missing, incomplete or malformed or
      not such a model.
  """
  if not os.path.isdir(directory):
    raise errors.UserError(
      f'{directory} is not a folder; name one that bert_jax.convert wrote.'
    )
  config = _read_config(os.path.join(directory, 'config.json'))
  tensors = _read_tensors(directory)
  with_nsp = 'cls.seq_relationship.weight' in tensors
  try:
    params = table.from_hf(tensors, config, with_nsp)
  except errors.UserError as error:
    raise errors.UserError(f'{directory}: {error}') from error
  tokenizer = _read_tokenizer(directory)
  table.check_vocabulary(tokenizer, config)
  return params, config, with_nsp, tokenizer


def read_json(path: str) -> dict:
  """Reads a JSON object; what is wrong with it is a UserError."""
  try:
    with open(path, encoding='utf-8') as f:
      value = json.load(f)
  except OSError as error:
    raise errors.UserError(
      f'cannot read {path}: {error.strerror}; is this the folder of a model?'
    ) from error
  except (ValueError, RecursionError) as error:
    raise errors.UserError(
      f'{path} is not JSON ({error}); restore it from a copy.'
    ) from error
  if not isinstance(value, dict):
    raise errors.UserError(
      f'{path} holds a {type(value).__name__}, not an object; restore '
      'it from a copy.'
    )
  return value


def _read_config(path):
  """Returns the BertConfig that a config.json describes."""
  theirs = read_json(path)

  def refuse(key, allowed):
    got = theirs.get(key, 'missing')
    raise errors.UserError(f'{path}: {key} is {got!r}, not {allowed}.')

  if theirs.get('model_type') != 'bert':
    refuse('model_type', "'bert'; only BERT models can be read")
  if theirs.get('hidden_act') not in tuple(table.HIDDEN_ACT):
    refuse('hidden_act', f'one of {", ".join(table.HIDDEN_ACT)}')
  if theirs.get('position_embedding_type', 'absolute') != 'absolute':
    refuse('position_embedding_type', "'absolute'")
  if not isinstance(theirs.get('is_decoder', False), bool):
    refuse('is_decoder', 'true or false')
  fields = {}
  for key, (ours, kind) in table.CONFIG_FIELDS.items():
    value = theirs.get(key)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int and not (isinstance(value, int) and number and value > 0):
      refuse(key, 'a whole number above 0')
    if kind is float and not (number and 0 <= value <= 1):
      refuse(key, 'a number from 0 to 1')
    fields[ours] = kind(value)
  if fields['hidden_size'] % fields['num_heads']:
    refuse('hidden_size', f'a multiple of {fields["num_heads"]} heads')
  return model_lib.BertConfig(
    **fields,
    activation=table.HIDDEN_ACT[theirs['hidden_act']],
    causal=theirs.get('is_decoder', False),
  )


def _read_tensors(directory):
  path = os.path.join(directory, 'model.safetensors')
  if not os.path.isfile(path):
    pickled = os.path.isfile(os.path.join(directory, 'pytorch_model.bin'))
    raise errors.UserError(
      f'{path} does not exist; '
      + (
        'pytorch_model.bin is not read because reading it can run code: load '
        'it with transformers and save_pretrained writes safetensors.'
        if pickled
        else 'name a folder that bert_jax.convert wrote.'
      )
    )
  try:
    return safetensors.numpy.load_file(path)
  except (OSError, safetensors.SafetensorError) as error:
    raise errors.UserError(
      f'cannot read {path}: {error}; copy or export it again.'
    ) from error


def _read_tokenizer(directory):
  """Returns the Tokenizer of vocab.txt, or else of tokenizer.json."""
  path, fast_path, vocab_path = (
    os.path.join(directory, name)
    for name in ('tokenizer_config.json', 'tokenizer.json', 'vocab.txt')
  )
  theirs = read_json(path) if os.path.exists(path) else {}
  fast = read_json(fast_path) if os.path.exists(fast_path) else {}
  normalizer = fast.get('normalizer')
  default = True
  if isinstance(normalizer, dict):
    default = normalizer.get('lowercase', True)
  lowercase = theirs.get('do_lower_case', default)
  if not isinstance(lowercase, bool):
    raise errors.UserError(
      f'{path}: do_lower_case is {lowercase!r}, not true or false.'
    )
  accents = theirs.get('strip_accents')
  if accents is not None and accents != lowercase:
    raise errors.UserError(
      f'{path}: strip_accents is {accents!r} and do_lower_case {lowercase!r}; '
      'here accents go with lower case or stay with it.'
    )
  # transformers 5 saves no vocab.txt.
  if os.path.exists(vocab_path) or not fast:
    return tokenizer_lib.Tokenizer.load(vocab_path, lowercase)
  return tokenizer_lib.Tokenizer(_fast_vocabulary(fast, fast_path), lowercase)


def _fast_vocabulary(fast, path):
  """Returns the words of a tokenizer.json in the order of their ids."""
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
  missing = [token for token in tokenizer_lib.SPECIAL if token not in ids]
  if missing:
    raise errors.UserError(
      f'{path} lacks {table.some(missing)}; only BERT vocabularies can be read.'
    )
  return words
