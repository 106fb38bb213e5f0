"""Finds datasets and models on the Hugging Face hub, by commits."""

import contextlib
import errno
import functools
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax import errors

DATASET, MODEL = 'hf://', 'hf:'
_PAUSES = 1, 2, 5, 10, 20, 40  # seconds
_COMMIT = re.compile(r'[0-9a-f]{40}')
_ID = r'(?P<id>[\w.-]+/[\w.-]+)'
_DATASET = re.compile(
  rf'hf://datasets/{_ID}(?:@(?P<revision>refs/[\w-]+/[\w.-]+|[^/]+))?/(?P<files>.+)'
)
_MODEL = re.compile(rf'hf:{_ID}(?:@(?P<revision>\S+))?')
_FILES = [
  *('config.json', 'tokenizer*.json', 'special_tokens_map.json', 'vocab.txt'),
  *('added_tokens.json', 'model*.safetensors', 'model.safetensors.index.json'),
]
_OLD_WEIGHTS = ['pytorch_model*.bin', 'pytorch_model.bin.index.json']


def pin(given: str) -> str:
  """Returns hf://datasets/OWNER/NAME[@REVISION]/FILES with the commit.

  So all processes read the same bytes, whatever is uploaded meanwhile.
  """
  match = _DATASET.fullmatch(given)
  if not match:
    raise errors.UserError(
      f'input {given!r} is not of the form hf://datasets/OWNER/NAME/FILES or '
      'hf://datasets/OWNER/NAME@REVISION/FILES; name files, such as *.parquet.'
    )
  if is_pinned(given):
    return given
  import huggingface_hub

  name, revision, files = match.group('id', 'revision', 'files')
  with _explaining(f'input {given!r} cannot be found'):
    about = _ask(huggingface_hub.HfApi().dataset_info, name, revision=revision)
  return f'hf://datasets/{name}@{about.sha}/{files}'


def is_pinned(path: str) -> bool:
  """Returns whether a path is that of a file in a dataset's commit."""
  match = _DATASET.fullmatch(path)
  return bool(match and _COMMIT.fullmatch(match['revision'] or ''))


@functools.cache
def prepare():
  """Makes fsspec's hf:// as patient about revisions as it is about bytes."""
  import fsspec
  import huggingface_hub

  class Patient(huggingface_hub.HfFileSystem):
    def resolve_path(self, *args, **options):
      return _ask(super().resolve_path, *args, **options)

  fsspec.register_implementation('hf', Patient, clobber=True)


def _ask(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
  """Calls a function of the library, again if the hub is busy or away."""
  for pause in (*_PAUSES, None):
    try:
      return call(*args, **options)
    except OSError as error:  # as all errors of the hub's answers
      code = getattr(getattr(error, 'response', None), 'status_code', 0)
      if pause is None or code not in (429, 500, 502, 503, 504):
        raise
    time.sleep(pause)


def fetch_model(given: str) -> tuple[str, str]:
  """Downloads the files of a BERT, hf:OWNER/NAME[@REVISION], unless it has them.

  Returns:
    Their folder in the library's cache, and the name with the commit.
  """
  match = _MODEL.fullmatch(given)
  if not match:
    raise errors.UserError(
      f'{given!r} is not of the form hf:OWNER/NAME or hf:OWNER/NAME@REVISION; '
      'name a model of the Hugging Face hub so.'
    )
  import huggingface_hub

  name, revision = match.group('id', 'revision')
  fetch = functools.partial(
    huggingface_hub.snapshot_download, name, revision=revision
  )
  with _explaining(f'{given} cannot be fetched'):
    folder = _ask(fetch, allow_patterns=_FILES)
    if not any(x.endswith('.safetensors') for x in os.listdir(folder)):
      _ask(fetch, allow_patterns=_OLD_WEIGHTS)
  return folder, f'hf:{name}@{os.path.basename(folder)}'


def pin_model(given: str) -> str:
  """Returns a model's name, with its commit if it is on the hub."""
  match = _MODEL.fullmatch(given)
  has_commit = match and _COMMIT.fullmatch(match['revision'] or '')
  if has_commit or not given.startswith(MODEL):
    return given
  return fetch_model(given)[1]


@contextlib.contextmanager
def _explaining(what: str) -> Iterator[None]:
  """Turns errors of the hub's library into one line."""
  import huggingface_hub.errors as theirs

  unknown = theirs.RepositoryNotFoundError, theirs.RevisionNotFoundError
  try:
    yield
  except unknown as error:
    raise errors.UserError(
      f'{what}: {errors.first_line(error)}; check the name and, of one that is '
      'private or gated, accept its terms on its page and log in by: hf auth login'
    ) from error
  except Exception as error:  # of whichever library it asks by
    reason = f'{type(error).__name__}, {errors.first_line(error)}'
    raise OSError(errno.EIO, f'{what}: {reason}') from error
