"""Paragraphs to sentences."""

from collections.abc import Iterable

import sentencex


def split(paragraphs: Iterable[str], language: str, layout: str) -> list[str]:
  """Returns the sentences of a document's paragraphs.

  Args:
    paragraphs: text, each without line breaks that matter.
    language: ISO 639-1 code; sentencex falls back to a related language, and
      to English, where it has no rules.
    layout: 'sentences' says that each paragraph is one sentence already.

  Returns:
    Sentences without empty ones, white space reduced to single spaces.
  """
  out = []
  for paragraph in paragraphs:
    # Before splitting, so that a line break inside a sentence is a space.
    text = ' '.join(paragraph.split())
    if not text:
      continue
    if layout == 'sentences':
      out.append(text)
    else:
      found = map(str.strip, sentencex.segment(language, text))
      out += [sentence for sentence in found if sentence]
  return out
