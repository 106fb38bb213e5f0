"""Says how much of a text is unknown to a vocabulary, and why."""

import collections
import unicodedata
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from bert_jax import errors
from bert_jax.tokenization import basic_tokenizer, tokenizer, wordpiece

# Shares of tokens. Vocabularies made for their text leave 0.003% to 0.4%
# unknown (docs/tokenizer.md); of another script nearly all.
WARN, REFUSE = 0.03, 0.3
_FEW = 50  # tokens, of which no share is too large
_READ = 1000  # texts that are searched for the reason


def examine(
  words: tokenizer.Tokenizer, ids: np.ndarray, texts: Sequence[str], name: str
) -> tuple[float, str]:
  """Returns the share of unknown tokens among the ids of texts, and a warning.

  Raises errors.UserError if it is more than 30 %.
  """
  frame = {words.cls_id, words.sep_id, words.pad_id, words.mask_id}
  ids = ids[~np.isin(ids, [*frame])]
  # A blank word that has a tag is [UNK] to the model, which is no fault.
  blank = sum(not text.strip() for text in texts)
  count = max(int((ids == words.unk_id).sum()) - blank, 0)
  share = count / max(len(ids), 1)
  if share <= WARN:
    return share, ''
  how = words.lowercase, words.strip_accents
  seen = collections.Counter(
    word for text in texts[:_READ] for word in tokenizer.words(text, *how)
  )
  said = (
    f'{name}: {share:.1%} of the tokens are unknown to the vocabulary, '
    f'{explain(words.vocab, seen)}'
  )
  if share > REFUSE and len(ids) >= _FEW:
    raise errors.UserError(f'{said}; use a model that is made for this text.')
  return share, f'WARNING: {said}'


def tell(words: tokenizer.Tokenizer, ids: np.ndarray, texts, name: str):
  """Prints the share of unknown tokens; arguments and errors as `examine`."""
  share, warning = examine(words, ids, texts, name)
  print(warning or f'{name}: {share:.2%} of the tokens are unknown', flush=True)


def warn(tokens: float, characters: float, advice: str) -> list[str]:
  """Returns a line for the terminal if the unknown shares of a text are large."""
  if max(tokens, characters) <= WARN:
    return []
  return [
    f'WARNING: {tokens:.1%} of the tokens, with {characters:.1%} of the '
    'characters, are unknown to the vocabulary, and nothing can be learnt from '
    f'them; {advice}'
  ]


def explain(vocab: Collection[str], words: Mapping[str, int]) -> str:
  """Returns the likeliest reason why some of counted words are unknown."""
  known = set().union(*{*vocab}.difference(tokenizer.SPECIAL))
  lacking: collections.Counter[str] = collections.Counter()
  for word, count in words.items():
    lacking.update({c: count for c in word if c not in known})
  if not lacking:
    return (
      'which has all letters, but no pieces for words that are split so, or are '
      f'longer than {wordpiece.MAX_CHARS_PER_WORD} letters'
    )
  [(c, _)] = lacking.most_common(1)
  split = unicodedata.normalize('NFD', ''.join(known))  # Hangul, too
  kind = 'script'
  if c.lower() in known or c.upper() in known:
    kind = 'case (lowercase)'
  elif basic_tokenizer.strip(c) in known or c in split:
    kind = 'treatment of accents (strip_accents)'
  count, name = errors.count(len(lacking), 'letter'), unicodedata.name(c, '?')
  return (
    f'which is for another {kind}: it lacks {count}, most often {c!r} ({name})'
  )
