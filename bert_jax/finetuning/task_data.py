"""The data of a fine-tuning run, of any task: encoded once, in WORKDIR/data."""

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from ml_collections import config_dict

import bert_jax
from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import dataset, manifest_file
from bert_jax.finetuning import completion, starting, supervised
from bert_jax.finetuning.readers import splits
from bert_jax.interop import vocabulary
from bert_jax.runtime import files, storage
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.workdir import claim, paths


def prepare(
  this: supervised.Supervised, config: config_dict.ConfigDict, workdir: str
):
  """Encodes the files of a config; a run that has begun keeps its data."""
  directory = paths.prepared_data(config, workdir)
  if claim.is_final(workdir):
    _check_inputs(directory)
    return
  write(this, config, directory, starting.read_tokenizer(config))


def check_input(this: supervised.Supervised, config: config_dict.ConfigDict):
  """Reads and encodes the files of a config, and keeps nothing."""
  this.read(config, starting.read_tokenizer(config))


def write(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  directory: str,
  tokenizer: Tokenizer,
):
  """Writes vocab.txt, SPLIT.npz and manifest.json of a config, atomically."""
  data = this.read(config, tokenizer)
  packed = {name: split.pack() for name, split in data.splits.items()}
  source = splits.get_source(config)
  about = {
    'version': bert_jax.__version__,
    'recipe': {
      'lowercase': tokenizer.lowercase,
      'strip_accents': tokenizer.strip_accents,
      'added': tokenizer.added,
      'max_length': completion.find_length(config, data.manifest),
      **dataclasses.asdict(source),
    },
    **data.manifest,
    'inputs': _hash(splits.find_files(source).values()),
  }
  names = [f'{split}.npz' for split in packed]

  def fill(new):
    vocabulary.write(new, tokenizer)
    for split, arrays in packed.items():
      np.savez(os.path.join(new, f'{split}.npz'), **arrays)
    hashes = {
      name: text_files.compute_sha256(os.path.join(new, name))
      for name in (vocabulary.NAME, *names)
    }
    manifest_file.write(new, {**about, 'sha256': hashes})

  allowed = vocabulary.NAME, manifest_file.NAME, '*.npz'
  files.write_folder(directory, allowed, fill)


def read(this: supervised.Supervised, directory: str) -> supervised.Data:
  """Reads what `write` wrote, and checks it; a bucket's is copied first."""
  manifest = manifest_file.read(directory, 'splits')
  advice = 'use another --workdir'
  if storage.is_remote(directory):
    advice = 'delete this copy, then run the same command again'
    sizes, hashes = storage.list_sizes(directory), manifest['sha256']
    directory = dataset.fetch_files(
      directory, {name: (sizes.get(name), x) for name, x in hashes.items()}
    )
  for name, expected in manifest['sha256'].items():
    path = os.path.join(directory, name)
    if text_files.compute_sha256(path) != expected:
      raise errors.UserError(
        f'{path} is not the file that was written; {advice}.'
      )
  found = {}
  for name in manifest['splits']:
    with np.load(os.path.join(directory, f'{name}.npz')) as arrays:
      found[name] = this.rows.unpack(dict(arrays))
  labels, pad = tuple(manifest['labels']), manifest['pad_id']
  return supervised.Data(found, labels, pad, manifest, directory)


def _hash(given: Iterable[str]) -> dict[str, str]:
  """Returns {path: SHA-256} of files; those that do not exist are left out."""
  return {x: text_files.compute_sha256(x) for x in given if storage.exists(x)}


def _check_inputs(directory):
  """Raises errors.UserError if a file has changed; it may be deleted."""
  was = manifest_file.read(directory, 'splits')['inputs']
  changed = [path for path, now in _hash(was).items() if now != was[path]]
  if changed:
    raise errors.UserError(
      f'the input has changed since {directory} was made of it '
      f'({errors.listing(changed)}); use another --workdir, or put the old '
      'files back.'
    )


def open_data(
  this: supervised.Supervised, config: config_dict.ConfigDict, workdir: str
) -> supervised.Data:
  """Reads a run's data, and prints what they are."""
  data = read(this, paths.prepared_data(config, workdir))
  print('\n'.join(this.describe_data(data.manifest)), flush=True)
  return data


def list_facts(
  config: config_dict.ConfigDict,
  data: supervised.Data,
  columns: tuple[str, ...],
) -> dict[str, Any]:
  """Returns `task.Task.facts`: what data a run learns from."""
  given, hashes = data.manifest['recipe'], data.manifest['sha256']
  names = 'lowercase', 'strip_accents', 'added'
  recipe = {name: given[name] for name in names if name in given}
  return {
    'data': {'recipe': recipe, 'splits': data.manifest['splits']},
    'labels': list(data.labels),
    'columns': list(columns),
    'max_length': completion.find_max_length(config),
    'vocab_sha256': hashes['vocab.txt'],
    'data_sha256': hashes,
  }
