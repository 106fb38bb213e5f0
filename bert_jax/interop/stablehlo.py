"""Writes a model as a StableHLO file, for programs without our code.

The file is serialised by `jax.export`: the computation with its weights, for
CPU, CUDA and TPU, any batch size and any length up to the model's positions.
`jax.export.deserialize` reads it without bert_jax; its `mlir_module()` is
portable StableHLO, see https://openxla.org/stablehlo/compatibility.
"""

import dataclasses
import pathlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.model import bert_config, heads, precision
from bert_jax.runtime import files

PLATFORMS = ('cpu', 'cuda', 'tpu')


def write(path: str, params: dict, config: bert_config.BertConfig):
  """Writes a model that maps a batch to logits.

  Its input is a dict of int32: `input_ids`, `input_mask` and `segment_ids`
  [B, S] and `masked_lm_positions` [B, P]; 1 <= B, P and 1 <= S <=
  config.max_positions. It returns MLM logits [B, P, V] and NSP logits [B, 2],
  None without the head, all in float32, without dropout.
  """
  _check_flatbuffers()
  if 'mlm' not in params:
    raise errors.UserError(
      'StableHLO is written with the MLM head (mlm), which the source lacks or '
      '--model=encoder leaves out; give a model that has it.'
    )
  config = dataclasses.replace(config, dtype='float32')
  module = heads.PretrainingModel(config, 'nsp' in params)
  held = jax.tree.map(np.asarray, params)

  @precision.jit_inference()
  def compute(batch):
    return module.apply({'params': held}, batch)

  exported = jax.export.export(compute, platforms=PLATFORMS)(_inputs(config))
  data = exported.serialize()
  files.write_file(path, lambda new: pathlib.Path(new).write_bytes(data))


def _inputs(config):
  """Returns the shapes of the batch, with symbolic dimensions b, s, p."""
  b, s, p = jax.export.symbolic_shape(
    'b, s, p', constraints=[f's <= {config.max_positions}']
  )
  tokens = jax.ShapeDtypeStruct((b, s), jnp.int32)
  return {
    'input_ids': tokens,
    'input_mask': tokens,
    'segment_ids': tokens,
    'masked_lm_positions': jax.ShapeDtypeStruct((b, p), jnp.int32),
  }


def read(path: str) -> Callable[[dict], tuple[jax.Array, jax.Array | None]]:
  """Reads a file of `write` as (batch) -> (mlm, nsp), on jax's device."""
  _check_flatbuffers()
  with errors.explaining(f'cannot read {path}'):
    content = bytearray(pathlib.Path(path).read_bytes())
  try:
    exported = jax.export.deserialize(content)
  except Exception as error:  # flatbuffers has no error type of its own
    raise errors.UserError(
      f'{path} cannot be read by this version of jax.export '
      f'({errors.first_line(error)}); export the model again.'
    ) from error
  return exported.call


def _check_flatbuffers():
  what, advice = 'StableHLO files need flatbuffers', 'pip install flatbuffers.'
  with errors.explaining(what, advice, ImportError):
    import flatbuffers  # noqa: F401
