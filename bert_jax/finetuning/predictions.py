"""Computes a fine-tuned model's outputs for encoded rows."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.finetuning import encode, feature_rows
from bert_jax.runtime import progress

_LENGTH_STEP = 16  # tokens; lengths are rounded up to compile few shapes


def compute_logits(
  params: Any,
  module: nn.Module,
  encoded: encode.Encoded | feature_rows.FeatureRows,
  pad_id: int,
  label: str,
  batch_size: int = 32,
) -> np.ndarray:
  """Returns float32 logits [N, C] of rows, in their order.

  Rows of similar length share a batch, so that short ones do not pay for long
  ones. It computes in float32, without dropout.

  Args:
    params: nested dict of arrays, without padding rows of the vocabulary.
    module: the model, such as `classifier.Classifier`.
    encoded: the rows, at most as many tokens each as the model has positions.
    pad_id: id of the padding.
    label: what is being done, for the progress.
    batch_size: rows per batch.
  """
  logits = np.zeros((len(encoded.ends), module.outputs), np.float32)
  for rows, found in compute(
    params, module, encoded, pad_id, label, batch_size
  ):
    logits[rows] = found
  return logits


def choose_classes(
  params: Any,
  module: nn.Module,
  encoded: encode.Encoded | feature_rows.FeatureRows,
  pad_id: int,
  label: str,
  batch_size: int = 32,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the likeliest class of each row, int32 [N], and how likely it is.

  That is a probability, float64 [N]. Only the logits of one batch are kept: those
  of many rows, of many classes, need not fit into memory.

  Args: as `compute_logits`.
  """
  size = len(encoded.ends)
  chosen, likely = np.zeros(size, np.int32), np.zeros(size)
  for rows, logits in compute(
    params, module, encoded, pad_id, label, batch_size
  ):
    chosen[rows] = logits.argmax(-1)
    likely[rows] = to_probabilities(logits).max(-1)
  return chosen, likely


def compute_tags(
  params: Any,
  module: nn.Module,
  encoded: encode.Encoded | feature_rows.FeatureRows,
  pad_id: int,
  label: str,
  batch_size: int = 32,
) -> list[np.ndarray]:
  """Returns the likeliest tag of each token of rows, N times int32 [tokens].

  Args: as `compute_logits`; the module is one like `tagger.Tagger`.
  """
  lengths = encoded.lengths
  tags: list[np.ndarray] = [np.zeros(0, np.int32)] * len(lengths)
  for rows, found in compute(
    params, module, encoded, pad_id, label, batch_size
  ):
    for row, logits in zip(rows, found, strict=True):
      chosen = logits[: lengths[row]].argmax(-1)
      tags[row] = chosen.astype(np.int32)
  return tags


def compute(
  params: Any,
  module: nn.Module,
  encoded: encode.Encoded | feature_rows.FeatureRows,
  pad_id: int,
  label: str,
  batch_size: int = 32,
  more: Mapping[str, np.ndarray] | None = None,
  reduce: Callable[[Any, dict], Any] | None = None,
) -> Iterator[tuple[np.ndarray, Any]]:
  """Yields batches of rows of similar length: their numbers [b], and outputs.

  Args: as `compute_logits`, and
    more: {name: [N, ...]}, further parts of a batch.
    reduce: (outputs, batch) -> what to keep of them, on the device; by default
      all.
  """
  config = dataclasses.replace(module.config, dtype='float32')
  module = module.clone(config=config)
  size, lengths = len(encoded.ends), encoded.lengths
  by_length = np.argsort(lengths, kind='stable')
  params = jax.device_put(params)
  with progress.Progress(size, 'rows', label) as bar:
    for start in range(0, size, batch_size):
      rows = by_length[start : start + batch_size]
      length = -(-int(lengths[rows[-1]]) // _LENGTH_STEP) * _LENGTH_STEP
      length = min(length, config.max_positions)
      # The last batch is filled up with its last row.
      full = np.pad(rows, (0, batch_size - len(rows)), mode='edge')
      batch = encode.make_batch(encoded, full, length, pad_id)
      batch |= {name: x[full] for name, x in (more or {}).items()}
      found = _apply(params, jax.tree.map(jnp.asarray, batch), module, reduce)
      real = operator.itemgetter(slice(len(rows)))
      yield rows, jax.tree.map(real, jax.device_get(found))
      bar.update(len(rows))


@functools.partial(jax.jit, static_argnames=('module', 'reduce'))
def _apply(params, batch, module, reduce):
  outputs = module.apply({'params': params}, batch)
  return outputs if reduce is None else reduce(outputs, batch)


def to_probabilities(logits: np.ndarray) -> np.ndarray:
  """Returns the softmax of logits [..., C], in float64."""
  shifted = np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64)
  return shifted / shifted.sum(-1, keepdims=True)
