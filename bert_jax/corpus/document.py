"""The document, which all sources of text yield, and its sentences."""

import re
from typing import NamedTuple

import sentencex

from bert_jax.tokenization import basic_tokenizer

# U+200B may end words of Thai, Lao, Tibetan, Burmese (Myanmar) and Khmer.
_LETTER = r'[\u0e00-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f]'
_WORD_END = re.compile(rf'(?<={_LETTER})\u200b|\u200b(?={_LETTER})')

_WINDOW = 1 << 15  # characters; sentencex's time may grow with their square
# Marks that can only begin or only end a quotation; others, such as between
# ideographs, can do either.
_OPENS = r'"(?<![^\s(\[{—–-]")(?![\s.,;:!?)\]}—–-]|$)'
_CLOSES = r'"(?<=[^\s(\[{]")(?=[\s.,;:!?)\]}—–-]|$)'
_QUOTATION = rf'(?!{_CLOSES})"[^"]*+(?!{_OPENS})"'
_PAIRED = re.compile(rf'[^"]*+(?:{_QUOTATION}[^"]*+)*+')
_MARK = re.compile(rf'({_QUOTATION})|({_OPENS})|"')


class Document(NamedTuple):
  """A contiguous text, such as an article or a chapter."""

  paragraphs: list[str]  # without line breaks
  are_sentences: bool = False  # whether each is known to be one sentence


def fold(document: Document, whole: bool = False) -> Document:
  """Reduces a cleaned document to what the tokenizer sees, so copies are equal.

  U+200B that ends a word becomes a space: the tokenizer would join the words. If
  `whole`, as for tokenizers that see all characters, only spaces are reduced.
  """
  spaced = (' '.join(x.split()) for x in document.paragraphs)
  texts = spaced if whole else map(_fold, document.paragraphs)
  folded = filter(None, texts)
  return document._replace(paragraphs=list(folded))


def _fold(text: str) -> str:
  # Cleaned ASCII holds no control characters.
  if (text.isascii() or text.isprintable()) and '  ' not in text:
    return text.strip()
  text = _WORD_END.sub(' ', text) if '\u200b' in text else text
  return ' '.join(text.translate(basic_tokenizer.CLEANED).split())


def split(document: Document, language: str) -> list[str]:
  """Returns the sentences of a folded document.

  Where sentencex has no rules for a language, it uses those of a related one or
  of English.
  """
  if document.are_sentences:
    return document.paragraphs
  sentences = (
    x.strip() for p in document.paragraphs for x in _segment(p, language)
  )
  return list(filter(None, sentences))


def split_joined(document: Document, language: str) -> list[str]:
  """Returns `split`, with what is between sentences at the begin of the next."""
  text = (' ' if document.are_sentences else '\n').join(document.paragraphs)
  parts, at = [], 0
  for sentence in split(document, language):
    end = text.index(sentence, at) + len(sentence)
    parts.append(text[at:end])
    at = end
  return parts


def _segment(text: str, language: str) -> list[str]:
  """Returns the sentences of a text, found in windows, in linear time."""
  is_paired = '"' not in text or _PAIRED.fullmatch(text)
  if is_paired and len(text) <= _WINDOW:
    return sentencex.segment(language, text) if text else []
  marked = text if is_paired else _MARK.sub(_hide_stray, text)
  sentences, end = [], 0
  while end < len(text):
    window = marked[end : end + _WINDOW]
    pieces = sentencex.segment(language, window)
    if end + len(window) < len(text):
      # The last one may go on; if it is the only one, it is cut at a space.
      pieces = pieces[:-1] or [window[: window.rfind(' ') + 1 or None]]
    for sentence in pieces:
      end += len(sentence)
      sentences.append(text[end - len(sentence) : end])
  return sentences


def _hide_stray(match: re.Match) -> str:
  """Replaces a quotation mark that begins or ends nothing by one without a pair.

  All between a mark of inches and the next mark would be one sentence.
  """
  return match[1] or ('″' if match[2] else '”')
