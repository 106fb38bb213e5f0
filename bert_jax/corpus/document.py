"""The document, which all sources of text yield, and its sentences."""

import re
from typing import NamedTuple

import sentencex

from bert_jax.tokenization import basic_tokenizer

# U+200B may end words of Thai, Lao, Tibetan, Burmese (Myanmar) and Khmer.
_LETTER = r'[\u0e00-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f]'
_WORD_END = re.compile(rf'(?<={_LETTER})\u200b|\u200b(?={_LETTER})')


class Document(NamedTuple):
  """A contiguous text, such as an article or a chapter."""

  paragraphs: list[str]  # without line breaks
  are_sentences: bool = False  # whether each is known to be one sentence


def fold(document: Document) -> Document:
  """Reduces a cleaned document to what the tokenizer sees, so copies are equal.

  U+200B that ends a word becomes a space: the tokenizer would join the words.
  """
  found = filter(None, map(_fold, document.paragraphs))
  return document._replace(paragraphs=list(found))


def _fold(text: str) -> str:
  # Cleaned ASCII holds no control characters.
  if (text.isascii() or text.isprintable()) and '  ' not in text:
    return text.strip()
  text = _WORD_END.sub(' ', text) if '\u200b' in text else text
  return ' '.join(text.translate(basic_tokenizer.CLEANED).split())


def split(document: Document, language: str) -> list[str]:
  """Returns the sentences of a document.

  Args:
    document: from `fold`; returned as it is if its paragraphs are sentences.
    language: ISO 639-1 code; sentencex uses a related language, or else
      English, where it has no rules.
  """
  if document.are_sentences:
    return document.paragraphs
  out = []
  for paragraph in document.paragraphs:
    found = map(str.strip, sentencex.segment(language, paragraph))
    out += [sentence for sentence in found if sentence]
  return out
