"""Computes the features of a run's tokens once, and keeps them on disk."""

import dataclasses
import os
from collections.abc import Callable, Sequence

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


@dataclasses.dataclass(frozen=True)
class Rows:
  """Rows of a split, and which of their tokens a model is trained on.

  Attributes:
    encoded: N rows.
    positions: of those tokens, each in its row, int [T].
    ends: where those of each row end in `positions`, int64 [N].
  """

  encoded: encode.Encoded
  positions: np.ndarray
  ends: np.ndarray


def take_all(encoded: encode.Encoded) -> Rows:
  """Returns rows with all of their tokens."""
  return Rows(encoded, feature_rows.count_within(encoded.ends), encoded.ends)


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


def name_file(split: str) -> str:
  """Returns the name of a split's file in the folder of the data."""
  return f'{split}.features.npy'


def open_rows(directory: str, split: str, ends: np.ndarray):
  """Returns the `feature_rows.FeatureRows` of a split."""
  path = os.path.join(directory, name_file(split))
  return feature_rows.FeatureRows(path, ends)


def make_writer(
  config: config_dict.ConfigDict, splits: dict[str, Rows], pad_id: int
) -> Callable[[str], tuple[list[str], dict]]:
  """Returns a function that writes the features of splits into a folder.

  It returns the files' names and facts about them. The features are computed
  in float32, without dropout.

  Args:
    config: the experiment.
    splits: {split: rows}.
    pad_id: id of the padding.
  """

  def fill(folder):
    models = read_models(config)
    for path, model in zip(
      fine_tuned.list_sources(config), models, strict=True
    ):
      print(f'features of {path}: {model.origin}', flush=True)
    layers, width = fine_tuned.find_feature_shape(config)
    tokens = sum(len(rows.positions) for rows in splits.values())
    copies.check_room(tokens * layers * width * 4, folder)
    for split, rows in splits.items():
      _write(config, models, rows, pad_id, split, folder)
    facts = {
      'features': {
        'layers': config.finetuning.features,
        'models': [model.origin for model in models],
        'shape': [layers, width],
      }
    }
    return [name_file(split) for split in splits], facts

  return fill


def _write(config, models, rows, pad_id, split, folder):
  """Writes float32 [T, K, D] of a split, a batch at a time."""
  shape = len(rows.positions), *fine_tuned.find_feature_shape(config)
  path = os.path.join(folder, name_file(split))
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
    models: those whose hidden states are joined.
    features: one of `feature_model.LAYERS`.
    encoded: all rows.
    rows: numbers of those to compute.
    pad_id: id of the padding.
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
