"""The document, which all sources of text yield, and its sentences."""

from typing import NamedTuple

import sentencex


class Document(NamedTuple):
  """A contiguous text, such as an article or a chapter."""

  paragraphs: list[str]  # without line breaks
  are_sentences: bool = False  # whether each is known to be one sentence


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
