"""The data of a fine-tuning run, of any task: encoded once, in WORKDIR/data."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning import (
  buckets,
  completion,
  feature_files,
  feature_rows,
  recipe,
  store,
)
from bert_jax.finetuning.readers import data_files
from bert_jax.inference import fine_tuned
from bert_jax.runtime import storage
from bert_jax.tokenization import tokenizer as tokenizer_lib
from bert_jax.workdir import claim, paths


class Data(NamedTuple):
  """All that a run learns from and predicts.

  Attributes:
    splits: {name: rows of a split}, whose `size` is the number of rows.
    labels: names of the model's outputs, such as classes; () for a number.
    pad_id: id of the padding.
    manifest: facts about the data, for `manifest.json`: `splits` has those of
      each split, with `longest`, the tokens of its longest row.
  """

  splits: dict[str, Any]
  labels: tuple[str, ...]
  pad_id: int
  manifest: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Format:
  """How the data of a task are made and kept.

  Attributes:
    make: (config, tokenizer) -> Data, from the files of a config.
    pack: (split) -> {name: array}, to be written.
    unpack: ({name: array}, the manifest's facts about the split) -> split.
    describe: (manifest) -> what the data are, as lines to print.
    forget: frees what `make` keeps so that its next call is quick.
    list_tokens: (split) -> the tokens whose features are kept for a run on
      frozen features; None if the task has no such runs.
    replace_ids: (split, their features) -> the split with them in place of ids.
  """

  make: Callable[[Any, tokenizer_lib.Tokenizer], Data]
  pack: Callable[[Any], dict[str, np.ndarray]]
  unpack: Callable[[dict[str, np.ndarray], dict], Any]
  describe: Callable[[dict], list[str]]
  forget: Callable[[], None]
  list_tokens: Callable[[Any], feature_files.Rows] | None = None
  replace_ids: Callable[[Any, feature_rows.FeatureRows], Any] | None = None


def combine(
  splits: dict[str, Any],
  labels: Sequence[str],
  tokenizer: tokenizer_lib.Tokenizer,
  facts: dict[str, dict],
  **more: Any,
) -> Data:
  """Returns the data of splits.

  Args:
    splits: {name: rows}.
    labels: names of the model's outputs.
    tokenizer: the tokenizer that made the rows.
    facts: {name: facts about the split}.
    **more: facts about all of them, for the manifest.
  """
  pad = tokenizer.pad_id
  about = {'labels': list(labels), 'pad_id': pad, 'splits': facts, **more}
  return Data(splits, tuple(labels), pad, about)


def write(
  form: Format,
  config: config_dict.ConfigDict,
  directory: str,
  tokenizer: tokenizer_lib.Tokenizer,
):
  """Makes the data of a config and writes it, atomically.

  Args:
    form: that of the task.
    config: the experiment.
    directory: the folder; an earlier one is replaced.
    tokenizer: the model's tokenizer.

  Raises:
    errors.UserError: as `form.make` and `store.write`.
  """
  data = form.make(config, tokenizer)
  form.forget()
  arrays = {name: form.pack(split) for name, split in data.splits.items()}
  write_more = None
  if config.finetuning.features != fine_tuned.NO_FEATURES:
    rows = {name: form.list_tokens(x) for name, x in data.splits.items()}
    write_more = feature_files.make_writer(config, rows, data.pad_id)
  given = data_files.find_files(data_files.get_source(config)).values()
  about = data.manifest | {'inputs': _hash(given)}
  store.write(config, directory, tokenizer, arrays, about, write_more)


def read(form: Format, directory: str) -> Data:
  """Reads what `write` wrote, and checks it; raises as `store.read`."""
  # Every host has completed its config with `make`; one of them has written.
  form.forget()
  arrays, manifest = store.read(directory)
  splits = {
    name: form.unpack(x, manifest['splits'][name]) for name, x in arrays.items()
  }
  if 'features' in manifest:
    for name, split in splits.items():
      ends = form.list_tokens(split).ends
      rows = feature_files.open_rows(directory, name, ends)
      splits[name] = form.replace_ids(split, rows)
  return Data(splits, tuple(manifest['labels']), manifest['pad_id'], manifest)


def prepare(form: Format, config: config_dict.ConfigDict, workdir: str):
  """Encodes the files of a config; a run that has begun keeps its data.

  Raises:
    errors.UserError: as `write`, or if the files have changed since.
  """
  directory = paths.prepared_data(config, workdir)
  if claim.has_begun(workdir):
    _check_inputs(directory)
    return
  write(form, config, directory, completion.read_tokenizer(config))


def _hash(given: Iterable[str]) -> dict[str, str]:
  """Returns {path: SHA-256} of files; those that do not exist are left out."""
  return {x: text_files.compute_sha256(x) for x in given if storage.exists(x)}


def _check_inputs(directory):
  """Raises errors.UserError if a file is not as it was; it may be deleted."""
  was = manifest_lib.read(directory).get('inputs', {})  # older data has none
  changed = [path for path, now in _hash(was).items() if now != was[path]]
  if changed:
    raise errors.UserError(
      f'the input has changed since {directory} was made of it '
      f'({errors.listing(changed)}); use another --workdir, or put the old '
      'files back.'
    )


def open_data(
  form: Format, config: config_dict.ConfigDict, workdir: str
) -> str:
  """Prints what a run's data are; returns their directory."""
  directory = paths.prepared_data(config, workdir)
  manifest = manifest_lib.read(directory)
  rows = manifest['splits']['train']['rows']
  lines = recipe.describe(config, rows), buckets.describe(config)
  for line in (*form.describe(manifest), *_warn(manifest), *lines):
    print(line, flush=True)
  return directory


def describe_repeated(path: str, lines: Sequence[int | str]) -> dict:
  """Returns the fact about a split which of its rows are training rows, too.

  Args:
    path: its file.
    lines: numbers of their lines in it, or names of questions.
  """
  return {
    'count': len(lines),
    'first': f'{lines[0]} of {path}' if lines else '',
  }


def _warn(manifest: dict) -> list[str]:
  """Returns a warning for each split that has training rows."""
  unit = 'question' if 'questions' in manifest['splits']['train'] else 'line'
  return [
    f'WARNING: {x["repeated"]["count"]:,} of the rows of {name} are also training '
    f'rows, the first is {unit} {x["repeated"]["first"]}'
    for name, x in manifest['splits'].items()
    if x.get('repeated', {}).get('count')  # older data has no such fact
  ]


def list_facts(
  config: config_dict.ConfigDict, data: Data, columns=()
) -> dict[str, Any]:
  """Returns `task.Task.facts`: what data a run learns from.

  Args:
    config: the experiment, completed.
    data: its data.
    columns: names of the columns that hold the texts.
  """
  given, hashes = data.manifest['recipe'], data.manifest['sha256']
  recipe = {name: given[name] for name in ('lowercase', 'strip_accents')}
  return {
    'data': {'recipe': recipe, 'splits': data.manifest['splits']},
    'labels': list(data.labels),
    'columns': list(columns),
    'max_length': completion.find_max_length(config),
    'vocab_sha256': hashes['vocab.txt'],
    'data_sha256': hashes,
  }
