"""Computes and keeps what a fine-tuned model predicts for rows of a split."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import precision
from bert_jax.runtime import progress

_LENGTH_STEP = 16  # tokens; lengths are rounded up to compile few shapes


def fill(
  split: Any,
  kept: dict[str, np.ndarray] | None,
  rows: np.ndarray,
  found: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
  """Puts values of a batch where they belong among those of a split.

  Args:
    split: N rows.
    kept: {name: [N, ...]} so far; None at first.
    rows: numbers of the batch's rows, [b].
    found: {name: [B, ...]}, of which the first b are of these rows.
  """
  if kept is None:
    kept = {
      name: np.zeros((split.size, *x.shape[1:]), x.dtype)
      for name, x in found.items()
    }
  for name, x in found.items():
    kept[name][rows] = x[: len(rows)]
  return kept


def keep_likeliest(
  split: Any,
  kept: Any,
  rows: np.ndarray,
  found: dict[str, np.ndarray],
  whole: bool = False,
) -> dict[str, np.ndarray]:
  """Keeps of `logits` [B, C] what is `chosen`, and its `probability`, float64.

  That is the likeliest class or choice or, if C is 1, the number itself, which
  has no probability. Args: as `fill`, and

  Args:
    whole: whether to keep the logits of classes, too. Those of many rows, of
      many classes, need not fit into memory.
  """
  logits = found['logits']
  if logits.shape[1] == 1:
    return fill(split, kept, rows, {'chosen': logits[:, 0]})
  likely = to_probabilities(logits).max(-1)
  chosen = {'chosen': logits.argmax(-1), 'probability': likely}
  return fill(split, kept, rows, chosen | (found if whole else {}))


def predict(
  network: tuple[Any, nn.Module],
  split: Any,
  make: Callable[[Any, np.ndarray, int], dict[str, np.ndarray]],
  compute: Callable[..., tuple[dict, Any]],
  keep: Callable[[Any, Any, np.ndarray, Any], Any],
  label: str,
  batch_size: int,
) -> Any:
  """Returns what is kept of a model's predictions for all rows of a split.

  Rows of similar length share a batch, so that short ones do not pay for long
  ones. It computes in float32, without dropout.

  Args:
    network: nested dict of parameters, without padding rows of the vocabulary;
      and the model.
    make: (split, numbers of rows, length) -> their batch.
    compute: as of `supervised.make_objective`.
    keep: (split, kept, rows, predictions) -> kept, such as `fill`.
  """
  params, module = network
  config = dataclasses.replace(module.config, dtype='float32')
  module, kept = module.clone(config=config), None
  lengths = split.lengths
  by_length = np.argsort(lengths, kind='stable')
  params = jax.device_put(params)
  with progress.Progress(split.size, 'rows', label) as bar:
    for start in range(0, split.size, batch_size):
      rows = by_length[start : start + batch_size]
      length = -(-int(lengths[rows[-1]]) // _LENGTH_STEP) * _LENGTH_STEP
      length = min(length, config.max_positions)
      # The last batch is filled up with its last row.
      full = np.pad(rows, (0, batch_size - len(rows)), mode='edge')
      batch = jax.tree.map(jnp.asarray, make(split, full, length))
      found = jax.device_get(_apply(params, batch, module, compute))
      kept = keep(split, kept, rows, found)
      bar.update(len(rows))
  return kept


@precision.jit_inference('module', 'compute')
def _apply(params, batch, module, compute):
  return compute(module, params, batch, None)[1]


def to_probabilities(logits: np.ndarray) -> np.ndarray:
  """Returns the softmax of logits [..., C], in float64."""
  shifted = np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64)
  return shifted / shifted.sum(-1, keepdims=True)
