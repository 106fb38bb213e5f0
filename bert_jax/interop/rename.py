"""Renames and reshapes parameters for Hugging Face and Google, and back.

Hugging Face stores kernels transposed. Of BERT, both store query, key and value as
three arrays with all heads in one axis; here they are one array with an axis for
heads. ModernBERT has one matrix for the three, and one for the MLP and its gate.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import flax.traverse_util
import numpy as np

from bert_jax import errors, param_names
from bert_jax.interop import name_table
from bert_jax.model import bert_config, classifier
from bert_jax.tokenization.tokenizer import Tokenizer

_HF_BUFFERS = re.compile(r'bert\.embeddings\.(position|token_type)_ids')
# Modules in the names of BertModel and ModernBertModel; the other classes add the
# prefix bert or model.
_HF_BARE = re.compile(r'(embeddings|encoder|pooler|layers|final_norm)\.')
# What DataParallel and torch.compile put before names, or both.
_WRAPPED = re.compile(r'^(module\.|_orig_mod\.)+')


class Report(NamedTuple):
  """The differences of a file from a BERT with all heads."""

  missing: list[str]  # names that the file lacks, in its format
  left_over: list[str]  # names in the file that were not used


class LoadedModel(NamedTuple):
  """A BERT with some or all of its heads."""

  params: dict[str, Any]  # nested, of float32 arrays; without incomplete heads
  config: bert_config.BertConfig
  tokenizer: Tokenizer
  report: Report = Report([], [])
  origin: str = ''  # where it is from, to print
  step: int | None = None  # of a run's checkpoint
  head: classifier.Head | None = None  # for a task of fine-tuning
  # Tokens of the longest rows; None if unknown, which counts as all positions.
  trained_length: int | None = None


def list_parts(params: Collection[str]) -> list[str]:
  """Returns the names of `name_table.PARTS` that the parameters contain."""
  return [p for p in name_table.PARTS if p in params]


def keep_parts(params: dict, wanted: Collection[str]) -> dict:
  """Returns the parameters of the encoder and of the wanted parts."""
  return {
    name: value
    for name, value in params.items()
    if name in wanted or name not in name_table.PARTS or name == 'encoder'
  }


def to_theirs(
  params: dict, config: bert_config.BertConfig, side: str
) -> dict[str, np.ndarray]:
  """Returns {their name: contiguous float32 array}, without the tied decoder.

  Args:
    params: nested dict of arrays, as `heads.PretrainingModel` makes it with
      norm='post' or body='modern'; heads may be missing.
    side: 'hf' or, of BERT, 'google'.
  """
  ours = param_names.flatten(params)
  held = list_parts(params)
  tensors = {}
  for row in name_table.list_rows(config):
    if row.part not in held:
      continue
    theirs = _split(np.asarray(ours.pop(row.ours), np.float32), row.layout)
    for name, value in zip(getattr(row, side), theirs, strict=True):
      assert value.shape == row.shape, (name, value.shape)
      value = value.T if side in row.transposed_in else value
      # safetensors ignores strides: it would store a transposed view wrongly.
      tensors[name] = np.ascontiguousarray(value)
  if ours:
    raise ValueError(f'parameters without a name there: {sorted(ours)}.')
  return tensors


def _split(array: np.ndarray, layout: str) -> Iterable[np.ndarray]:
  """Converts one of our arrays to theirs, one or three, by `Row.layout`."""
  if layout == 'joined_qkv':  # [D, 3, H, K] or [3, H, K]
    separate = np.moveaxis(array, -3, 0)
    return separate.reshape(*separate.shape[:-2], -1)  # [3, D, H K] or [3, H K]
  if layout == 'split_heads':  # [H, K, D] to [H K, D]
    array = array.reshape(-1, array.shape[-1])
  if layout in ('one_qkv', 'gated'):  # [D, 3, H, K] or [D, 2, F]
    array = array.reshape(len(array), -1)
  return [array]


def _join(arrays: list[np.ndarray], layout: str, head_size: int) -> np.ndarray:
  """Converts their arrays to ours, the inverse of `_split`."""
  if layout == 'joined_qkv':
    separate = np.stack(arrays)
    heads = separate.reshape(*separate.shape[:-1], -1, head_size)
    return np.moveaxis(heads, 0, -3)
  (array,) = arrays
  if layout == 'split_heads':
    array = array.reshape(-1, head_size, array.shape[-1])
  if layout == 'one_qkv':
    array = array.reshape(len(array), 3, -1, head_size)
  if layout == 'gated':
    array = array.reshape(len(array), 2, -1)
  return array


def from_hf(
  tensors: Mapping[str, np.ndarray], config: bert_config.BertConfig
) -> tuple[dict, Report]:
  """Converts Hugging Face's tensors, of any of its classes, see `to_ours`."""
  renamed = modernise(tensors)
  for copy, original in name_table.HF_TIED.items():
    if copy not in renamed:
      continue
    x = renamed.pop(copy)
    if not np.array_equal(x, renamed.setdefault(original, x)):
      raise errors.UserError(
        f'{copy} differs from {original}; the decoder is tied to it here, so '
        'use a model trained with tied embeddings.'
      )
  names = [name for name in renamed if not _HF_BUFFERS.fullmatch(name)]
  return to_ours(names, renamed.__getitem__, config, 'hf')


def modernise(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns tensors with their names in today's classes with heads."""
  named = {_WRAPPED.sub('', name): x for name, x in tensors.items()}
  prefix = 'bert.' if 'embeddings.word_embeddings.weight' in named else ''
  prefix = 'model.' if 'embeddings.tok_embeddings.weight' in named else prefix
  renamed = {}
  for name, x in named.items():  # gamma and beta are from before 2020
    name = re.sub(r'\.gamma$', '.weight', re.sub(r'\.beta$', '.bias', name))
    renamed[prefix + name if _HF_BARE.match(name) else name] = x
  if len(renamed) < len(tensors):
    raise errors.UserError(
      'some tensors are there twice, under an old and a new name, or with module. '
      'or _orig_mod. before it and without; remove one.'
    )
  return renamed


def to_ours(
  names: Collection[str],
  read: Callable[[str], np.ndarray],
  config: bert_config.BertConfig,
  side: str,
) -> tuple[dict, Report]:
  """Converts tensors with the names of one side, the inverse of `to_theirs`.

  Args:
    read: returns the tensor with a name; called only for those needed.
    side: 'hf' or 'google', whose optimizer slots are left over.

  Returns:
    Nested dict of float32 arrays of the existing parts, and a `Report`.
  """
  rows = name_table.list_rows(config)
  wanted = {part: set() for part in name_table.PARTS}
  for row in rows:
    wanted[row.part].update(getattr(row, side))
  held = [part for part in name_table.PARTS if wanted[part] & {*names}]
  report = Report(
    missing=sorted(set().union(*wanted.values()).difference(names)),
    left_over=sorted(set(names).difference(*wanted.values())),
  )
  needed = {'encoder', *held, *(['pooler'] if 'nsp' in held else ())}
  lacking = set().union(*(wanted[part] for part in needed)).difference(names)
  if lacking:
    raise errors.UserError(
      f'the tensors do not make a BERT of {config.num_layers} layers; '
      f'missing: {errors.listing(sorted(lacking))}; unexpected: '
      f'{errors.listing(report.left_over)}. Use a BERT that fits its config.'
    )
  params = {}
  for row in rows:
    if row.part in held:
      theirs = [_read(read, name, row, side) for name in getattr(row, side)]
      ours = _join(theirs, row.layout, config.head_size)
      params[row.ours] = np.ascontiguousarray(ours)
  return flax.traverse_util.unflatten_dict(params, sep='/'), report


def _read(read, name, row, side):
  """Reads a tensor as float32 [inputs, outputs], and checks its shape."""
  value = read(name)
  transposed = side in row.transposed_in
  shape = row.shape[::-1] if transposed else row.shape
  if value.shape != shape:
    raise errors.UserError(
      f'{name} has shape {value.shape}, but the config asks for {shape}; the '
      'two files do not belong together.'
    )
  if not np.issubdtype(value.dtype, np.floating) and value.dtype.kind != 'V':
    raise errors.UserError(
      f'{name} holds {value.dtype}, not floating-point numbers; use a BERT '
      'that is not quantized.'
    )
  value = value.astype(np.float32, copy=False)
  return value.T if transposed else value
