"""Hugging Face's names of BERT's parameters and of its config, and ours."""

import re

import numpy as np

from bert_jax import errors, names
from bert_jax import model as model_lib

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

HIDDEN_ACT = {
  'gelu': 'gelu',
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'relu': 'relu',
}
CONFIG_FIELDS = {
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
  ours = names.flatten(params)
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
      f'{some(missing)}; unexpected: {some(unexpected)}. Use a folder '
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


def some(words, most=6):
  """Returns words as text, not more of them than fit a screen."""
  more = f' and {len(words) - most} more' if len(words) > most else ''
  return (', '.join(words[:most]) or 'none') + more


def check_vocabulary(tokenizer, config):
  """Raises errors.UserError for words that the model has no row for."""
  if tokenizer.size > config.vocab_size:
    raise errors.UserError(
      f'the vocabulary has {tokenizer.size} entries, the model only '
      f'{config.vocab_size}; use the vocabulary it was trained with.'
    )
