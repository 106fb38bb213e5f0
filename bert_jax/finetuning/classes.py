"""The task of classifying, or rating, a text or a pair of texts.

Also in GPT's form ("Improving language understanding by generative pre-training",
section 3.2), where half of the language model's loss is added (equation 5).
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import encode, metrics, row_task, supervised
from bert_jax.finetuning.readers import examples, splits
from bert_jax.model import classifier
from bert_jax.ops import tied_decoder

_LM_LOSS, _LM_WEIGHT = 'half_lm_loss', 0.5  # of the language model


@dataclasses.dataclass(frozen=True)
class TextRows(encode.Rows):
  """Rows with classes, int32 [N], or numbers, float32 [N], for labels."""

  numbers: bool
  ids: list[str]  # names of the rows in a submission

  def list_ids(self):
    return self.ids

  def make_batch(self, rows, length, pad_id):
    batch = super().make_batch(rows, length, pad_id)
    if self.numbers:
      batch['labels'] = batch['labels'].astype(np.float32)
    return batch


class Classes(row_task.RowTask):
  """Classes of texts or pairs, or numbers, whose `labels` are ()."""

  name = 'classification'
  pipeline, auto = 'text-classification', 'SequenceClassification'
  counts_words = True

  def read_file(self, source, split, path):
    if source.glue:
      return examples.read_glue(source.glue, split, path)
    return super().read_file(source, split, path)

  def list_labels(self, source, contents):
    super().list_labels(source, contents)
    known = splits.find_glue(source.glue)
    if known or source.regression:
      return known.labels if known else ()
    labels = examples.list_classes(contents['train'])
    if len(labels) < 2:
      raise errors.UserError(
        f'{source.input} has only the label {labels[0]!r}; there is nothing '
        'to tell apart. For numbers set finetuning.regression=True.'
      )
    return labels

  def encode(self, how, content, labels, split=''):
    numbers, facts = None, row_task.list_facts(content)
    if all(x.label for x in content.units):
      numbers = examples.number_labels(content, labels)
      counts = [float(numbers.min()), float(numbers.max())]
      if labels:
        counts = np.bincount(numbers, minlength=len(labels)).tolist()
      facts['labels'] = dict(zip(labels or ('min', 'max'), counts, strict=True))
    encoded = encode.encode_texts(how, content.texts, content.pairs)
    ids = [x.id for x in content.units]
    return TextRows(encoded, numbers, not labels, ids), facts

  def list_shapes(self, f, module, phase, rows):
    shapes = super().list_shapes(f, module, phase, rows)
    if module.outputs == 1:
      shapes['labels'] = jax.ShapeDtypeStruct((rows,), jnp.float32)
    return shapes

  def compute_sums(self, module, params, batch, key, settings=None):
    sums = {}
    if isinstance(module, classifier.GptClassifier):
      logits, sums[_LM_LOSS] = _compute_gpt(module, params, batch, key)
    else:
      logits = supervised.apply(module, params, batch, key)
    if module.outputs == 1:
      off = jnp.square(logits[:, 0] - batch['labels']) * batch['label_weights']
      sums['squared_error'] = jnp.sum(off)
    else:
      sums |= supervised.sum_classes(logits, batch)
    return sums, {'logits': logits}

  def list_sums(self, f, module):
    """Returns sums of classes or numbers; GPT's form adds the tokens' loss."""
    numbers = module.outputs == 1
    gpt = isinstance(module, classifier.GptClassifier)
    return (
      ('squared_error',) if numbers else supervised.SUMS,
      {_LM_LOSS: lambda batch: jnp.sum(_weigh_tokens(batch))} if gpt else {},
      None if numbers or gpt else math.log(module.outputs),
    )

  def list_metrics(self, labels, f=None):
    if f and f.metrics:
      return metrics.check(f.metrics, labels)
    if f and f.glue:
      return splits.find_glue(f.glue).metrics
    if labels:
      return 'accuracy', 'macro_f1', 'matthews'
    return 'pearson', 'spearman', 'mean_squared_error'


TASK = Classes()


def _weigh_tokens(batch: dict[str, jax.Array]) -> jax.Array:
  """Returns the weight of each token to predict, float32 [B, S - 1]."""
  tokens = batch['input_mask'][:, 1:].astype(jnp.float32)
  return tokens * batch['label_weights'][:, None]


def _compute_gpt(module, params: Any, batch: dict[str, jax.Array], key):
  """Returns (logits [B, C], half the language model's loss over the batch)."""
  logits, inputs = supervised.apply(module, params, batch, key, 'with_tokens')
  loss, _ = tied_decoder.sum_losses(
    *inputs,
    module.config.vocab_size,
    batch['input_ids'][:, 1:],
    _weigh_tokens(batch),
  )
  return logits, _LM_WEIGHT * loss
