"""A BERT in a single .npz file, with our parameter names.

`numpy.load` opens it. It has float32 arrays such as
encoder/layer_0/mlp_in/kernel, and `about`, the UTF-8 bytes of a JSON object:
format, model (the fields of `bert_config.BertConfig`), lowercase, strip_accents
and vocab.
"""

import dataclasses
import functools
import json
import math
import os
import zipfile

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors, param_names
from bert_jax.interop import name_table, rename, vocabulary
from bert_jax.model import bert_config, heads
from bert_jax.runtime import files
from bert_jax.tokenization import tokenizer as tokenizer_lib

_FORMAT = 'bert_jax 1'
_MAX_SIZE = 1 << 24  # of an axis
# Exceptions that zipfile, numpy, json and our checks raise for damaged files.
_DAMAGED = (
  zipfile.BadZipFile,
  NotImplementedError,
  EOFError,
  ValueError,
  KeyError,
  TypeError,
  RecursionError,
)
_FEATURES = 'input_ids', 'input_mask', 'segment_ids', 'masked_lm_positions'
_CHOICES = {
  'activation': bert_config.ACTIVATIONS,
  'norm': bert_config.NORMS,
  'initializer': bert_config.INITIALIZERS,
  'attention_init': bert_config.ATTENTION_INITS,
  'dtype': ('float32', 'bfloat16'),
}


def write(
  path: str,
  params: dict,
  config: bert_config.BertConfig,
  tokenizer: tokenizer_lib.Tokenizer,
):
  """Writes a BERT to one file, atomically.

  Args:
    path: local file; an existing one is replaced.
    params: nested dict of arrays; heads may be missing.

  Raises:
    errors.UserError: if the file cannot be written.
  """
  if not path.endswith('.npz'):
    raise errors.UserError(f'{path!r} does not end in .npz; name such a file.')
  vocabulary.check_size(tokenizer, config)
  about = {
    'format': _FORMAT,
    'model': _describe(config),
    'lowercase': tokenizer.lowercase,
    'strip_accents': tokenizer.strip_accents,
    'vocab': tokenizer.vocab,
  }
  arrays = {
    name: np.asarray(x, np.float32)
    for name, x in param_names.flatten(params).items()
  }
  text = json.dumps(about, ensure_ascii=False).encode()
  arrays['about'] = np.frombuffer(text, np.uint8)

  def fill(new):
    with open(new, 'wb') as f:  # np.savez would add .npz to the name
      np.savez(f, **arrays)

  files.write_file(path, fill)


def _describe(config):
  fields = dataclasses.asdict(config)
  if not config.reverse:  # a field that older versions do not know
    del fields['reverse']
  return fields


def read(path: str) -> rename.LoadedModel:
  """Reads a file of `write`.

  Returns:
    (params, config, with_nsp, tokenizer, report): as `hf_load.read`.

  Raises:
    errors.UserError: if the file is missing, damaged or not such a model.
  """
  try:
    arrays = _arrays(path)
    about = json.loads(arrays.pop('about', np.empty(0, np.uint8)).tobytes())
    config, tokenizer = _described(path, about)
    params, report = _params(arrays, config)
  except OSError as error:
    raise errors.UserError(f'cannot read {path}: {error.strerror}.') from error
  except _DAMAGED as error:
    raise errors.UserError(
      f'{path} is not what bert_jax.convert writes: '
      f'{errors.first_line(error)}; convert it again.'
    ) from error
  vocabulary.check_size(tokenizer, config)
  return params, config, 'nsp' in params, tokenizer, report


def _arrays(path):
  """Returns {name: array}, using no more memory than the file has bytes.

  numpy.load would allocate what the header of an array asks for.
  """
  found = {}
  with zipfile.ZipFile(path) as archive:
    members = archive.infolist()
    if sum(member.file_size for member in members) > os.path.getsize(path):
      raise ValueError('its arrays share bytes')
    for member in members:
      name = member.filename.removesuffix('.npy')
      if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise ValueError(f'{name!r} is compressed or encrypted')
      if name in found or not name.isprintable():
        raise ValueError(f'it holds {name[:50]!r} twice or it is no name')
      with archive.open(member) as f:
        found[name] = _array(f, name)
  return found


def _array(f, name):
  version = np.lib.format.read_magic(f)
  if version != (1, 0):
    raise ValueError(f'{name!r} is of format {version}, not (1, 0)')
  shape, transposed, dtype = np.lib.format.read_array_header_1_0(f)
  if transposed and len(shape) > 1 or dtype not in (np.float32, np.uint8):
    raise ValueError(f'{name!r} is {dtype}, not float32 in C order')
  data = f.read()
  if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(
    data
  ):
    raise ValueError(f'{name!r} of shape {shape} has {len(data):,} bytes')
  return np.frombuffer(data, dtype).reshape(shape)


def _described(path, about):
  """Returns the config and the Tokenizer that `about` describes."""
  if not isinstance(about, dict) or about.get('format') != _FORMAT:
    raise ValueError(f'its format is not {_FORMAT!r}')
  model, vocab = about['model'], about['vocab']
  known = {
    field.name: field for field in dataclasses.fields(bert_config.BertConfig)
  }
  if not isinstance(model, dict) or set(model) - set(known):
    raise ValueError(
      f'its model has the fields {errors.listing(sorted(model))}'
    )
  for name, value in model.items():
    _check_field(name, value, known[name].type)
  config = bert_config.BertConfig(**model)
  if config.hidden_size % config.num_heads:
    raise ValueError(f'{config.hidden_size} is no multiple of its heads')
  lowercase = about['lowercase']
  strip_accents = about.get('strip_accents', lowercase)  # older files lack it
  for name, value in ('lowercase', lowercase), ('strip_accents', strip_accents):
    if not isinstance(value, bool):
      raise ValueError(f'{name} is {value!r}')
  if not isinstance(vocab, list) or not all(isinstance(w, str) for w in vocab):
    raise ValueError('its vocabulary is not a list of words')
  missing = set(tokenizer_lib.SPECIAL) - set(vocab)
  if missing or len(set(vocab)) < len(vocab):
    raise ValueError('its vocabulary lacks special tokens or repeats words')
  return config, tokenizer_lib.Tokenizer(tuple(vocab), lowercase, strip_accents)


def _check_field(name, value, kind):
  """Raises ValueError for a value that a field of BertConfig cannot have."""
  number = isinstance(value, int | float) and not isinstance(value, bool)
  if kind is int:
    good = number and isinstance(value, int) and 0 < value <= _MAX_SIZE
  elif kind is float:
    good = number and math.isfinite(value)
  elif name in _CHOICES:
    good = isinstance(value, str) and value in _CHOICES[name]
  else:
    good = isinstance(value, kind)
  if not good:
    raise ValueError(f'its {name} is {value!r}')


def _params(arrays, config):
  """Returns the arrays as a tree, and a `rename.Report`."""
  layers = {
    name.split('/')[1] for name in arrays if name.startswith('encoder/')
  }
  # Checked before the shapes are computed, which takes time for each layer.
  if len(layers - {'final_norm'}) != config.num_layers:
    raise ValueError(f'it has not {config.num_layers} layers')
  batch = dict.fromkeys(_FEATURES, jnp.zeros((1, 1), jnp.int32))
  init = functools.partial(heads.PretrainingModel(config).init, batch=batch)
  shapes = param_names.flatten(
    jax.eval_shape(init, jax.random.key(0))['params']
  )
  held = {name.split('/')[0] for name in arrays} & set(name_table.PARTS)
  needed = {
    name
    for name in shapes
    if name.split('/')[0] in held or name.split('/')[0] not in name_table.PARTS
  }
  torn = needed - set(arrays)
  if torn:
    raise ValueError(f'it lacks {errors.listing(sorted(torn))}')
  params = {}
  for name in needed:
    if arrays[name].shape != shapes[name].shape:
      raise ValueError(
        f'{name} has shape {arrays[name].shape}, not {shapes[name].shape}'
      )
    params[name] = arrays[name]
  missing, left_over = set(shapes) - needed, set(arrays) - needed
  return (
    flax.traverse_util.unflatten_dict(params, sep='/'),
    rename.Report(sorted(missing), sorted(left_over)),
  )
