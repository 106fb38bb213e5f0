"""The task of classifying, or rating, a text or a pair of texts."""

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import (
  encode,
  feature_rows,
  gpt_form,
  predict_files,
  predictions,
  row_task,
  supervised,
  task_data,
)
from bert_jax.finetuning.readers import data_files, examples, table_files
from bert_jax.inference import fine_tuned, source
from bert_jax.model import gpt_classifier, losses
from bert_jax.runtime import files

_LOW, _HIGH = 0, 5  # the range of scores in STS-B


class TextRows(NamedTuple):
  """The rows of a split.

  Attributes:
    encoded: their ids, or their features.
    labels: classes, int32 [N], or numbers, float32 [N]; None if unknown.
    ids: their ids in a submission.
  """

  encoded: encode.Encoded | feature_rows.FeatureRows
  labels: np.ndarray | None
  ids: np.ndarray

  @property
  def size(self) -> int:
    """Returns the number of rows."""
    return len(self.encoded.ends)

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int [N]."""
    return self.encoded.lengths


class Classes(row_task.RowTask):
  """Classes of texts or pairs, or numbers, whose `labels` are ()."""

  name = 'classification'
  card = supervised.Card('text-classification', 'SequenceClassification')

  # From files to rows.

  def read(self, config, tokenizer):
    """Reads and encodes tables of texts; the training rows have the classes."""
    where = data_files.get_source(config)
    known = data_files.find_glue(where.glue)
    read = examples.read_splits(where)
    labels = known.labels if known else ()
    if not known and not config.finetuning.regression:
      labels = examples.list_labels(read['train'])
      if len(labels) < 2:
        raise errors.UserError(
          f'{where.input} has only the label {labels[0]!r}; there is nothing to '
          'tell apart. For numbers set finetuning.regression=True.'
        )
    form, length = config.finetuning.form, max(config.phases.seq_length)
    splits, facts = {}, {}
    for name, rows in read.items():
      encoded = _encode(tokenizer, form, rows.texts, rows.pairs, length)
      numbers = None
      if rows.labels is not None and all(rows.labels):
        numbers = examples.number_labels(rows, labels)
      splits[name] = TextRows(encoded, numbers, np.array(rows.ids))
      facts[name] = _list_facts(rows, splits[name], labels)
    return task_data.combine(splits, labels, tokenizer, facts)

  def pack(self, split):
    """Returns the arrays of rows, with their ids in a submission."""
    arrays = encode.pack(split.encoded) | {'row_ids': split.ids}
    return arrays if split.labels is None else arrays | {'labels': split.labels}

  def unpack(self, arrays, facts):
    encoded = encode.unpack(arrays, facts['truncated'])
    return TextRows(encoded, arrays.get('labels'), arrays['row_ids'])

  def list_tokens(self, split):
    """Returns all tokens: a BiLSTM reads the whole text."""
    return feature_rows.take_all(split.encoded)

  def replace_ids(self, split, features):
    return split._replace(encoded=features)

  def describe_data(self, manifest):
    lines = []
    for name, x in manifest['splits'].items():
      parts = [f'{name}: {errors.count(x["rows"], "row")}']
      if 'labels' in x and manifest['labels']:
        shown = [f'{label} ({n:,})' for label, n in x['labels'].items()]
        parts.append(f'labels {errors.listing(shown, most=10)}')
      elif 'labels' in x:
        parts.append('labels from {min:,} to {max:,}'.format(**x['labels']))
      parts.append(f'longest {x["longest"]} tokens')
      if x['truncated']:
        parts.append(f'{x["truncated"]:,} truncated')
      # Data made by an earlier version lack the origin.
      lines.append(', '.join(parts) + f' ({x.get("origin", x["path"])})')
      for what, numbers in (
        ('without text, kept as [CLS] [SEP]', x['empty_lines']),
        ('with too few columns, left out', x['ragged_lines']),
      ):
        if numbers:
          lines.append(
            f'WARNING: {errors.count(len(numbers), "row")} of {x["path"]} {what}; '
            f'the first in line {numbers[0]}'
          )
    return lines

  def list_columns(self, config):
    """Returns the columns of the text and, if there is one, of the second text."""
    known = data_files.find_glue(config.finetuning.glue) or config.data
    return tuple(name for name in (known.text, known.pair) if name)

  # From rows to a loss.

  def make_batch(self, data, split, rows, length):
    """Returns ids, masks and segments, [b, S], and a label for each row."""
    labels = np.zeros(len(rows), np.int32 if data.labels else np.float32)
    if split.labels is not None:
      labels = split.labels[rows]
    return encode.make_batch(split.encoded, rows, length, data.pad_id) | {
      'labels': labels,
      'label_weights': np.ones(len(rows), np.float32),
    }

  def list_shapes(self, config, module, phase, rows):
    """Returns the shapes of `make_batch`; labels of one output are numbers."""
    kind = jnp.float32 if module.outputs == 1 else jnp.int32
    return fine_tuned.list_inputs(module, rows, phase.seq_length) | {
      'labels': jax.ShapeDtypeStruct((rows,), kind),
      'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
    }

  def compute_sums(self, module, params, batch, key):
    """Returns the sums, and {'logits': [B, C]}."""
    found = {}
    if isinstance(module, gpt_classifier.GptClassifier):
      logits, more = gpt_form.compute(module, params, batch, key)
      found[gpt_form.LOSS] = more
    else:
      logits = supervised.apply(module, params, batch, key)
    labels, weights = batch['labels'], batch['label_weights']
    if module.outputs == 1:
      off = jnp.sum(jnp.square(logits[:, 0] - labels) * weights)
      return found | {'squared_error': off}, {'logits': logits}
    loss, hits = losses.sum_tokens(logits, labels, weights)
    found |= {'cross_entropy': loss, 'accuracy': hits}
    return found, {'logits': logits}

  def list_sums(self, module):
    """Returns the cross entropy and the accuracy, or of numbers the error."""
    return ('squared_error',) if module.outputs == 1 else self.sums

  def list_more_losses(self, module):
    """Returns the language model's loss in GPT's form."""
    gpt = isinstance(module, gpt_classifier.GptClassifier)
    return {gpt_form.LOSS: gpt_form.count_tokens} if gpt else {}

  def expect_loss(self, config, module):
    """Returns the loss of guessing; of numbers and of GPT's form it is unknown."""
    gpt = isinstance(module, gpt_classifier.GptClassifier)
    return None if module.outputs == 1 or gpt else math.log(module.outputs)

  def describe_batch(self, batch):
    tokens, rows = batch['input_mask'].sum(), len(batch['labels'])
    return [
      f'first batch: {rows} rows of {tokens / rows:.1f} tokens, '
      f'{1 - tokens / batch["input_mask"].size:.1%} padding'
    ]

  # From predictions to scores and files.

  def list_metrics(self, labels, glue=''):
    """Returns the metrics of a GLUE task, or else of classes or of numbers."""
    known = data_files.find_glue(glue)
    if known:
      return known.metrics
    if labels:
      return 'accuracy', 'macro_f1', 'matthews'
    return 'pearson', 'spearman', 'mean_squared_error'

  def write_more(self, config, workdir, data, found):
    """Writes the test predictions of a GLUE task as its leaderboard takes them."""
    known = data_files.find_glue(config.finetuning.glue)
    names = {
      split: name
      for split, name in (known.submissions if known else {}).items()
      if split in found
    }
    if not names:
      return []

    def fill(new):
      for split, name in names.items():
        chosen = found[split]['chosen']
        if data.labels:
          shown = [data.labels[i] for i in chosen]
        else:
          shown = [f'{x:.3f}' for x in np.clip(chosen, _LOW, _HIGH)]
        rows = zip(data.splits[split].ids, shown, strict=True)
        table_files.write_tsv(
          os.path.join(new, name), [['index', 'prediction'], *rows]
        )

    folder = os.path.join(workdir, 'submission')
    files.write_folder(folder, list(known.submissions.values()), fill)
    return [('submission', "files for GLUE's leaderboard")]

  def describe_constant(self, config, labels):
    if not labels:
      return 'always predicts the mean of the training rows'
    return super().describe_constant(config, labels)

  # Predictions for a user's file.

  def read_given(self, job):
    """Reads the rows of a table, by the columns of training unless named."""
    head = job.model.head
    text, pair = _choose_columns(job.columns[:2], head.columns)
    table, kept = row_task.read_table(job)
    rows = examples.choose_columns(
      *(table, text, pair, job.label, bool(job.label), row_task.ASKED)
    )
    labels = None
    if row_task.check_labelled(job, rows):
      labels = examples.number_labels(rows, head.labels)
    split = encode_texts(job.model, rows.texts, rows.pairs)
    return supervised.Given(split._replace(labels=labels), kept)

  def choose_keep(self, job):
    """Keeps all logits of classes for JSONL; a number is its only logit."""
    if not job.model.head.labels:
      return predictions.keep_likeliest
    return super().choose_keep(job)


TASK = Classes()


def _encode(tokenizer, form, texts, pairs, length) -> encode.Encoded:
  texts = encode.tokenize(tokenizer, texts)
  pairs = pairs and encode.tokenize(tokenizer, pairs)
  join = gpt_form.join if form == 'gpt' else encode.join
  return join(tokenizer, texts, pairs, length)


def _list_facts(rows, split, labels) -> dict[str, Any]:
  """Returns the facts about a split, for the manifest."""
  facts = task_data.list_row_facts(rows, split.encoded) | {
    'tokens': len(split.encoded.ids),
    'ragged_lines': list(rows.ragged),
    'pairs': rows.pairs is not None,
  }
  if split.labels is None:
    return facts
  if labels:
    counts = np.bincount(split.labels, minlength=len(labels)).tolist()
    return facts | {'labels': dict(zip(labels, counts, strict=True))}
  bounds = {x: float(getattr(split.labels, x)()) for x in ('min', 'max')}
  return facts | {'labels': bounds}


def _choose_columns(given, trained):
  text, pair = given
  if text is None and not trained:
    raise errors.UserError(
      'the model does not say which column holds the text; give --text=COLUMN '
      'and, for pairs, --pair=COLUMN.'
    )
  if text is None:
    text = trained[0]
  if pair is None:
    pair = trained[1] if len(trained) > 1 else ''
  return text, pair


def encode_texts(
  model: source.Source, texts: Sequence[str], pairs: Sequence[str] | None
) -> TextRows:
  """Returns texts, or pairs, as rows of a trained model."""
  head = model.head
  encoded = _encode(model.tokenizer, head.form, texts, pairs, head.max_length)
  return TextRows(encoded, None, np.arange(len(texts)))


def predict_texts(
  path: str,
  model: source.Source,
  texts: Sequence[str],
  pairs: Sequence[str] | None,
  batch_size: int,
) -> list[dict[str, Any]]:
  """Returns what is predicted for texts; see `bert_jax.predict.predict_texts`."""
  job = predict_files.Job(path, model, '', '', (), batch_size)
  predict_files.check_head(job)
  if model.head.task != TASK.name:
    raise errors.UserError(
      f'{path} is a model for {model.head.task}, not for classes or numbers of '
      'texts; predict for a file.'
    )
  if pairs is not None and len(pairs) != len(texts):
    raise errors.UserError(
      f'{len(pairs):,} pairs for {len(texts):,} texts; give one for each text.'
    )
  if not texts:
    return []
  split = encode_texts(model, list(texts), pairs and list(pairs))
  kept = job.predict(TASK, split, predictions.fill)
  found, _ = TASK.decide(split, kept, None, tune=False)
  return list(row_task.list_rows(model.head.labels, found))
