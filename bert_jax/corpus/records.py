"""Reads the texts in a field of JSON, Parquet, Arrow or a TFDS dataset."""

import codecs
import collections
import contextlib
import functools
import importlib.util
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from bert_jax import errors
from bert_jax.corpus import clean, formats
from bert_jax.corpus.document import Document

_JSON = json.JSONDecoder()
_LONGEST = 64 << 20  # characters per object
_BETWEEN = re.compile(r'[\s,\[\]\ufeff]*')  # objects
# The fields of `wikiextractor --json`, whose text is as that of its pages.
_WIKI = {'id', 'url', 'title', 'text'}
_ROWS = 100  # of columns at a time, of which texts may be long

# A split may be a slice: train[:10%].
TFDS = 'tfds:'
_TFDS_INPUT = re.compile(r'tfds:(\S+):([A-Za-z]\w*(?:\[[^\]]*\])?)')


def read_json(lines: Iterable[bytes]) -> Iterator[Any]:
  """Yields the objects of an array, or of any lines; one is in memory at a time.

  What is no JSON comes as a string.
  """
  decode = codecs.getincrementaldecoder('utf-8')('surrogateescape').decode
  text, enough = '', 0
  for raw in itertools.chain(lines, [b'']):  # the end
    text += decode(raw, final=not raw)
    if raw and len(text) < enough:  # lest long objects take quadratic time
      continue
    at = _BETWEEN.match(text).end()
    while at < len(text):
      try:
        value, at = _JSON.raw_decode(text, at)
      except (ValueError, RecursionError):
        if raw and len(text) - at <= _LONGEST:
          break
        value, at = text[at:], len(text)
      yield value
      at = _BETWEEN.match(text, at).end()
    text = text[at:]
    enough = 2 * len(text)


def make_json_documents(
  values: Iterable[Any],
  path: str,
  start: int,
  field: str,
  layout: str,
  counts: collections.Counter,
) -> Iterator[Document]:
  """Yields the documents in objects of a file from a byte on, empty for null."""
  for number, value in enumerate(values, 1):
    names = [*value] if isinstance(value, dict) else []
    text = value.get(field, 0) if names else 0
    if not isinstance(text, str | None):
      what = errors.listing(names) if names else f'{value!r:.60}'
      raise errors.UserError(
        f'{path}, number {number:,} from byte {start:,} on, is not a JSON object '
        f'with a string {field!r} ({what}); give such objects, or name the field '
        'of the text by data.field.'
      )
    text = clean.clean(text or '', counts)
    if _WIKI <= {*names} <= {*_WIKI, 'revid'}:
      yield Document(formats.split_wiki_lines(text, counts))
    else:
      yield from formats.make_documents(text, layout, counts)


# Columns. A null is an empty text.


def read_parquet(
  file: BinaryIO, path: str, field: str, start: int, stop: int
) -> Iterator[bytes]:
  """Yields the texts of the row groups that begin in a range of a file's bytes."""
  from pyarrow import parquet  # here, since few inputs need it

  with _explaining(path):
    opened = parquet.ParquetFile(file)
    _check_field(opened.schema_arrow, path, field)
    for k in range(opened.num_row_groups):
      first = opened.metadata.row_group(k).column(0)
      begin = first.dictionary_page_offset or first.data_page_offset
      if start <= begin < stop:
        yield from _decode(opened.iter_batches(_ROWS, [k], [field]))


def read_arrow(
  file: BinaryIO, head: bytes, path: str, field: str
) -> Iterator[bytes]:
  """Yields the texts of a file or a stream of Arrow, which begins with `head`."""
  from pyarrow import ipc

  is_file = head.startswith(b'ARROW1')
  with _explaining(path):
    opened = (ipc.open_file if is_file else ipc.open_stream)(file)
    _check_field(opened.schema, path, field)
    if is_file:
      opened = map(opened.get_batch, range(opened.num_record_batches))
    for batch in opened:
      rows = range(0, batch.num_rows, _ROWS)
      yield from _decode(batch.select([field]).slice(k, _ROWS) for k in rows)


@contextlib.contextmanager
def _explaining(path: str) -> Iterator[None]:
  import pyarrow

  try:
    yield
  except (pyarrow.ArrowException, OSError) as error:
    if isinstance(error, OSError) and error.errno is not None:  # of the disk
      raise
    raise errors.UserError(
      f'cannot read {path}: {errors.first_line(error)}; if it is damaged or cut '
      'short, get it again, or leave it out.'
    ) from error


def _check_field(schema: Any, path: str, field: str):
  """Raises errors.UserError unless a column has texts."""
  import pyarrow

  kinds = {name: schema.field(name).type for name in schema.names}
  kind = kinds.get(field)
  if isinstance(kind, pyarrow.DictionaryType):
    kind = kind.value_type
  if str(kind) not in ('string', 'large_string', 'string_view'):
    raise errors.UserError(
      f'{path} has no column {field!r} of texts, but {errors.listing([*kinds])}; '
      'name the one with the text by data.field.'
    )


def _decode(batches: Iterable[Any]) -> Iterator[bytes]:
  import pyarrow

  for batch in batches:
    # As bytes, since files may hold text that is not UTF-8.
    for value in batch.column(0).cast(pyarrow.large_binary()).to_pylist():
      yield value or b''


# TFDS, without TensorFlow.


def read_tfds(given: str, field: str, start: int, stop: int) -> Iterator[bytes]:
  """Yields the texts of examples `start` to `stop`."""
  source = open_tfds(given, field)
  for n in range(start, stop):
    text = source[n][field]
    if not isinstance(text, bytes):
      raise errors.UserError(
        f'feature {field!r} of input {given!r} holds {type(text).__name__}, not '
        'text; name one that holds text.'
      )
    yield text


@functools.lru_cache(1)
def open_tfds(given: str, field: str):
  """Opens a split for random access; prepares the dataset first if necessary."""
  match = _TFDS_INPUT.fullmatch(given)
  if not match:
    raise errors.UserError(
      f'input {given!r} is not of the form tfds:NAME/CONFIG:SPLIT, for '
      'example tfds:wikipedia/20230601.simple:train.'
    )
  advice = (
    "if NAME/CONFIG and SPLIT exist, prepare it by tfds with file_format='array_"
    "record', or set TFDS_DATA_DIR."
  )
  what = f'input {given!r} cannot be read'
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
