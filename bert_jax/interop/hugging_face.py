"""Reads and writes folders of Hugging Face transformers."""

import dataclasses
import functools
import os
import shutil
from collections.abc import Collection
from typing import Any

import safetensors
import safetensors.numpy

from bert_jax import errors
from bert_jax.interop import (
  config_file,
  modern_config,
  rename,
  sequence_head,
  vocabulary,
)
from bert_jax.model import bert_config, classifier
from bert_jax.runtime import files
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.weight_files import local_files

FILES = (
  'README.md',
  'config.json',
  'model.safetensors',
  'special_tokens_map.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'vocab.txt',
)
HIDDEN_ACT = {
  'gelu': 'gelu',
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'relu': 'relu',
}


def find_problem(
  config: bert_config.BertConfig, head: classifier.Head | None = None
) -> str | None:
  """Returns why transformers has no class for a model; None if it has."""
  lacks = 'BERT of Hugging Face has no model'
  if config.modern:
    usual = {'norm': 'pre', 'activation': 'gelu', 'causal': False}
    if config != dataclasses.replace(config, **usual):
      return f'Modern{lacks} with other than {usual}'
    return None
  if config.norm != 'post':
    return f'{lacks} with norm={config.norm}'
  if config.reverse:
    return f'{lacks} that reads from right to left'
  if head and head.bilstm is not None:
    return f'{lacks} with a BiLSTM'
  if head and head.form == 'gpt':
    return f'{lacks} that reads the extract token'
  if head and config.causal and not head.reads_tokens:
    return (
      'BertForSequenceClassification reads [CLS], which sees no text in a model '
      'that reads from left to right'
    )
  return None


def export(
  directory: str,
  params: dict,
  config: bert_config.BertConfig,
  tokenizer: Tokenizer,
  card: str | None = None,
  head: classifier.Head | None = None,
  trained_length: int | None = None,
):
  """Writes a folder that transformers' Auto classes load, atomically.

  An earlier export is replaced.

  Args:
    card: text of README.md, see `cards.make_card`; None writes none.
    head: of a fine-tuned model, such as a BertForSequenceClassification.
    trained_length: tokens of the longest rows that the model was trained on, which
      tokenizers of transformers warn beyond; None is all positions.
  """
  if problem := find_problem(config, head):
    raise errors.UserError(
      f'{problem}; fill_mask, features and init_from read the run itself.'
    )
  tensors = rename.to_theirs(params, config, 'hf')
  vocabulary.check_size(tokenizer, config)
  described = describe_model(config, params, tokenizer)
  if head is not None:
    tensors |= sequence_head.to_tensors(head)
    described |= sequence_head.describe(head)
  elif 'mlm' not in params:
    prefix = 'model.' if config.modern else 'bert.'
    tensors = {name.removeprefix(prefix): x for name, x in tensors.items()}
  # A head has learnt from rows that were cut to its length.
  lengths = config.max_positions, trained_length, head and head.max_length
  length, segments = min(filter(None, lengths)), not config.modern
  texts = {
    'config.json': vocabulary.to_json(described),
    **vocabulary.make_files(tokenizer, length, segments),
    **({} if card is None else {'README.md': card}),
  }
  fill = functools.partial(_fill, tensors, texts)
  files.write_folder(directory, FILES, fill)


def _fill(tensors, texts, new: str):
  """Writes every file of an export into a folder."""
  path = os.path.join(new, 'model.safetensors')
  try:
    safetensors.numpy.save_file(tensors, path, metadata={'format': 'pt'})
  except safetensors.SafetensorError as error:  # such as of a full disk
    raise OSError(errors.first_line(error)) from error
  for name, text in texts.items():
    files.write_text(os.path.join(new, name), text)
  # safetensors lets only its owner read it
  shutil.copymode(os.path.join(new, 'config.json'), path)


def describe_model(
  config: bert_config.BertConfig, parts: Collection[str], tokenizer: Tokenizer
) -> dict[str, Any]:
  """Returns the content of config.json, of a model with these parts."""
  if config.modern:
    kind = 'ForMaskedLM' if 'mlm' in parts else 'Model'
    described = modern_config.describe(config, tokenizer)
    return {'architectures': [f'ModernBert{kind}'], **described}
  if 'mlm' not in parts:
    architecture = 'BertModel'
  elif 'nsp' in parts:
    architecture = 'BertForPreTraining'
  else:
    architecture = 'BertLMHeadModel' if config.causal else 'BertForMaskedLM'
  theirs = {ours: name for name, ours in reversed(HIDDEN_ACT.items())}
  # gelu_tanh has another name there; 'gelu' would silently change the logits.
  return {
    'architectures': [architecture],
    'model_type': 'bert',
    **config_file.from_config(config),
    'hidden_act': theirs[config.activation],
    'pad_token_id': tokenizer.pad_id,
    'is_decoder': config.causal,
    'tie_word_embeddings': True,
    'position_embedding_type': 'absolute',
    'classifier_dropout': None,
    'torch_dtype': 'float32',
  }


# Weights are one file, or several with an index; the first that exists is read.
_WEIGHTS = {
  'model.safetensors': local_files.read_safetensors,
  'pytorch_model.bin': local_files.read_torch,
}
# Of transformers; older files do not say it.
_NORM_EPSILON = 1e-12


def read(directory: str) -> rename.LoadedModel:
  """Reads a BERT, with the heads that it has, and nothing outside of its folder."""
  for name in local_files.SMALL:
    local_files.find_small(directory, name)
  path = os.path.join(directory, 'config.json')
  theirs = files.read_json(path)
  config = _make_config(path, theirs)
  with errors.within(directory):
    tensors = rename.modernise(_read_tensors(directory))
  head = sequence_head.read(path, theirs, tensors)
  used = sequence_head.to_tensors(head) if head else ()
  with errors.within(directory):
    rest = {name: x for name, x in tensors.items() if name not in used}
    params, report = rename.from_hf(rest, config)
  tokenizer, extra = vocabulary.read(directory, config)
  pooled = head and not (head.reads_tokens or head.transform)
  if pooled and 'pooler' not in params:
    raise errors.UserError(
      f'{directory} has a classifier, but lacks bert.pooler, which it reads; '
      'copy the model again.'
    )
  report = report._replace(left_over=[*report.left_over, *extra])
  length = vocabulary.read_length(directory)
  if head and length == head.max_length:  # says nothing of the encoder
    length = None
  return rename.LoadedModel(
    params, config, tokenizer, report, head=head, trained_length=length
  )


def _make_config(path, theirs):
  """Returns the BertConfig that a config.json describes.

  Before 2020 it has no model_type, and at first no architectures either; then
  the names of the tensors decide.
  """
  kind = theirs.get('model_type', 'bert')
  if kind == modern_config.KIND:
    return modern_config.read(path, theirs)
  theirs = {'layer_norm_eps': _NORM_EPSILON, **theirs}
  causal = theirs.get('is_decoder', False)
  if kind != 'bert':
    config_file.refuse(path, 'model_type', kind, "'bert' or 'modernbert'")
  key, usual = 'position_embedding_type', 'absolute'
  if theirs.get(key, usual) != usual:
    config_file.refuse(path, key, theirs[key], f'{usual!r}')
  if not isinstance(causal, bool):
    config_file.refuse(path, 'is_decoder', causal, 'true or false')
  names = config_file.BERT, HIDDEN_ACT
  return config_file.to_config(path, theirs, *names, causal=causal)


def _read_tensors(directory):
  for name, read_file in _WEIGHTS.items():
    index = name + '.index.json'
    if path := local_files.find(directory, name):
      return read_file(path)
    if local_files.find(directory, index):
      return local_files.read_shards(directory, index, read_file)
  raise errors.UserError(
    f'{directory} has neither {" nor ".join(_WEIGHTS)}; name a folder with the '
    'weights of a BERT.'
  )
