"""Trained models from Python: `bert_jax.load`. The commands are thin over these."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax import errors
from bert_jax.inference import (
  fill,
  hidden_states,
  pseudo_likelihood,
  source,
  trained_length,
)
from bert_jax.tokenization import unknown


def load(model: str) -> 'Model':
  """Reads a trained model.

  Args:
    model: a run or RUN@STEP, its export/, a Hugging Face or Google folder, or
      hf:OWNER/NAME.
  """
  return Model(source.read(model))


class Model:
  """A trained model.

  Attributes:
    source: its parameters, `bert`, tokenizer and head, a `source.Source`.
  """

  def __init__(self, read: source.Source):
    self.source = read

  def fill_mask(
    self, texts: Sequence[str], top: int = 5
  ) -> list[list[list[tuple[str, float]]]]:
    """Returns, for each [MASK] of each text, (word, probability), best first."""
    _check_list(texts)
    source.require_mlm(self.source)
    ids = [self.source.tokenizer.encode(x)['input_ids'] for x in texts]
    trained_length.warn(self.source, map(len, ids))
    return [fill.fill(*self.source[:3], x, top) for x in texts]

  def score(self, sentences: Sequence[str]) -> np.ndarray:
    """Returns pseudo-log-likelihoods, in nats, float64 [N]."""
    _check_list(sentences)
    source.require_mlm(self.source)
    ids = self.source.tokenizer.ids(sentences)
    words = [
      pseudo_likelihood.split_words(x, self.source.tokenizer) for x in ids
    ]
    return pseudo_likelihood.score(self.source, ids, words)

  def encode(
    self, texts: Sequence[str | tuple[str, str]], layers: str = 'last'
  ) -> list[np.ndarray]:
    """Returns the hidden states of each text or pair, float32 [S, D].

    They include those of [CLS], first, and [SEP]; `layers` is one of
    `hidden_states.LAYERS`.
    """
    _check_list(texts)
    features = hidden_states.extract(*self.source[:3], texts, layers)
    return [one.hidden for one in features]

  def predict(
    self,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    batch_size: int = 32,
  ) -> list[dict[str, Any]]:
    """Returns a dict for each text, or pair with the text of `pairs`.

    It has the `prediction` of a fine-tuned model, a class, a list of labels or a
    number; of a class its `probability`, and the `probabilities` of all classes
    or labels.
    """
    # Here, since the others need none of it, such as Orbax.
    from bert_jax import tasks
    from bert_jax.finetuning import predictions, tables
    from bert_jax.finetuning.readers import examples

    _check_list(texts)
    path, head = self.source.origin, self.source.head
    predictions.check_head(path, self.source)
    if head.task not in ('classification', 'multi_label'):
      raise errors.UserError(
        f'{path} is a model for {head.task}, not for classes or numbers of '
        'texts; predict for a file.'
      )
    if not len(texts):  # also of an array
      return []
    this = tasks.SUPERVISED[head.task]
    others = [None] * len(texts) if pairs is None else pairs
    both = zip(texts, others, strict=True)
    units = [examples.Example(i, *x, '', '') for i, x in enumerate(both)]
    content = examples.Examples(path, units)
    rows, _ = this.encode(
      predictions.get_how(self.source), content, head.labels
    )
    ids, words = rows.encoded.ids, content.list_texts()
    _, warning = unknown.examine(self.source.tokenizer, ids, words, 'the texts')
    if warning:
      print(warning, flush=True)
    how = this, self.source, rows, batch_size
    kept = predictions.predict_rows(*how, whole=True)
    chosen, _ = this.decide(rows, kept, head.settings, tune=False)
    return list(tables.list_rows(head.labels, chosen))


def _check_list(texts):
  if isinstance(texts, str):  # whose characters would be texts
    raise errors.UserError('a single text is given; put it in a list.')
