"""Documents, streamed from text files, WikiExtractor pages, JSONL or TFDS.

An input is a path, a glob, a directory (all files below it),
`tfds:NAME/CONFIG:SPLIT`, or `python-docs` (see `prose`). Files are UTF-8, plain
or compressed as .gz, .bz2 or .xz. The order of documents is that of the inputs,
then of the file names, then of the text.
"""

import bz2
import glob
import gzip
import html
import importlib
import importlib.util
import itertools
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from bert_jax import errors
from bert_jax.data import prose
from bert_jax.data.document import Document

LAYOUTS = ('paragraphs', 'sentences', 'files')

_PYTHON_DOCS = 'python-docs'
_TFDS = 'tfds:'
_OPENERS = {'.gz': gzip.open, '.bz2': bz2.open, '.xz': lzma.open}
_DOC = re.compile(r'<doc id="([^"]*)".* title="(.*)">\s*$')
# A split may be a slice: train[:10%].
_TFDS_INPUT = re.compile(r'tfds:([\w/.:]+):([A-Za-z]\w*(?:\[[^\]]*\])?)')
_CORRUPT = (EOFError, zlib.error, lzma.LZMAError, OSError)


def documents(inputs: Sequence[str], layout: str) -> Iterator[Document]:
  """Reads the documents of all inputs, one at a time.

  Args:
    inputs: paths, globs, directories, `tfds:NAME/CONFIG:SPLIT` or
      `python-docs`.
    layout: of plain text files. 'paragraphs': blank lines separate documents,
      each line is a paragraph. 'sentences': the same, but each line is a
      sentence. 'files': each file is a document of hard-wrapped lines, and
      blank lines separate its paragraphs. WikiExtractor files and .jsonl files
      are recognised and need no layout.

  Raises:
    errors.UserError: if an input names nothing, or a file cannot be read.
  """
  _check(inputs, layout)
  # What can be missed is missed before the first document, not hours later.
  for expanded in [_expand(given) for given in inputs]:
    for one in expanded:
      if one == _PYTHON_DOCS:
        found = prose.documents()
      elif one.startswith(_TFDS):
        found = _tfds(one)
      else:
        found = _read(one, layout)
      yield from (document for document in found if document.paragraphs)


def total_bytes(inputs: Sequence[str]) -> int:
  """Returns the bytes of all inputs' files, or 0 where nobody knows."""
  paths = [path for given in inputs for path in _expand(given)]
  if any(_is_special(p) or _extension(p) in _OPENERS for p in paths):
    return 0
  return sum(map(os.path.getsize, paths))


def _check(inputs, layout):
  if layout not in LAYOUTS:
    raise errors.UserError(
      f'layout={layout!r} is not one of {", ".join(LAYOUTS)}.'
    )
  if not any(inputs):
    raise errors.UserError(
      'no input is given; give files, a glob, tfds:NAME/CONFIG:SPLIT or '
      f'{_PYTHON_DOCS}.'
    )


def _is_special(given: str) -> bool:
  return given == _PYTHON_DOCS or given.startswith(_TFDS)


def _extension(path: str) -> str:
  return os.path.splitext(path)[1].lower()


def _expand(given: str) -> list[str]:
  """Returns the files that an input names, in order."""
  if _is_special(given):
    return [given]
  # A path that exists is meant as it is, even with brackets in its name.
  names = [given] if os.path.exists(given) else glob.glob(given, recursive=True)
  paths = set()
  for name in names:
    paths.update(_below(name) if os.path.isdir(name) else [name])
  if not paths:
    raise errors.UserError(
      f'input {given!r} names no file; check the path or the glob (quote it; '
      '** goes into directories).'
    )
  return sorted(paths)


def _below(directory: str) -> Iterator[str]:
  for folder, folders, names in os.walk(directory):
    folders[:] = [name for name in folders if not name.startswith('.')]
    for name in names:
      if not name.startswith('.'):
        yield os.path.join(folder, name)


# Files.


def _read(path: str, layout: str) -> Iterator[Document]:
  lines = _lines(path)
  stem = path.removesuffix(_extension(path))
  if '.jsonl' in (_extension(path), _extension(stem)):
    yield from _jsonl(path, lines)
    return
  # Leading blank lines say nothing in any of the formats.
  first = next((line for line in lines if line.strip()), '')
  lines = itertools.chain([first], lines)
  if _DOC.match(first):
    yield from _wiki(path, lines)
  elif layout == 'files':
    yield Document(path, _paragraphs(lines))
  else:
    for n, paragraphs in enumerate(_blocks(lines)):
      yield Document(f'{path}#{n}', paragraphs)


def _lines(path: str) -> Iterator[str]:
  """Reads UTF-8 lines without their ends and without a byte order mark."""
  offset = 0
  for raw in _raw_lines(path):
    try:
      line = raw.decode()
    except UnicodeDecodeError as error:
      raise errors.UserError(
        f'{path} is not UTF-8 at byte {offset + error.start} '
        f'(0x{raw[error.start]:02x}); convert it, for example with: '
        f'iconv -f {_guess(raw)} -t UTF-8 {path}'
      ) from error
    if not offset:
      line = line.removeprefix('\ufeff')
    offset += len(raw)
    yield line.rstrip('\r\n')


def _guess(raw: bytes) -> str:
  return 'UTF-16' if raw[:2] in (b'\xff\xfe', b'\xfe\xff') else 'ISO-8859-1'


def _raw_lines(path: str) -> Iterator[bytes]:
  opener = _OPENERS.get(_extension(path), open)
  try:
    file: BinaryIO = opener(path, 'rb')
  except OSError as error:
    raise errors.UserError(
      f'{path} cannot be read ({error.strerror}); check its permissions.'
    ) from error
  with file:
    try:
      yield from file
    except _CORRUPT as error:
      raise errors.UserError(
        f'{path} cannot be read to its end ({error}); the file is damaged or '
        'incomplete, get it again.'
      ) from error


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
  """Yields runs of lines between blank lines."""
  block = []
  for line in lines:
    if line.strip():
      block.append(line)
    elif block:
      yield block
      block = []
  if block:
    yield block


def _paragraphs(lines: Iterable[str]) -> list[str]:
  """Joins hard-wrapped lines; blank lines separate paragraphs."""
  return [' '.join(map(str.strip, block)) for block in _blocks(lines)]


def _wiki(path: str, lines: Iterable[str]) -> Iterator[Document]:
  """Reads WikiExtractor's <doc ...> title, lines, </doc>."""
  name, title, page = '', None, []
  for line in lines:
    start = _DOC.match(line)
    if start or line.startswith('</doc>'):
      yield Document(name, page)
      page = []
      if start:
        name = f'{path}#{start[1]}'
        title = html.unescape(start[2])
    elif title is not None and html.unescape(line.strip()) == title:
      title = None  # the page begins by repeating its title
    elif line.strip():
      page.append(line)
  yield Document(name, page)  # of a file that is cut off


def _jsonl(path: str, lines: Iterable[str]) -> Iterator[Document]:
  for n, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      text = json.loads(line)['text']
      text.encode()  # JSON can spell half a surrogate pair
    except (ValueError, KeyError, TypeError, AttributeError):
      raise errors.UserError(
        f'{path} line {n} is not a JSON object with a string "text": '
        f'{line[:60]!r}; give one such object per line.'
      ) from None
    yield Document(f'{path}#{n}', _text_lines(text))


def _text_lines(text: str) -> list[str]:
  return [line for line in text.split('\n') if line.strip()]


# TFDS, without TensorFlow.


def _tfds(given: str) -> Iterator[Document]:
  match = _TFDS_INPUT.fullmatch(given)
  if not match:
    raise errors.UserError(
      f'input {given!r} is not of the form tfds:NAME/CONFIG:SPLIT, for '
      'example tfds:wikipedia/20230601.simple:train.'
    )
  source = _tfds_source(given, match[1], match[2])
  for n in range(len(source)):
    text = source[n]['text']
    if isinstance(text, bytes):
      text = text.decode()
    yield Document(f'{given}#{n}', _text_lines(text))


def _tfds_source(given, name, split):
  """Opens a prepared dataset for random access, preparing it if need be."""
  try:
    import tensorflow_datasets as tfds
  except ImportError as error:
    raise errors.UserError(
      f'input {given!r} needs tensorflow-datasets, which is not installed '
      f'({error}); pip install tensorflow-datasets.'
    ) from error
  builder = _tfds_builder(tfds, given, name)
  if 'text' not in (builder.info.features or {}):
    raise errors.UserError(
      f"input {given!r} has no feature 'text', only "
      f'{", ".join(builder.info.features or ())}; give a corpus of texts.'
    )
  if split.split('[')[0] not in builder.info.splits:
    raise errors.UserError(
      f'input {given!r} has no split {split!r}; it has '
      f'{", ".join(builder.info.splits)}.'
    )
  try:
    return builder.as_data_source(split=split)
  except (NotImplementedError, ValueError) as error:
    raise errors.UserError(
      f'input {given!r} cannot be read by index ({_first_line(error)}); '
      "prepare it again with file_format='array_record'."
    ) from error


def _tfds_builder(tfds, given, name):
  try:
    return tfds.core.read_only_builder.builder_from_files(name)
  except tfds.core.DatasetNotFoundError:
    pass  # it is not prepared yet
  # Without TensorFlow the text builders register on import only.
  module = f'tensorflow_datasets.text.{re.split("[/:]", name)[0]}'
  if importlib.util.find_spec(module):
    importlib.import_module(module)
  try:
    builder = tfds.builder(name, file_format='array_record')
    builder.download_and_prepare()
  except Exception as error:  # builders raise anything
    raise errors.UserError(
      f'input {given!r} is not prepared under {tfds.core.constants.DATA_DIR} '
      f'and cannot be prepared here ({_first_line(error)}); prepare it with '
      "tfds and file_format='array_record', or set TFDS_DATA_DIR."
    ) from error
  return builder


def _first_line(error: Exception) -> str:
  return (str(error).strip() or type(error).__name__).splitlines()[0]
