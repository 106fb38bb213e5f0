"""What all sources yield."""

from typing import NamedTuple


class Document(NamedTuple):
  """A text whose parts belong together.

  Attributes:
    paragraphs: its text, without line breaks.
    are_sentences: whether each paragraph is known to be one sentence.
  """

  paragraphs: list[str]
  are_sentences: bool = False
