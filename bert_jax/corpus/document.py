"""The document, which all sources of text yield."""

from typing import NamedTuple


class Document(NamedTuple):
  """A contiguous text, such as an article or a chapter.

  Attributes:
    paragraphs: the text, one string per paragraph, without line breaks.
    are_sentences: whether each paragraph is known to be one sentence.
  """

  paragraphs: list[str]
  are_sentences: bool = False
