"""Writes and reads the encoded data of a fine-tuning run, as one folder."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import config_dict

import bert_jax
from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning.readers import data_files
from bert_jax.interop import vocabulary
from bert_jax.runtime import files
from bert_jax.tokenization import tokenizer as tokenizer_lib

_MANIFEST = 'manifest.json'


def write(
  config: config_dict.ConfigDict,
  directory: str,
  tokenizer: tokenizer_lib.Tokenizer,
  splits: dict[str, dict[str, np.ndarray]],
  about: dict[str, Any],
  write_more: Callable[[str], tuple[list[str], dict]] | None = None,
):
  """Writes vocab.txt, SPLIT.npz and manifest.json, atomically.

  Args:
    config: the experiment.
    directory: the folder; an earlier one is replaced.
    tokenizer: the tokenizer that the data was encoded with.
    splits: {split: {name: array}}.
    about: facts about the data, for the manifest.
    write_more: (folder) -> (names of further files that it writes there, facts
      about them for the manifest).

  Raises:
    errors.UserError: if it cannot be written.
  """
  recipe = {
    'lowercase': tokenizer.lowercase,
    'strip_accents': tokenizer.strip_accents,
    'max_length': max(config.phases.seq_length),
    **dataclasses.asdict(data_files.get_source(config)),
  }
  names = [f'{split}.npz' for split in splits]

  def fill(new):
    vocabulary.write(new, tokenizer)
    for split, arrays in splits.items():
      np.savez(os.path.join(new, f'{split}.npz'), **arrays)
    more, facts = write_more(new) if write_more else ([], {})
    manifest = {
      'version': bert_jax.__version__,
      'recipe': recipe,
      **about,
      **facts,
      'sha256': {
        name: text_files.compute_sha256(os.path.join(new, name))
        for name in (vocabulary.NAME, *names, *more)
      },
    }
    manifest_lib.write(new, manifest)

  old = os.listdir(directory) if os.path.isdir(directory) else []
  allowed = [vocabulary.NAME, _MANIFEST, *names]
  allowed += [name for name in old if name.endswith(('.npz', '.npy'))]
  files.write_folder(directory, allowed, fill)


def read(directory: str) -> tuple[dict[str, dict[str, np.ndarray]], dict]:
  """Reads what `write` wrote, and checks it.

  Returns:
    (splits, manifest).

  Raises:
    errors.UserError: if a file is missing or has changed.
  """
  manifest = manifest_lib.read(directory)
  for name, expected in manifest['sha256'].items():
    path = os.path.join(directory, name)
    if text_files.compute_sha256(path) != expected:
      raise errors.UserError(
        f'{path} is not the file that was written; use another --workdir.'
      )
  splits = {}
  for split in manifest['splits']:
    with np.load(os.path.join(directory, f'{split}.npz')) as arrays:
      splits[split] = dict(arrays)
  return splits, manifest
