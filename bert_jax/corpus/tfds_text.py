"""Reads the texts of a TFDS dataset, without TensorFlow."""

import functools
import importlib.util
import re
from collections.abc import Iterator

from bert_jax import errors

PREFIX = 'tfds:'

# A split may be a slice: train[:10%].
_INPUT = re.compile(r'tfds:(\S+):([A-Za-z]\w*(?:\[[^\]]*\])?)')


def read_texts(
  given: str, field: str, start: int, stop: int
) -> Iterator[bytes]:
  """Yields the texts of examples `start` to `stop`."""
  source = open_split(given, field)
  for n in range(start, stop):
    text = source[n][field]
    if not isinstance(text, bytes):
      raise errors.UserError(
        f'feature {field!r} of input {given!r} holds {type(text).__name__}, not '
        'text; name one that holds text.'
      )
    yield text


@functools.lru_cache(1)
def open_split(given: str, field: str):
  """Opens a split for random access; prepares the dataset first if necessary."""
  match = _INPUT.fullmatch(given)
  if not match:
    raise errors.UserError(
      f'input {given!r} is not of the form tfds:NAME/CONFIG:SPLIT, for '
      'example tfds:wikipedia/20230601.simple:train.'
    )
  what = f'input {given!r} cannot be read'
  advice = (
    "if NAME/CONFIG and SPLIT exist, prepare it by tfds with file_format='array_"
    "record', or set TFDS_DATA_DIR."
  )
  with errors.explaining(what, advice, Exception):  # builders raise any type
    builder = _builder(match[1])
    features = builder.info.features or {}
    if field not in features:
      raise errors.UserError(
        f'input {given!r} has no feature {field!r}, only {", ".join(features)}; '
        'name one that holds text.'
      )
    return builder.as_data_source(split=match[2])


def _builder(name: str):
  import tensorflow_datasets as tfds

  try:
    return tfds.core.read_only_builder.builder_from_files(name)
  except tfds.core.DatasetNotFoundError:
    pass  # it is not prepared yet
  # Without TensorFlow, a text builder is registered only when it is imported.
  module = f'tensorflow_datasets.text.{re.split("[/:]", name)[0]}'
  if importlib.util.find_spec(module):
    importlib.import_module(module)
  builder = tfds.builder(name, file_format='array_record')
  builder.download_and_prepare()
  return builder
