"""Reads Google's BERT: TensorFlow checkpoint, config, vocabulary."""

import glob
import os
import re

from bert_jax import errors
from bert_jax.interop import config_file, rename, vocabulary
from bert_jax.runtime import files
from bert_jax.weight_files import tf_checkpoint

_CONFIG = 'bert_config.json'
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
  names = sorted(glob.glob('*.index', root_dir=path))
  if len(names) != 1:
    raise errors.UserError(
      f'{path} holds {len(names)} checkpoints: {errors.listing(names)}; name '
      'the path of one, such as FOLDER/bert_model.ckpt, of which there is a .index.'
    )
  return os.path.join(path, names[0].removesuffix('.index'))


def read(path: str) -> rename.LoadedModel:
  """Reads a BERT that was saved by Google's code.

  The path is as in `find`; bert_config.json and vocab.txt are beside it.
  """
  prefix = find(path)
  directory = os.path.dirname(prefix)
  config_path = os.path.join(directory, _CONFIG)
  config = config_file.to_config(
    config_path,
    files.read_json(config_path),
    config_file.BERT,
    _HIDDEN_ACT,
    norm_epsilon=_NORM_EPSILON,
  )
  entries = tf_checkpoint.read_index(prefix)
  with errors.within(prefix):
    params, report = rename.to_ours(
      entries, lambda x: tf_checkpoint.read(entries[x]), config, 'google'
    )
  tokenizer, extra = vocabulary.read(directory, config)
  report = report._replace(left_over=[*report.left_over, *extra])
  return rename.LoadedModel(params, config, tokenizer, report)


def is_slot(name: str) -> bool:
  """Returns whether a variable belongs to the optimizer, not to the model."""
  return bool(_SLOT.fullmatch(name))
