"""Reads and writes the folders that Hugging Face transformers loads."""

import json
import os
import re
import shutil

import numpy as np
import safetensors
import safetensors.numpy
import tokenizers

from bert_jax import errors
from bert_jax import model as model_lib
from bert_jax import tokenizer as tokenizer_lib

# Our name, theirs, the form it takes there (`_FORMS`) and its shape there, in
# the letters of model.py; S is the number of positions. {i} is a layer, {part}
# one of query, key and value, which are one parameter here.
_EMB = 'bert.embeddings.'
_WORD = _EMB + 'word_embeddings.weight'
_POSITION = _EMB + 'position_embeddings.weight'
_TYPE = _EMB + 'token_type_embeddings.weight'
_LAYER = 'bert.encoder.layer.{i}.'
_SELF = _LAYER + 'attention.self.{part}.'
_OUT = _LAYER + 'attention.output.'
_MLM = 'cls.predictions.'
_ENCODER = (
  ('embeddings/word/embedding', _WORD, 'same', 'VD'),
  ('embeddings/position/embedding', _POSITION, 'same', 'SD'),
  ('embeddings/type/embedding', _TYPE, 'same', 'TD'),
  ('embeddings/norm/scale', _EMB + 'LayerNorm.weight', 'same', 'D'),
  ('embeddings/norm/bias', _EMB + 'LayerNorm.bias', 'same', 'D'),
)
_LAYERS = (
  ('attention/qkv/kernel', _SELF + 'weight', 'qkv', 'DD'),
  ('attention/qkv/bias', _SELF + 'bias', 'qkv_bias', 'D'),
  ('attention/out/kernel', _OUT + 'dense.weight', 'out', 'DD'),
  ('attention/out/bias', _OUT + 'dense.bias', 'same', 'D'),
  ('attention_norm/scale', _OUT + 'LayerNorm.weight', 'same', 'D'),
  ('attention_norm/bias', _OUT + 'LayerNorm.bias', 'same', 'D'),
  ('mlp_in/kernel', _LAYER + 'intermediate.dense.weight', 'turn', 'FD'),
  ('mlp_in/bias', _LAYER + 'intermediate.dense.bias', 'same', 'F'),
  ('mlp_out/kernel', _LAYER + 'output.dense.weight', 'turn', 'DF'),
  ('mlp_out/bias', _LAYER + 'output.dense.bias', 'same', 'D'),
  ('mlp_norm/scale', _LAYER + 'output.LayerNorm.weight', 'same', 'D'),
  ('mlp_norm/bias', _LAYER + 'output.LayerNorm.bias', 'same', 'D'),
)
_MLM_HEAD = (
  ('mlm/transform/kernel', _MLM + 'transform.dense.weight', 'turn', 'DD'),
  ('mlm/transform/bias', _MLM + 'transform.dense.bias', 'same', 'D'),
  ('mlm/norm/scale', _MLM + 'transform.LayerNorm.weight', 'same', 'D'),
  ('mlm/norm/bias', _MLM + 'transform.LayerNorm.bias', 'same', 'D'),
  ('mlm/bias', _MLM + 'bias', 'same', 'V'),
)
_NSP_HEAD = (
  ('pooler/kernel', 'bert.pooler.dense.weight', 'turn', 'DD'),
  ('pooler/bias', 'bert.pooler.dense.bias', 'same', 'D'),
  ('nsp/kernel', 'cls.seq_relationship.weight', 'turn', '2D'),
  ('nsp/bias', 'cls.seq_relationship.bias', 'same', '2'),
)
# There and back. There is a list, of three for what they keep apart; back
# takes such a list and the head size K.
_FORMS = {
  'same': (lambda x: [x], lambda t, k: t[0]),
  'turn': (lambda x: [x.T], lambda t, k: t[0].T),
  'qkv': (  # [D, 3, H, K] and three of [H K, D]
    lambda x: [x[:, j].reshape(len(x), -1).T for j in range(3)],
    lambda t, k: np.stack([y.T.reshape(len(y), -1, k) for y in t], axis=1),
  ),
  'qkv_bias': (  # [3, H, K] and three of [H K]
    lambda x: [y.reshape(-1) for y in x],
    lambda t, k: np.stack([y.reshape(-1, k) for y in t]),
  ),
  'out': (  # [H, K, D] and [D, H K]
    lambda x: [x.reshape(-1, x.shape[-1]).T],
    lambda t, k: t[0].T.reshape(-1, k, len(t[0])),
  ),
}
# Copies of tied parameters, a buffer of positions 0, 1, 2 ... and the pooler of
# a model whose NSP head was dropped: nothing of ours is made of them.
_TIED = {
  _MLM + 'decoder.weight': _WORD,
  _MLM + 'decoder.bias': _MLM + 'bias',
}
_UNUSED = re.compile(r'bert\.embeddings\.position_ids|bert\.pooler\.dense\..*')

_HIDDEN_ACT = {
  'gelu': 'gelu',
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'relu': 'relu',
}
_CONFIG_FIELDS = {
  'vocab_size': ('vocab_size', int),
  'hidden_size': ('hidden_size', int),
  'num_hidden_layers': ('num_layers', int),
  'num_attention_heads': ('num_heads', int),
  'intermediate_size': ('mlp_size', int),
  'max_position_embeddings': ('max_positions', int),
  'type_vocab_size': ('type_vocab_size', int),
  'hidden_dropout_prob': ('dropout', float),
  'attention_probs_dropout_prob': ('attention_dropout', float),
  'layer_norm_eps': ('norm_epsilon', float),
  'initializer_range': ('initializer_std', float),
}
FILES = (
  'config.json',
  'model.safetensors',
  'special_tokens_map.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'vocab.txt',
)


def to_hf(params, config: model_lib.BertConfig, with_nsp: bool):
  """Renames and reshapes parameters for Hugging Face's BERT.

  Args:
    params: nested dict of arrays, as `heads.PretrainingModel` makes it.
    config: what the model is.
    with_nsp: whether it has the pooler and the NSP head.

  Returns:
    dict of their name to a contiguous float32 array. The tied decoder is left
    out, as their own files leave it out.

  Raises:
    errors.UserError: for norm='pre', which their BERT does not know.
    ValueError: for parameters that are not those of this config.
  """
  if config.norm != 'post':
    raise errors.UserError(
      f'norm={config.norm!r} has no Hugging Face layout: their BERT '
      "normalises after each sublayer. Only norm='post' can be exported."
    )
  ours = _flatten(params)
  tensors = {}
  for name, theirs, form, shape in _table(config, with_nsp):
    there, _ = _FORMS[form]
    values = there(np.asarray(ours.pop(name), np.float32))
    for their_name, value in zip(theirs, values, strict=True):
      if value.shape != shape:
        raise ValueError(f'{name} becomes {value.shape}, expected {shape}.')
      # safetensors stores the buffer as it lies, transposed views wrongly.
      tensors[their_name] = np.ascontiguousarray(value)
  if ours:
    raise ValueError(f'parameters without a name there: {sorted(ours)}.')
  return tensors


def from_hf(tensors, config: model_lib.BertConfig, with_nsp: bool):
  """Makes parameters of the tensors of Hugging Face's BERT; undoes `to_hf`.

  Args:
    tensors: dict of their name to an array.
    config: what the model is.
    with_nsp: whether the pooler and the NSP head are wanted.

  Returns:
    Nested dict of float32 arrays.

  Raises:
    errors.UserError: for names that are missing or unexpected (it lists both),
      for a wrong shape and for a decoder that is not tied.
  """
  # Files from before 2020 say gamma and beta.
  tensors = {
    re.sub(r'gamma$', 'weight', re.sub(r'beta$', 'bias', name)): value
    for name, value in tensors.items()
  }
  table = _table(config, with_nsp)
  known = {name for _, theirs, _, _ in table for name in theirs}
  missing = sorted(known - set(tensors))
  unexpected = sorted(
    name
    for name in set(tensors) - known - set(_TIED)
    if not _UNUSED.fullmatch(name)
  )
  if missing or unexpected:
    raise errors.UserError(
      f'the tensors are not those of a {config.num_layers}-layer BERT with '
      f'its {"MLM and NSP heads" if with_nsp else "MLM head"}; missing: '
      f'{_some(missing)}; unexpected: {_some(unexpected)}. Use a folder '
      'saved from BertForPreTraining or BertForMaskedLM.'
    )
  for copy, original in _TIED.items():
    same = copy not in tensors or np.array_equal(
      tensors[copy], tensors[original]
    )
    if not same:
      raise errors.UserError(
        f'{copy} differs from {original}; the decoder is tied to it here, so '
        'use a model trained with tied embeddings.'
      )

  params = {}
  for name, theirs, form, shape in table:
    values = [np.asarray(tensors[t], np.float32) for t in theirs]
    for their_name, value in zip(theirs, values, strict=True):
      if value.shape != shape:
        raise errors.UserError(
          f'{their_name} has shape {value.shape}, but config.json asks for '
          f'{shape}; the two files do not belong together.'
        )
    _, back = _FORMS[form]
    *parents, leaf = name.split('/')
    node = params
    for parent in parents:
      node = node.setdefault(parent, {})
    node[leaf] = np.ascontiguousarray(back(values, config.head_size))
  return params


def _table(config, with_nsp):
  """Returns (our name, their names, form, their shape) of every parameter."""
  sizes = {
    'V': config.vocab_size,
    'S': config.max_positions,
    'T': config.type_vocab_size,
    'D': config.hidden_size,
    'F': config.mlp_size,
    '2': 2,
  }
  rows = []

  def add(templates, prefix='', i=None):
    for ours, theirs, form, shape in templates:
      parts = ('query', 'key', 'value') if '{part}' in theirs else ('',)
      rows.append(
        (
          prefix + ours,
          [theirs.format(i=i, part=part) for part in parts],
          form,
          tuple(sizes[letter] for letter in shape),
        )
      )

  add(_ENCODER)
  for i in range(config.num_layers):
    add(_LAYERS, f'encoder/layer_{i}/', i)
  add(_MLM_HEAD)
  if with_nsp:
    add(_NSP_HEAD)
  return rows


def _flatten(tree, prefix=''):
  flat = {}
  for name, value in tree.items():
    if hasattr(value, 'items'):
      flat |= _flatten(value, f'{prefix}{name}/')
    else:
      flat[prefix + name] = value
  return flat


def _some(names, most=6):
  """Returns names as words, not more of them than fit a screen."""
  more = f' and {len(names) - most} more' if len(names) > most else ''
  return (', '.join(names[:most]) or 'none') + more


def export(directory: str, params, config, with_nsp: bool, tokenizer):
  """Writes a folder that transformers' Auto classes load.

  The folder is written beside its place, flushed to the disk and renamed. An
  earlier export is moved away first and deleted last: a kill at any moment
  leaves the old or the new one under the name or, between the two renames, the
  old one beside it as `.NAME.old`, from where the next export takes it back.

  Args:
    directory: local folder; may hold an earlier export, but nothing else.
    params: nested dict of arrays, as `heads.PretrainingModel` makes it.
    config: what the model is.
    with_nsp: whether it has the pooler and the NSP head.
    tokenizer: a `tokenizer.Tokenizer`.

  Raises:
    errors.UserError: for a folder that cannot be written or replaced and for
      what `to_hf` refuses.
  """
  if '://' in directory:
    raise errors.UserError(
      f'cannot export to {directory}; export to a local folder and copy it.'
    )
  tensors = to_hf(params, config, with_nsp)
  _check_vocabulary(tokenizer, config)
  directory = os.path.realpath(directory)
  parent, name = os.path.split(directory)
  new, old = (os.path.join(parent, f'.{name}.{x}') for x in ('new', 'old'))
  try:
    os.makedirs(parent, exist_ok=True)
    _check_replaceable(directory)
    if os.path.lexists(old) and not os.path.lexists(directory):
      os.rename(old, directory)
    _remove(new, old)
    os.mkdir(new)
    try:
      _write(new, tensors, config, with_nsp, tokenizer)
      if os.path.lexists(directory):
        os.rename(directory, old)
      os.rename(new, directory)
    except BaseException:
      if os.path.lexists(old) and not os.path.lexists(directory):
        os.rename(old, directory)
      _remove(new)
      raise
    _sync(parent)
    _remove(old)
  except OSError as error:
    raise errors.UserError(f'cannot write {directory}: {error}.') from error


def _check_replaceable(directory):
  if not os.path.lexists(directory):
    return
  if not os.path.isdir(directory):
    raise errors.UserError(
      f'{directory} is a file; name a folder that does not exist yet.'
    )
  other = sorted(set(os.listdir(directory)) - set(FILES))
  if other:
    raise errors.UserError(
      f'{directory} holds {_some(other)}, which an export would delete; name '
      'a folder that is empty or does not exist yet.'
    )


def _remove(*folders):
  for folder in folders:
    if os.path.lexists(folder):
      shutil.rmtree(folder)


def _sync(path):
  """Waits until a file's bytes or a folder's names are on the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def _write(folder, tensors, config, with_nsp, tokenizer):
  """Writes every file of an export and flushes them to the disk."""

  def path(name):
    return os.path.join(folder, name)

  safetensors.numpy.save_file(
    tensors, path('model.safetensors'), metadata={'format': 'pt'}
  )
  for name, value in (
    ('config.json', config_json(config, with_nsp, tokenizer.pad_id)),
    ('tokenizer_config.json', _tokenizer_config(config, tokenizer)),
    ('special_tokens_map.json', _special_tokens()),
  ):
    with open(path(name), 'w', encoding='utf-8') as f:
      f.write(json.dumps(value, indent=2, ensure_ascii=False) + '\n')
  with open(path('vocab.txt'), 'w', encoding='utf-8', newline='\n') as f:
    f.writelines(f'{word}\n' for word in tokenizer.vocab)
  _fast_tokenizer(tokenizer).save(path('tokenizer.json'))
  for name in FILES:
    _sync(path(name))
  _sync(folder)


def config_json(config, with_nsp: bool, pad_id: int) -> dict:
  """Returns what config.json says of the model."""
  if with_nsp:
    architecture = 'BertForPreTraining'
  else:
    architecture = 'BertLMHeadModel' if config.causal else 'BertForMaskedLM'
  theirs = {ours: name for name, ours in reversed(_HIDDEN_ACT.items())}
  # gelu_tanh must be theirs too: with 'gelu' the logits would differ silently.
  return {
    'architectures': [architecture],
    'model_type': 'bert',
    **{
      name: getattr(config, ours) for name, (ours, _) in _CONFIG_FIELDS.items()
    },
    'hidden_act': theirs[config.activation],
    'pad_token_id': pad_id,
    'is_decoder': config.causal,
    'tie_word_embeddings': True,
    'position_embedding_type': 'absolute',
    'classifier_dropout': None,
    'torch_dtype': 'float32',
  }


def _special_tokens():
  return {f'{t[1:-1].lower()}_token': t for t in tokenizer_lib.SPECIAL}


def _tokenizer_config(config, tokenizer):
  return {
    # Loads tokenizer.json as it stands. BertTokenizer of transformers 5 builds
    # its own, in which words of 101 to 200 characters become [UNK].
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'do_lower_case': tokenizer.lowercase,
    'strip_accents': None,  # as do_lower_case says
    'tokenize_chinese_chars': True,
    'model_max_length': config.max_positions,
    'model_input_names': ['input_ids', 'token_type_ids', 'attention_mask'],
    'clean_up_tokenization_spaces': False,
    **_special_tokens(),
  }


def _fast_tokenizer(tokenizer):
  """Returns the `tokenizers.Tokenizer` that tokenizer.json holds."""
  fast = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(
      {word: i for i, word in enumerate(tokenizer.vocab)},
      unk_token='[UNK]',
      max_input_chars_per_word=200,
    )
  )
  fast.normalizer = tokenizer_lib.normalizer(tokenizer.lowercase)
  fast.pre_tokenizer = tokenizer_lib.pre_tokenizer()
  fast.decoder = tokenizers.decoders.WordPiece(prefix='##')
  fast.post_processor = tokenizers.processors.TemplateProcessing(
    single='[CLS]:0 $A:0 [SEP]:0',
    pair='[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1',
    special_tokens=[('[CLS]', tokenizer.cls_id), ('[SEP]', tokenizer.sep_id)],
  )
  fast.add_special_tokens(list(tokenizer_lib.SPECIAL))
  return fast


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
    params = from_hf(tensors, config, with_nsp)
  except errors.UserError as error:
    raise errors.UserError(f'{directory}: {error}') from error
  tokenizer = _read_tokenizer(directory)
  _check_vocabulary(tokenizer, config)
  return params, config, with_nsp, tokenizer


def _check_vocabulary(tokenizer, config):
  if tokenizer.size > config.vocab_size:
    raise errors.UserError(
      f'the vocabulary has {tokenizer.size} entries, the model only '
      f'{config.vocab_size}; use the vocabulary it was trained with.'
    )


def _read_json(path):
  try:
    with open(path, encoding='utf-8') as f:
      value = json.load(f)
  except OSError as error:
    raise errors.UserError(
      f'cannot read {path}: {error.strerror}; is this an exported model?'
    ) from error
  except (ValueError, RecursionError) as error:
    raise errors.UserError(
      f'{path} is not JSON ({error}); export the model again.'
    ) from error
  if not isinstance(value, dict):
    raise errors.UserError(
      f'{path} holds a {type(value).__name__}, not an object; export the '
      'model again.'
    )
  return value


def _read_config(path):
  """Returns the BertConfig that a config.json describes."""
  theirs = _read_json(path)

  def refuse(key, allowed):
    got = theirs.get(key, 'missing')
    raise errors.UserError(f'{path}: {key} is {got!r}, not {allowed}.')

  if theirs.get('model_type') != 'bert':
    refuse('model_type', "'bert'; only BERT models can be read")
  if theirs.get('hidden_act') not in tuple(_HIDDEN_ACT):
    refuse('hidden_act', f'one of {", ".join(_HIDDEN_ACT)}')
  if theirs.get('position_embedding_type', 'absolute') != 'absolute':
    refuse('position_embedding_type', "'absolute'")
  if not isinstance(theirs.get('is_decoder', False), bool):
    refuse('is_decoder', 'true or false')
  fields = {}
  for key, (ours, kind) in _CONFIG_FIELDS.items():
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
    activation=_HIDDEN_ACT[theirs['hidden_act']],
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
  theirs = _read_json(path) if os.path.exists(path) else {}
  fast = _read_json(fast_path) if os.path.exists(fast_path) else {}
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
      f'{path} lacks {_some(missing)}; only BERT vocabularies can be read.'
    )
  return words
