"""Detects the kind of model at a path, and reads it."""

import contextlib
import functools
import os
import re
from collections.abc import Sequence

from bert_jax import errors
from bert_jax.interop import google, hugging_face, rename, vocabulary
from bert_jax.runtime import files, hub, storage
from bert_jax.weight_files import local_files
from bert_jax.workdir import paths

_READ = {'hf': hugging_face.read, 'google': google.read}
_HF_WEIGHTS = ('model.safetensors', 'pytorch_model.bin')
_HUB_NAME = re.compile(r'(\w[\w.-]*/)?\w[\w.-]*', re.ASCII)


Source = rename.LoadedModel  # what every reader returns


def detect_kind(path: str) -> str:
  """Returns run, hf or google."""
  if os.path.isfile(path.removesuffix('.index') + '.index'):
    return 'google'
  if not os.path.isdir(path):
    raise errors.UserError(
      f'{path} is neither a folder nor a checkpoint; name one of them.'
      f'{_hint_at_hub(path)}'
    )
  names = os.listdir(path)
  weights = any(name.startswith(_HF_WEIGHTS) for name in names)
  # Some folders have both a config.json and Google's files.
  if not weights and any(name.endswith('.index') for name in names):
    return 'google'
  if 'config.json' not in names:
    raise errors.UserError(
      f'{path} has neither a config.json nor a .index; name the --workdir of '
      "a run, or a folder of Hugging Face's or Google's."
    )
  if weights:  # before 2020, config.json had no model_type
    return 'hf'
  config = files.read_json(local_files.find_small(path, 'config.json'))
  return 'hf' if 'model_type' in config else 'run'


def _hint_at_hub(path) -> str:
  owner = path.rpartition('/')[0]
  if not _HUB_NAME.fullmatch(path) or os.path.isdir(owner):
    return ''
  known = f'google-bert/{path}' if path.startswith('bert-') else path
  if '/' not in known:
    return ''
  return f' Did you mean hf:{known}, on the Hugging Face hub?'


def read(path: str) -> Source:
  """Reads a BERT in any of the known formats.

  Args:
    path: the directory of a run, which may be training, whose newest undamaged
      checkpoint is read, or RUN@STEP, one of them; a Hugging Face folder; or a
      folder with Google's checkpoint, or its prefix. Any of them may be in a
      bucket. hf:OWNER/NAME[@REVISION] is on the Hugging Face hub.
  """
  if path.startswith(hub.MODEL):
    folder, name = hub.fetch_model(path)
    return read(folder)._replace(origin=name)
  path, step = paths.split_step(path)
  with _fetch(path) as here:
    kind = detect_kind(here)
    if kind != 'run':
      if step is not None:
        raise errors.UserError(
          f'{path} is not the directory of a run, so step={step} means '
          'nothing; leave it out.'
        )
      model = _READ[kind](here)._replace(origin=path)
      _warn_of_added_words(path, tuple(model.report.left_over))
      return model
  # Imported here: Orbax takes half a second, and other formats do not need it.
  from bert_jax.inference import trained_run

  return trained_run.read(path, step)


@functools.cache  # says it once
def _warn_of_added_words(path: str, left_over: Sequence[str]):
  """Warns of added words that have no embeddings, see `vocabulary.read`."""
  prefix = vocabulary.WITHOUT_ROW
  if words := [x[len(prefix) :] for x in left_over if x.startswith(prefix)]:
    print(
      f'WARNING: {errors.count(len(words), "word")} that {path} adds to its '
      f'tokenizer ({errors.listing(words, most=3)}) have no embeddings, since '
      'its vocab_size is too small, and are split like any others',
      flush=True,
    )


def read_with_mlm(path: str) -> Source:
  """Reads a BERT that guesses words; raises errors.UserError for another."""
  model = read(path)
  require_mlm(model)
  return model


def require_mlm(model: Source):
  """Raises errors.UserError unless a model has an MLM head."""
  if 'mlm' not in model.params:
    missing = errors.listing(model.report.missing, most=3)
    raise errors.UserError(
      f'{model.origin} has no MLM head, which guesses words (missing: '
      f'{missing}); name a model that was saved with it, such as BertForMaskedLM.'
    )


@contextlib.contextmanager
def _fetch(path):
  """Yields a local path of a model; of a run, only with its small files."""
  parent, name = os.path.split(path)
  with contextlib.ExitStack() as stack:
    try:
      here = stack.enter_context(storage.local_copy(path))
    except FileNotFoundError:  # the prefix of Google's files, or nothing
      try:
        folder = stack.enter_context(storage.local_copy(parent))
      except FileNotFoundError:
        raise errors.UserError(f'{path} does not exist.') from None
      here = os.path.join(folder, name)
    yield here
