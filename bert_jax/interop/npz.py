"""A BERT in a single .npz file, with our parameter names.

`numpy.load` opens it. It has float32 arrays such as
encoder/layer_0/mlp_in/kernel, and `about`, the UTF-8 bytes of a JSON object:
format, model (the fields of `bert_config.BertConfig`), lowercase, strip_accents
and vocab.
"""

import dataclasses
import json
import math

import flax.traverse_util
import numpy as np

from bert_jax import errors, param_names
from bert_jax.interop import config_file, name_table, rename, vocabulary
from bert_jax.model import bert_config, heads, parameters
from bert_jax.runtime import files
from bert_jax.tokenization.tokenizer import Tokenizer, check_vocab
from bert_jax.weight_files import stored_zip

_FORMAT = 'bert_jax 1'


def write(
  path: str,
  params: dict,
  config: bert_config.BertConfig,
  tokenizer: Tokenizer,
):
  """Writes a BERT to one file, atomically; heads may be missing in `params`."""
  if not path.endswith('.npz'):
    raise errors.UserError(f'{path!r} does not end in .npz; name such a file.')
  vocabulary.check_size(tokenizer, config)
  about = {
    'format': _FORMAT,
    'model': dataclasses.asdict(config),
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


def read(path: str) -> rename.LoadedModel:
  """Reads a file of `write`."""
  what = f'{path} is not what bert_jax.convert writes'
  wrong = ValueError, KeyError, TypeError, RecursionError
  with (
    errors.explaining(f'cannot read {path}'),
    errors.explaining(what, 'convert it again.', wrong),
  ):
    with errors.within(path):
      arrays = _read_arrays(path)
    about = json.loads(arrays.pop('about', np.empty(0, np.uint8)).tobytes())
    if not isinstance(about, dict) or about.get('format') != _FORMAT:
      raise ValueError(f'its format is not {_FORMAT!r}')
    config = config_file.make_config(path, dict(about['model']))
    params, report = _make_params(arrays, config)
    tokenizer = _make_tokenizer(path, about)
  vocabulary.check_size(tokenizer, config)
  return rename.LoadedModel(params, config, tokenizer, report)


def _read_arrays(path):
  """Returns {name: array}, using no more memory than the file has bytes."""
  with stored_zip.open_stored(path) as archive:
    for member in archive.infolist():
      # numpy.load would allocate what the header of an array asks for.
      with archive.open(member) as f:
        np.lib.format.read_magic(f)
        shape, _, dtype = np.lib.format.read_array_header_1_0(f)
        held = member.file_size - f.tell()
      right = min(shape, default=0) >= 0 and dtype in (np.float32, np.uint8)
      name = member.filename.removesuffix('.npy')
      if not right or math.prod(shape) * dtype.itemsize != held:
        raise ValueError(f'{name!r} is {dtype} {shape} of {held:,} bytes')
      if not name.isprintable():
        raise ValueError(f'it holds {name[:50]!r}, which is not a name')
  with np.load(path, allow_pickle=False) as file:
    return dict(file)


def _make_tokenizer(path, about):
  """Returns the Tokenizer that `about` describes."""
  vocab, lowercase = about['vocab'], about['lowercase']
  strip_accents = about['strip_accents']
  if not isinstance(lowercase, bool) or not isinstance(strip_accents, bool):
    raise ValueError(f'lowercase is {lowercase!r}, accents {strip_accents!r}')
  if not isinstance(vocab, list) or not all(isinstance(w, str) for w in vocab):
    raise ValueError('its vocabulary is not a list of words')
  check_vocab(vocab, path)
  return Tokenizer(tuple(vocab), lowercase, strip_accents)


def _make_params(arrays, config):
  """Returns the arrays as a tree, and a `rename.Report`."""
  layers = {
    name.split('/')[1] for name in arrays if name.startswith('encoder/')
  }
  # Checked before the shapes are computed, which takes time for each layer.
  if len(layers - {'final_norm'}) != config.num_layers:
    raise ValueError(f'it does not have {config.num_layers} layers')
  shapes = parameters.list_shapes(heads.PretrainingModel(config))
  held = {name.split('/')[0] for name in arrays}
  # A part may be absent, but not incomplete.
  absent = tuple(f'{part}/' for part in name_table.PARTS if part not in held)
  needed = {name for name in shapes if not name.startswith(absent)}
  torn = needed - set(arrays)
  if torn:
    raise ValueError(f'it lacks {errors.listing(sorted(torn))}')
  for name in needed:
    if arrays[name].shape != shapes[name]:
      raise ValueError(
        f'{name} has shape {arrays[name].shape}, not {shapes[name]}'
      )
  return (
    flax.traverse_util.unflatten_dict({n: arrays[n] for n in needed}, sep='/'),
    rename.Report(sorted(set(shapes) - needed), sorted(set(arrays) - needed)),
  )
