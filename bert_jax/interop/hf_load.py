"""Loads a BERT from a Hugging Face folder, or from our export."""

import os
import reprlib

from bert_jax import errors
from bert_jax.interop import (
  config_file,
  hf_export,
  rename,
  sequence_head,
  vocabulary,
)
from bert_jax.runtime import files
from bert_jax.weight_files import local_files, safetensors_file, torch_bin

# Weights are one file, or several with an index; the first that exists is read.
_WEIGHTS = (
  ('model.safetensors', safetensors_file.read),
  ('pytorch_model.bin', torch_bin.read),
)
_MAX_NAME = 200  # characters
# Of transformers; older files do not say it.
_NORM_EPSILON = 1e-12


def read(directory: str) -> rename.LoadedModel:
  """Reads a BERT, with the heads that it has, from a Hugging Face folder.

  Nothing outside of the folder is read. What config.json does not say has the
  defaults of BertConfig: dtype and the kind of initial distribution.

  Raises:
    errors.UserError: if the folder is missing, incomplete, malformed or not
      such a model.
  """
  if not os.path.isdir(directory):
    raise errors.UserError(
      f'{directory} is not a folder; name one with a Hugging Face BERT.'
    )
  local_files.check_small(directory)
  path = os.path.join(directory, 'config.json')
  config = _read_config(path)
  tensors = _read_tensors(directory)
  with errors.within(directory):
    params, report = rename.from_hf(tensors, config)
  tokenizer, extra = vocabulary.cut(vocabulary.read(directory), config)
  head = sequence_head.read(path, files.read_json(path), tensors)
  used = sequence_head.list_names(head.task) if head else ()
  left_over = [name for name in report.left_over if name not in used]
  report = report._replace(left_over=[*left_over, *extra])
  return rename.LoadedModel(params, config, tokenizer, report, head=head)


def _read_config(path):
  """Returns the BertConfig that a config.json describes."""
  theirs = {'layer_norm_eps': _NORM_EPSILON, **files.read_json(path)}

  def refuse(key, allowed):
    config_file.refuse(path, theirs, key, allowed)

  key = 'model_type' if 'model_type' in theirs else 'architectures'
  if not _is_bert(theirs):
    refuse(key, 'of a BERT; only BERT models can be read')
  if theirs.get('position_embedding_type', 'absolute') != 'absolute':
    refuse('position_embedding_type', "'absolute'")
  if not isinstance(theirs.get('is_decoder', False), bool):
    refuse('is_decoder', 'true or false')
  return config_file.to_config(
    path, theirs, hf_export.HIDDEN_ACT, causal=theirs.get('is_decoder', False)
  )


def _is_bert(theirs) -> bool:
  """Returns whether a config.json is of a BERT, or does not say of what.

  Before 2020 it has no model_type, and at first no architectures either; then
  the names of the tensors decide.
  """
  if 'model_type' in theirs:
    return theirs['model_type'] == 'bert'
  classes = theirs.get('architectures') or []  # or null
  return isinstance(classes, list) and all(
    str(name).startswith('Bert') for name in classes
  )


def _read_tensors(directory):
  tensors = _read_weights(directory)
  # Unexpected names are printed, so they must be printable.
  bad = [n for n in tensors if len(n) > _MAX_NAME or not n.isprintable()]
  if bad:
    raise errors.UserError(
      f'{directory}: {reprlib.repr(bad[0])} is not the name of a tensor; copy '
      'the model again.'
    )
  return tensors


def _read_weights(directory):
  for name, read_file in _WEIGHTS:
    index = name + '.index.json'
    if path := local_files.find(directory, name):
      return read_file(path)
    if local_files.find(directory, index):
      return local_files.read_shards(directory, index, read_file)
  raise errors.UserError(
    f'{os.path.join(directory, _WEIGHTS[0][0])} does not exist, nor does '
    f'{_WEIGHTS[1][0]}; name a folder with the weights of a BERT.'
  )
