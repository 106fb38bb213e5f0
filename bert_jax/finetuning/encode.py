"""Encodes texts and pairs; the rows of a task, and what is predicted for them."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.inference import padding
from bert_jax.model import classifier
from bert_jax.tokenization.tokenizer import SPECIAL, Tokenizer
from bert_jax.trainer import task


class How(NamedTuple):
  """How texts become rows of a model."""

  tokenizer: Tokenizer
  length: int  # tokens of a row, at most
  form: str = 'bert'  # or 'gpt', see `encode_texts`
  settings: classifier.Spans | None = None


# GPT's form of rows ("Improving language understanding by generative
# pre-training", section 3.3) has tokens of its own, new in fine-tuning.
GPT_TOKENS = '[START]', '[DELIMITER]', '[EXTRACT]'


def truncate(first: int, second: int, room: int) -> tuple[int, int]:
  """Returns how many tokens of a pair to keep: a longer text is cut first.

  Like `longest_first` of Hugging Face's tokenizers. Google's code differs if both
  are cut and `room` is odd: here the longer text, or the second, keeps one more.

  >>> truncate(90, 10, 60), truncate(40, 90, 61), truncate(90, 40, 61)
  ((50, 10), (30, 31), (31, 30))
  """
  if first + second <= room:
    return first, second
  least = min(first, second)
  if 2 * least > room:
    short, long = room // 2, room - room // 2
  else:
    short, long = least, room - least
  return (long, short) if first > second else (short, long)


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
  """Returns the ids of each text, without [CLS] and [SEP], but with '[MASK]'."""
  ids = tokenizer.ids(texts)
  for i, text in enumerate(texts):
    if any(token in text for token in SPECIAL):
      ids[i] = tokenizer.encode(text)['input_ids'][1:-1]
  return ids


def join(
  tokenizer: Tokenizer,
  firsts: Sequence[list[int]],
  seconds: Sequence[list[int]] | None,
  max_length: int,
  frame: Sequence[int] = (),
) -> padding.Encoded:
  """Makes rows of the ids of texts, or of pairs, see `truncate`.

  `frame` is ids before, between and after them; () is [CLS], [SEP], [SEP].
  """
  frame = frame or (tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id)
  start, between, end = ([x] for x in frame)
  room = max_length - (2 if seconds is None else 3)
  rows, sizes, truncated = [], [], 0
  for i, a in enumerate(firsts):
    b = [] if seconds is None else seconds[i]
    kept, kept_b = truncate(len(a), len(b), room)
    truncated += kept < len(a) or kept_b < len(b)
    row = start + a[:kept] + (end if seconds is None else between)
    sizes.append(len(row))
    rows.append(row if seconds is None else row + b[:kept_b] + end)
  return padding.chain(tokenizer, rows, sizes, truncated)


def extend(tokenizer: Tokenizer) -> Tokenizer:
  """Returns the tokenizer with `GPT_TOKENS` at the end of its vocabulary."""
  if tokenizer.space:
    name = f'the model has a {tokenizer.file_name} of another kind'
    raise errors.UserError(
      f'finetuning.form=gpt adds words of WordPiece, but {name}; leave it out.'
    )
  if known := set(GPT_TOKENS) & set(tokenizer.vocab):
    raise errors.UserError(
      f'the vocabulary of init_from has {min(known)} already, which '
      'finetuning.form=gpt adds; start from a model that was only pre-trained.'
    )
  return dataclasses.replace(tokenizer, vocab=(*tokenizer.vocab, *GPT_TOKENS))


def encode_texts(
  how: How, texts: Sequence[str], pairs: Sequence[str] | None
) -> padding.Encoded:
  """Returns rows of texts or, unless `pairs` is None, of pairs.

  In GPT's form they are one segment, in a frame of `GPT_TOKENS`.
  """
  firsts = tokenize(how.tokenizer, texts)
  seconds = pairs and tokenize(how.tokenizer, pairs)
  if how.form != 'gpt':
    return join(how.tokenizer, firsts, seconds, how.length)
  frame = range(how.tokenizer.size - len(GPT_TOKENS), how.tokenizer.size)
  rows = join(how.tokenizer, firsts, seconds, how.length, frame)
  return rows._replace(firsts=rows.lengths.astype(rows.firsts.dtype))


@dataclasses.dataclass(frozen=True)
class Rows:
  """N rows. A task may add fields, which are arrays or JSON values."""

  encoded: padding.Encoded
  labels: np.ndarray | None  # what is to be learnt of each row, if known
  blank: Any = dataclasses.field(default=np.int32(0), kw_only=True)  # else
  # Names of the rows in files of predictions, if not numbers.
  ids: Sequence[str] = dataclasses.field(default=(), kw_only=True)

  @property
  def size(self) -> int:
    return len(self.encoded.ends)

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int [N]."""
    return self.encoded.lengths

  def count(self) -> int:
    """Returns the number of predictions, such as of words."""
    return self.size

  def make_inputs(self, rows, length, pad_id) -> task.Batch:
    return self.encoded.make_batch(rows, length, pad_id)

  def make_batch(
    self, rows: np.ndarray, length: int, pad_id: int
  ) -> task.Batch:
    """Returns the batch of rows [b], padded to `length` tokens.

    It has what the model reads, `labels`, and `label_weights`, 1 where one counts.
    """
    labels = np.array([self.blank] * len(rows))
    return self.make_inputs(rows, length, pad_id) | {
      'labels': labels if self.labels is None else self.labels[rows],
      'label_weights': np.ones(len(rows), np.float32),
    }

  def keep(
    self,
    kept: Any,
    rows: np.ndarray,
    outputs: dict[str, np.ndarray],
    whole: bool = False,
  ) -> Any:
    """Keeps what is needed of the predictions for rows [b], after `kept`.

    `outputs` are {name: [B, ...]}, of which the first b are of these rows. Of
    `logits` [B, C], these are `chosen` and its `probability`, float64; if C is 1,
    the number itself. `whole` keeps the logits, too, which may be many.
    """
    logits = outputs.get('logits')
    if logits is None:
      return self.fill(kept, rows, outputs)
    if logits.shape[1] == 1:
      return self.fill(kept, rows, {'chosen': logits[:, 0]})
    likely = to_probabilities(logits).max(-1)
    chosen = {'chosen': logits.argmax(-1), 'probability': likely}
    return self.fill(kept, rows, chosen | (outputs if whole else {}))

  def fill(self, kept: Any, rows: np.ndarray, outputs: dict) -> dict:
    """Puts a batch's values into the arrays of all rows, {name: [N, ...]}."""
    if kept is None:
      kept = {
        name: np.zeros((self.size, *x.shape[1:]), x.dtype)
        for name, x in outputs.items()
      }
    for name, x in outputs.items():
      kept[name][rows] = x[: len(rows)]
    return kept

  def compute_sha256(self) -> str:
    """Returns a hash of all fields."""
    digest = hashlib.sha256()
    encoded, *fields = (getattr(self, x.name) for x in dataclasses.fields(self))
    for x in (*encoded, *fields):
      is_array = isinstance(x, np.ndarray | np.generic)
      digest.update(x.tobytes() if is_array else json.dumps(x).encode())
    return digest.hexdigest()


def to_probabilities(logits: np.ndarray) -> np.ndarray:
  """Returns the softmax of logits [..., C], in float64."""
  shifted = np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64)
  return shifted / shifted.sum(-1, keepdims=True)
