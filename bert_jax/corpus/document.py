"""The document, which all sources of text yield, and its sentences."""

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

import sentencex

from bert_jax import errors
from bert_jax.runtime import files, storage

_HASH = re.compile('[0-9a-f]{32}')  # what `identify` returns


class Document(NamedTuple):
  """A contiguous text, such as an article or a chapter."""

  paragraphs: list[str]  # without line breaks
  are_sentences: bool = False  # whether each is known to be one sentence


def identify(document: Document) -> str:
  """Returns a hash of a document's text, 32 hexadecimal digits."""
  text = '\n'.join(document.paragraphs).encode(errors='replace')
  return hashlib.blake2b(text, digest_size=16).hexdigest()


def read_list(path: str) -> frozenset[str]:
  """Returns the documents, by `identify`, in a file of `write_list`.

  An empty path is an empty list.
  """
  if not path:
    return frozenset()
  kinds = OSError, ValueError  # also of text that is not UTF-8
  with errors.explaining(f'cannot read {path}', 'name another file.', kinds):
    found = storage.read(path).decode().split()
    if not all(map(_HASH.fullmatch, found)):
      raise ValueError('it is not a list of documents')
    return frozenset(found)


def write_list(path: str, documents: Iterable[str]):
  """Writes documents, by `identify`, to a file, one per line."""
  text = ''.join(f'{x}\n' for x in sorted(documents))
  files.write_file(path, lambda new: files.write_text(new, text))


def split(document: Document, language: str) -> list[str]:
  """Returns the sentences of a document.

  Args:
    document: returned as it is if its paragraphs are sentences already.
    language: ISO 639-1 code; sentencex uses a related language, or else
      English, where it has no rules.

  Returns:
    Non-empty sentences; in those split here, runs of white space become single
    spaces.
  """
  if document.are_sentences:
    return list(filter(str.strip, document.paragraphs))
  out = []
  for paragraph in document.paragraphs:
    # Before splitting, so that a line break does not end a sentence.
    text = ' '.join(paragraph.split())
    found = map(str.strip, sentencex.segment(language, text)) if text else ()
    out += [sentence for sentence in found if sentence]
  return out
