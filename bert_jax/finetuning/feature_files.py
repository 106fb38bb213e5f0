"""Computes the features of a run's tokens once, and keeps them on disk."""

import dataclasses
import os
from collections.abc import Sequence

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import encode, feature_rows
from bert_jax.inference import fine_tuned, hidden_states, source
from bert_jax.model import feature_model
from bert_jax.runtime import copies, progress

_SAME = 'num_layers', 'hidden_size'  # of models whose features are joined
_BATCH = 32  # rows
_LENGTH_STEP = 32  # tokens; lengths are rounded up to compile few shapes


def read_models(config: config_dict.ConfigDict) -> list[source.Source]:
  """Reads the models that a run starts from: one, or those to be joined.

  Raises:
    errors.UserError: if they cannot be read, or not be joined.
  """
  paths = fine_tuned.list_sources(config)
  found = [source.read(path) for path in paths]
  for path, model in zip(paths[1:], found[1:], strict=True):
    first = found[0]
    wrong = [
      f'{name} is {getattr(model.config, name)}, not '
      f'{getattr(first.config, name)}'
      for name in _SAME
      if getattr(model.config, name) != getattr(first.config, name)
    ]
    if model.tokenizer != first.tokenizer:
      wrong.append('it has another vocabulary')
    if wrong:
      raise errors.UserError(
        f'the features of {path} cannot be joined to those of {paths[0]}: '
        f'{"; ".join(wrong)}.'
      )
  return found


def name_file(folder: str, split: str) -> str:
  """Returns the path of a split's features in the folder of the data."""
  return os.path.join(folder, f'{split}.features.npy')


def write(
  config: config_dict.ConfigDict,
  splits: dict[str, feature_rows.Tokens],
  pad_id: int,
  folder: str,
) -> tuple[list[str], dict]:
  """Writes the features of splits; they are in float32, without dropout.

  Returns:
    The files' names, and facts about them.
  """
  models, paths = read_models(config), fine_tuned.list_sources(config)
  for path, model in zip(paths, models, strict=True):
    print(f'features of {path}: {model.origin}', flush=True)
  layers, width = fine_tuned.find_feature_shape(config)
  count = sum(len(tokens.positions) for tokens in splits.values())
  copies.check_room(count * layers * width * 4, folder)
  for split, tokens in splits.items():
    _write(config, models, tokens, pad_id, split, folder)
  facts = {
    'layers': config.finetuning.features,
    'models': [model.origin for model in models],
    'shape': [layers, width],
  }
  names = [os.path.basename(name_file(folder, x)) for x in splits]
  return names, {'features': facts}


def _write(config, models, rows, pad_id, split, folder):
  """Writes float32 [T, K, D] of a split, a batch at a time."""
  shape = len(rows.positions), *fine_tuned.find_feature_shape(config)
  path = name_file(folder, split)
  array = np.lib.format.open_memmap(path, 'w+', np.float32, shape)
  by_length = np.argsort(rows.encoded.lengths, kind='stable')
  with progress.Progress(
    len(by_length), 'rows', f'computing features of {split}'
  ) as bar:
    for start in range(0, len(by_length), _BATCH):
      chosen = by_length[start : start + _BATCH]
      found = compute(
        models, config.finetuning.features, rows.encoded, chosen, pad_id
      )
      for row, features in zip(chosen, found, strict=True):
        part = slice(rows.ends[row - 1] if row else 0, rows.ends[row])
        array[part] = features[rows.positions[part]]
      bar.update(len(chosen))
  array.flush()


def compute(
  models: Sequence[source.Source],
  features: str,
  encoded: encode.Encoded,
  rows: np.ndarray,
  pad_id: int,
) -> np.ndarray:
  """Returns the features of at most 32 rows, float32 [B, S, K, D].

  Args:
    features: one of `feature_model.LAYERS`.
  """
  longest = int(encoded.lengths[rows].max())
  length = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
  length = min(length, *(model.config.max_positions for model in models))
  # Filled up with the last row, so that few shapes are compiled.
  full = np.pad(rows, (0, _BATCH - len(rows)), mode='edge')
  batch = encode.make_batch(encoded, full, length, pad_id)
  found = [
    hidden_states.stack(
      model.params,
      batch,
      dataclasses.replace(model.config, dtype='float32'),
      feature_model.list_layers(features, model.config.num_layers),
    )
    for model in models
  ]
  return np.concatenate(jax.device_get(found), -1)[: len(rows)]
