"""Chooses the text to hold out: a share of the text of each input.

Long documents are cut into parts, and each part is drawn by the hash of its
text. An input's parts are held out in the order of their draws until there is
enough text, so a few documents, or a single one, suffice for both splits.
"""

from collections.abc import Mapping, Sequence

from bert_jax.corpus.document import Document, split

_PART = 32_000  # characters, about; an input has 64 parts if it is not tiny
_SMALLEST_PART, _PARTS = 2000, 64
_GAP = 8  # sentences between held-out and training text of a document
_ENOUGH = 256 << 10  # bytes to hold out of an input, but at most a tenth of it
_SMALL = 64 << 20  # bytes of an input whose every part may be held out
BINS = 1000  # of draws up to the largest that may be held out


def choose_part_size(input_size: int) -> int:
  """Returns the characters of a part, for an input of this many bytes, or 1."""
  if input_size == 1:  # unknown
    return _PART
  return min(_PART, max(_SMALLEST_PART, input_size // _PARTS))


def cut(document: Document, most: int, language: str) -> list[Document]:
  """Cuts a document of more than `most` characters into similar parts.

  Cuts are between paragraphs or, in long ones, between sentences.
  """
  size = sum(map(len, document.paragraphs))
  if size <= most:
    return [document]
  count = -(-size // most)
  parts: list[list[str]] = [[] for _ in range(count)]
  begin = 0
  for paragraph in document.paragraphs:
    texts = [paragraph]
    if len(paragraph) > most // 4 and not document.are_sentences:
      texts = split(Document(texts), language)
    for text in texts:
      parts[min(begin * count // size, count - 1)].append(text)
      begin += len(text)
  return [Document(part, document.are_sentences) for part in parts if part]


def leave_gap(sentences: Sequence, part: int, parts: int) -> Sequence:
  """Drops sentences at the borders of held-out part `part` of `parts`."""
  gap = min(_GAP, len(sentences) // 4)
  return sentences[gap * (part > 0) : len(sentences) - gap * (part < parts - 1)]


def draw(digest: bytes) -> float:
  """Returns the draw of a part with this digest, in [0, 1)."""
  return (int.from_bytes(digest[:8], 'little') >> 11) / (1 << 53)


def find_bound(input_size: int, share: float) -> float:
  """Returns the draw below which a part may be held out, and is stored apart."""
  return 1.0 if input_size <= _SMALL else min(1.0, 2 * share)


def choose(
  share: float, size: int, parts: int, bins: Mapping[int, Sequence[int]]
) -> tuple[int, int, int]:
  """Chooses what to hold out of an input, by `bins`, {bin: (bytes, parts)}.

  From a small input it takes more than `share`: 256 kB, but at most a tenth. If
  possible, two parts are held out, for pairs of different documents, and two
  are not.

  Returns:
    The first bin not to hold out, and bytes and number of the parts below it.
  """
  wanted = max(share * size, min(_ENOUGH, size / 10))
  most = max(parts - 2, parts // 2)
  end = held = count = 0
  for number, (more, another) in sorted(bins.items()):
    if count + another > most or (held >= wanted and count >= 2):
      break
    end, held, count = number + 1, held + more, count + another
  return end, held, count
