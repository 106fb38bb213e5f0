"""The features of frozen models: computed once, kept on disk, read as rows."""

import dataclasses
import functools
import os

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import encode
from bert_jax.inference import fine_tuned, hidden_states, source
from bert_jax.model import feature_model
from bert_jax.runtime import copies, progress

_SAME = 'num_layers', 'hidden_size'  # of models whose features are joined
_BATCH = 32  # rows
_LENGTH_STEP = 32  # tokens


@dataclasses.dataclass(frozen=True)
class FeatureRows:
  """N rows of different lengths, end to end. Pickled without the features.

  Attributes:
    path: a .npy file: float32 [T, K, D], of the tokens of all rows.
    ends: where each row ends in it, int64 [N].
  """

  path: str
  ends: np.ndarray

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int64 [N]."""
    return np.diff(self.ends, prepend=0)

  @functools.cached_property
  def features(self) -> np.ndarray:
    """Returns the file's array, of which only what is used is read."""
    return np.load(self.path, mmap_mode='r')

  def __reduce__(self):
    return FeatureRows, (self.path, self.ends)

  def make_batch(
    self, rows: np.ndarray, length: int, pad_id: int
  ) -> dict[str, np.ndarray]:
    """Returns `features`, float32 [B, S, K, D], and `input_mask`, int32 [B, S].

    Args: as `encode.Encoded.make_batch`.
    """
    _, layers, width = self.features.shape
    batch = {
      'features': np.zeros((len(rows), length, layers, width), np.float32),
      'input_mask': np.zeros((len(rows), length), np.int32),
    }
    for k, row in enumerate(rows):
      begin, end = self.ends[row - 1] if row else 0, self.ends[row]
      batch['features'][k, : end - begin] = self.features[begin:end]
      batch['input_mask'][k, : end - begin] = 1
    return batch


def read_models(config: config_dict.ConfigDict) -> list[source.Source]:
  """Reads the models that a run starts from: one, or those to be joined."""
  paths = fine_tuned.list_sources(config)
  found = [source.read(path) for path in paths]
  for path, model in zip(paths[1:], found[1:], strict=True):
    values = [
      (name, getattr(model.config, name), getattr(found[0].config, name))
      for name in _SAME
    ]
    wrong = [f'{name} is {x}, not {y}' for name, x, y in values if x != y]
    if model.tokenizer != found[0].tokenizer:
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
  splits: dict[str, encode.Rows],
  pad_id: int,
  folder: str,
) -> tuple[list[str], dict]:
  """Writes the features of splits; they are in float32, without dropout.

  Returns the files' names and facts about them; ([], {}) if a run has none.
  """
  if config.finetuning.features == fine_tuned.NO_FEATURES:
    return [], {}
  models, paths = read_models(config), fine_tuned.list_sources(config)
  for path, model in zip(paths, models, strict=True):
    print(f'features of {path}: {model.origin}', flush=True)
  shape = fine_tuned.find_feature_shape(config)
  tokens = {name: split.list_tokens() for name, split in splits.items()}
  count = sum(len(positions) for positions, _ in tokens.values())
  copies.check_room(count * shape[0] * shape[1] * 4, folder)
  names = []
  for name, split in splits.items():
    path, size = name_file(folder, name), len(tokens[name][0])
    names.append(os.path.basename(path))
    array = np.lib.format.open_memmap(path, 'w+', np.float32, (size, *shape))
    label = f'computing features of {name}'
    batches = _compute_all(config, models, split.encoded, pad_id, label)
    positions, ends = tokens[name]
    for row, found in batches:
      part = slice(ends[row - 1] if row else 0, ends[row])
      array[part] = found[positions[part]]
    array.flush()
  facts = {
    'layers': config.finetuning.features,
    'models': [model.origin for model in models],
    'shape': [*shape],
  }
  return names, {'features': facts}


def _compute_all(config, models, encoded, pad_id, label):
  """Yields (number of a row, its features [S, K, D]), grouped by length."""
  most = min(model.config.max_positions for model in models)
  layers = feature_model.list_layers(
    config.finetuning.features, config.model.num_layers
  )
  batches = encode.batch_by_length(encoded.lengths, _BATCH, _LENGTH_STEP, most)
  with progress.Progress(len(encoded.lengths), 'rows', label) as bar:
    for rows, full, length in batches:
      batch = encoded.make_batch(full, length, pad_id)
      found = [
        hidden_states.stack(
          model.params,
          batch,
          dataclasses.replace(model.config, dtype='float32'),
          layers,
        )
        for model in models
      ]
      joined = np.concatenate(jax.device_get(found), -1)[: len(rows)]
      yield from zip(rows, joined, strict=True)
      bar.update(len(rows))
