"""Google's format of BERT: TensorFlow checkpoint, config, vocabulary."""

import glob
import os
import re

from bert_jax import errors
from bert_jax.interop import config_file, rename, vocabulary
from bert_jax.model import bert_config
from bert_jax.runtime import files
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.weight_files import tf_checkpoint

_CONFIG = 'bert_config.json'
_PREFIX = 'bert_model.ckpt'
FILES = (
  _CONFIG,
  f'{_PREFIX}.data-00000-of-00001',
  f'{_PREFIX}.index',
  vocabulary.SETTINGS,
  vocabulary.NAME,
)
# Google's gelu is the approximation with tanh; its code has no name for the
# exact one (google-research/bert, modeling.py).
_HIDDEN_ACT = {'gelu': 'gelu_tanh', 'relu': 'relu'}
_NORM_EPSILON = 1e-12  # in the code, not in the config
_SLOT = re.compile(r'(.*/(adam_m|adam_v)|global_step)')


def find(path: str) -> str:
  """Returns the prefix of the checkpoint that a path names.

  The path is a folder with one checkpoint, PREFIX or PREFIX.index.
  """
  prefix = path.removesuffix('.index')
  if os.path.isfile(f'{prefix}.index'):
    return prefix
  found = sorted(glob.glob(os.path.join(glob.escape(path), '*.index')))
  if len(found) != 1:
    names = [os.path.basename(name) for name in found]
    raise errors.UserError(
      f'{path} holds {len(found)} checkpoints: {errors.listing(names)}; name '
      f'the path of one, such as FOLDER/{_PREFIX}, of which there is a .index.'
    )
  return found[0].removesuffix('.index')


def read(path: str) -> rename.LoadedModel:
  """Reads a BERT that was saved by Google's code or by `write`.

  The path is as in `find`; bert_config.json and vocab.txt are beside the
  checkpoint. The activation is gelu_tanh for Google's gelu. Whether text is
  lower-cased is read or else inferred, see `vocabulary.read`.
  """
  prefix = find(path)
  directory = os.path.dirname(prefix)
  config_path = os.path.join(directory, _CONFIG)
  config = config_file.to_config(
    config_path,
    files.read_json(config_path),
    _HIDDEN_ACT,
    norm_epsilon=_NORM_EPSILON,
  )
  entries = tf_checkpoint.read_index(prefix)
  with errors.within(prefix):
    params, report = rename.to_ours(
      entries,
      lambda name: tf_checkpoint.read(entries[name]),
      config,
      'google',
    )
  tokenizer, extra = vocabulary.read(directory, config)
  report = report._replace(left_over=[*report.left_over, *extra])
  return rename.LoadedModel(params, config, tokenizer, report)


def is_slot(name: str) -> bool:
  """Returns whether a variable belongs to the optimizer, not to the model."""
  return bool(_SLOT.fullmatch(name))


def write(
  directory: str,
  params: dict,
  config: bert_config.BertConfig,
  tokenizer: Tokenizer,
):
  """Writes a folder that Google's code loads, atomically.

  Besides Google's files it has a tokenizer_config.json that says whether text
  is lower-cased, for which Google's code has a flag.

  An earlier export is replaced. Heads may be missing in `params`.
  """
  _check(config)
  if tokenizer.strip_accents != tokenizer.lowercase:
    raise errors.UserError(
      f'strip_accents={tokenizer.strip_accents} with '
      f"lowercase={tokenizer.lowercase} has no name in Google's format, whose "
      'code strips accents when it lower-cases; use --format=hf.'
    )
  tensors = rename.to_theirs(params, config, 'google')
  vocabulary.check_size(tokenizer, config)
  theirs = {ours: name for name, ours in _HIDDEN_ACT.items()}
  values = config_file.from_config(config)
  del values['layer_norm_eps']
  values['hidden_act'] = theirs[config.activation]
  values = dict(sorted(values.items()))

  def fill(new):
    tf_checkpoint.write(os.path.join(new, _PREFIX), tensors)
    vocabulary.write(new, tokenizer)
    settings = {'do_lower_case': tokenizer.lowercase}
    files.write_json(os.path.join(new, _CONFIG), values)
    files.write_json(os.path.join(new, vocabulary.SETTINGS), settings)

  files.write_folder(directory, FILES, fill)


def _check(config):
  """Raises errors.UserError if Google's code does not support a model."""
  activations = tuple(_HIDDEN_ACT.values())
  if config.activation not in activations:
    raise errors.UserError(
      f"activation={config.activation!r} has no name in Google's format, only "
      f'{" and ".join(map(repr, activations))}; their gelu is the tanh form. To '
      'write the weights for that, give --activation=gelu_tanh; outputs differ '
      'a little (docs/convert.md).'
    )
  allowed = {
    'norm_epsilon': _NORM_EPSILON,
    'norm': 'post',
    'reverse': False,
    'causal': False,
  }
  for field, only in allowed.items():
    value = getattr(config, field)
    if value != only:
      raise errors.UserError(
        f"{field}={value!r} has no name in Google's format, only {only!r}."
      )
