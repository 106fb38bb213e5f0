"""Reads the model from a checkpoint of a run."""

import itertools
import os
from typing import Any

from ml_collections import config_dict

from bert_jax import config_check, errors, param_names
from bert_jax.config import model_config, unflatten
from bert_jax.corpus import text_files
from bert_jax.inference import fine_tuned, trained_length
from bert_jax.interop import rename
from bert_jax.model import classifier, heads, parameters
from bert_jax.runtime import files, storage
from bert_jax.tokenization import fast_tokenizer, tokenizer
from bert_jax.weight_files import local_files
from bert_jax.workdir import checkpoint_reader, paths


def read(workdir: str, step: int | None = None) -> rename.LoadedModel:
  """Reads a checkpoint's model; the run may be training, and is not changed.

  Args:
    step: step of the checkpoint; None is the step of the run's results if it
      was the best on dev, otherwise the newest undamaged one.
  """
  path = paths.config(workdir)
  config = read_config(path)
  if config.finetuning.features != fine_tuned.NO_FEATURES:
    raise errors.UserError(
      f'{workdir} has only a head, trained on features of {config.init_from}; '
      'its predictions for dev and test are in predictions/.'
    )
  if step is None and config.finetuning.select == 'best':
    step = _read_results(workdir).get('step')
  params, facts = checkpoint_reader.read(paths.checkpoints(workdir), step)
  step, about = facts['step'], facts['task']
  bert = model_config(config, step)
  params = parameters.drop_padding_rows(params, bert.vocab_size)
  module = heads.PretrainingModel(bert, config.objective.nsp)
  if config.task != 'pretraining':
    module = fine_tuned.make_module(config, bert)
  check_params(params, module, path)
  vocab = _find_vocab(workdir, config.data.dir, about['vocab_sha256'])
  recipe = about['data']['recipe']  # of the data when the run began
  how = recipe['lowercase'], recipe['strip_accents'], recipe.get('added', ())
  head, settings = None, fine_tuned.get_settings(config)
  if settings and settings.threshold is not None:
    threshold = _read_results(workdir).get('threshold', settings.threshold)
    settings = settings._replace(threshold=threshold)
  if 'classifier' in params:
    named = fine_tuned.name_task(config), params.pop('bilstm', None)
    named += config.finetuning.form, settings
    layer, length = params.pop('classifier'), about['max_length']
    names = tuple(about['labels']), length, tuple(about['columns'])
    named += (params.pop('head', None),)
    head = classifier.Head(layer['kernel'], layer['bias'], *names, *named)
  return rename.LoadedModel(
    params,
    bert,
    fast_tokenizer.load(vocab, *how),
    origin=f'step {step:,}, fingerprint={facts["fingerprint"]}',
    step=step,
    head=head,
    trained_length=trained_length.find(
      config.phases, bert.max_positions, step, facts
    ),
  )


def _find_vocab(workdir: str, outside: str, sha256: str) -> str:
  """Returns the path of the run's vocabulary, which is in its own folder."""
  names = tokenizer.Tokenizer.file_name, fast_tokenizer.FastTokenizer.file_name
  for folder, name in itertools.product(('', 'data', 'export'), names):
    path = find_own(os.path.join(workdir, folder), name)
    if path and text_files.compute_sha256(path) == sha256:
      return path
  where = f', from {outside}: what is outside of a run is not read'
  raise errors.UserError(
    f'{workdir} has no {" or ".join(names)} with which it was trained; put it there'
    f'{where if outside else ""}.'
  )


def find_own(folder: str, name: str, any_size: bool = False) -> str | None:
  """Returns the path of a run's own file, None if there is none.

  On a disk, it may not be a link out of the folder, a pipe or a device, nor large,
  unless it may have any size.
  """
  if not storage.is_remote(folder):
    find = local_files.find if any_size else local_files.find_small
    return find(folder, name)
  path = os.path.join(folder, name)
  return path if storage.exists(path) else None


def _read_results(workdir) -> dict:
  """Returns the results of a run; {} if it has not ended."""
  path = find_own(*os.path.split(paths.results(workdir)))
  return files.read_json(path) if path else {}


def read_config(path: str) -> config_dict.ConfigDict:
  """Reads the config of a run, and checks the fields of its model."""
  saved = files.read_json(path)
  with errors.within(path):
    config = unflatten(saved)
    config_check.check_model(config)
  return config


def check_params(params: Any, module: heads.PretrainingModel, path: str):
  """Raises errors.UserError unless parameters have a model's shapes.

  `path` is the config by which `module` was made.
  """
  got = {name: x.shape for name, x in param_names.flatten(params).items()}
  allowed = parameters.list_shapes(module)
  wrong = sorted(
    name for name in {*got, *allowed} if got.get(name) != allowed.get(name)
  )
  if wrong:
    name = wrong[0]
    raise errors.UserError(
      f'{path} does not belong to the checkpoint: {len(wrong)} parameter(s) '
      f'differ, first {name}: {got.get(name)} there, {allowed.get(name)} by '
      "the config; restore the run's config.json."
    )
