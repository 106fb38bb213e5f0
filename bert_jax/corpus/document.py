"""The document, which all sources of text yield."""

from typing import NamedTuple


class Document(NamedTuple):
  """A contiguous text, such as an article or a chapter."""

  paragraphs: list[str]  # without line breaks
  are_sentences: bool = False  # whether each is known to be one sentence
