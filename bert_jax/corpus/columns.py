"""Reads the texts of Parquet and Arrow files, a hundred rows at a time."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from bert_jax import errors

_ROWS = 100  # of which texts may be long


def read_parquet(
  file: BinaryIO, path: str, field: str, start: int, stop: int
) -> Iterator[bytes]:
  """Yields the texts of the row groups that begin in a range of a file's bytes.

  A null is an empty text.
  """
  from pyarrow import parquet  # here, since few inputs need it

  with _explaining(path):
    opened = parquet.ParquetFile(file)
    _check_field(opened.schema_arrow, path, field)
    for k in range(opened.num_row_groups):
      first = opened.metadata.row_group(k).column(0)
      if (
        start <= (first.dictionary_page_offset or first.data_page_offset) < stop
      ):
        yield from _decode(opened.iter_batches(_ROWS, [k], [field]))


def read_arrow(
  file: BinaryIO, path: str, field: str, is_stream: bool
) -> Iterator[bytes]:
  """Yields the texts of a file or a stream of Arrow; a null is an empty text."""
  from pyarrow import ipc

  with _explaining(path):
    opened = (ipc.open_stream if is_stream else ipc.open_file)(file)
    _check_field(opened.schema, path, field)
    if not is_stream:
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
