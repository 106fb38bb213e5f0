"""The data of a fine-tuning run, whose files are read at each start.

A run keeps its tokenizer, and hashes of the rows that it began with.
"""

import json
from typing import Any

from ml_collections import config_dict

import bert_jax
from bert_jax import errors
from bert_jax.data import manifest_file
from bert_jax.finetuning import starting, supervised
from bert_jax.interop import vocabulary
from bert_jax.parallel import distributed
from bert_jax.runtime import storage
from bert_jax.workdir import claim, paths


def check_input(this: supervised.Supervised, config: config_dict.ConfigDict):
  """Reads and encodes the files of a config, and keeps nothing."""
  this.read(config, starting.read_tokenizer(config))


def open_data(
  this: supervised.Supervised, config: config_dict.ConfigDict, workdir: str
) -> supervised.Data:
  """Reads a run's files, and prints what they hold.

  Raises:
    errors.UserError: also if they have changed since the run began.
  """
  folder, begun = paths.own_data(workdir), claim.is_final(workdir)
  if begun:
    tokenizer = manifest_file.load_tokenizer(folder)
  else:
    tokenizer = starting.read_tokenizer(config)
  data = this.read(config, tokenizer)
  if begun:
    was = manifest_file.read(folder, 'splits')['splits']
    _check_same(was, data.manifest['splits'], workdir)
  elif distributed.is_first():
    _keep(folder, data)
  print('\n'.join(this.describe_data(data.manifest)), flush=True)
  return data


def _keep(folder, data):
  about = {'version': bert_jax.__version__, 'recipe': _get_recipe(data)}
  with errors.explaining(f'cannot write {folder}'):
    storage.make_folder(folder)
    vocabulary.write(folder, data.tokenizer)
    manifest_file.write(folder, about | data.manifest)


def _get_recipe(data) -> dict[str, Any]:
  """Returns what makes a tokenizer of a vocabulary."""
  names = 'lowercase', 'strip_accents', 'added'
  return {name: getattr(data.tokenizer, name) for name in names}


def _check_same(was: dict[str, dict], now: dict[str, dict], workdir: str):
  changed = [
    x['path']
    for split, x in (was | now).items()
    if was.get(split, {}).get('sha256') != now.get(split, {}).get('sha256')
  ]
  if changed:
    raise errors.UserError(
      f'the input has changed since {workdir} began ({errors.listing(changed)}); '
      'use another --workdir, or put the old files back.'
    )


def list_facts(
  config: config_dict.ConfigDict,
  data: supervised.Data,
  columns: tuple[str, ...],
) -> dict[str, Any]:
  """Returns `task.Task.facts`: what data a run learns from."""
  splits = data.manifest['splits']
  facts = {
    'data': {'recipe': _get_recipe(data), 'splits': splits},
    'labels': data.labels,
    'columns': columns,
    'max_length': config.finetuning.max_length,
    'vocab_sha256': vocabulary.compute_sha256(data.tokenizer),
  }
  return json.loads(json.dumps(facts))  # as a checkpoint has them
