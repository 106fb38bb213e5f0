"""What all sources yield."""

from typing import NamedTuple


class Document(NamedTuple):
  """A text whose parts belong together.

  Attributes:
    name: where it comes from.
    paragraphs: its text; in layout 'sentences' each is one sentence.
  """

  name: str
  paragraphs: list[str]
