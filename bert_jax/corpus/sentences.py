"""Paragraphs to sentences."""

import sentencex

from bert_jax.corpus.document import Document


def split(document: Document, language: str) -> list[str]:
  """Returns the sentences of a document.

  Args:
    document: one that is split already is left as it is.
    language: ISO 639-1 code; sentencex falls back to a related language, and
      to English, where it has no rules.

  Returns:
    Sentences without empty ones; in those split here, white space is reduced
    to single spaces.
  """
  if document.are_sentences:
    return list(filter(str.strip, document.paragraphs))
  out = []
  for paragraph in document.paragraphs:
    # Before splitting, so that a line break inside a sentence is a space.
    text = ' '.join(paragraph.split())
    found = map(str.strip, sentencex.segment(language, text)) if text else ()
    out += [sentence for sentence in found if sentence]
  return out
