"""The task of classifying, or rating, a text or a pair of texts."""

import dataclasses
import math
import os

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import encode, gpt_form, metrics, row_task, supervised
from bert_jax.finetuning.readers import examples, splits, table_files
from bert_jax.model import classifier
from bert_jax.runtime import files

_LOW, _HIGH = 0, 5  # the range of scores in STS-B


@dataclasses.dataclass(frozen=True)
class TextRows(encode.Rows):
  """Rows with classes, int32 [N], or numbers, float32 [N], for labels.

  Attributes:
    ids: names of the rows in a submission.
  """

  numbers: bool
  ids: list[str]

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

  def read_file(self, source, split, path):
    if source.glue:
      return examples.read_glue(source.glue, split, path)
    return super().read_file(source, split, path)

  def list_labels(self, config, read):
    super().list_labels(config, read)
    known = splits.find_glue(config.finetuning.glue)
    if known or config.finetuning.regression:
      return known.labels if known else ()
    labels = examples.list_classes(read['train'])
    if len(labels) < 2:
      raise errors.UserError(
        f'{config.data.input} has only the label {labels[0]!r}; there is nothing '
        'to tell apart. For numbers set finetuning.regression=True.'
      )
    return labels

  def encode(self, how, content, labels, split=''):
    numbers = None
    if all(x.label for x in content.units):
      numbers = examples.number_labels(content, labels)
    facts = row_task.list_facts(content)
    if numbers is not None and labels:
      counts = np.bincount(numbers, minlength=len(labels)).tolist()
      facts['labels'] = dict(zip(labels, counts, strict=True))
    elif numbers is not None:
      facts['labels'] = {
        x: float(getattr(numbers, x)()) for x in ('min', 'max')
      }
    encoded = row_task.encode_texts(how, content.texts, content.pairs)
    ids = [x.id for x in content.units]
    return TextRows(encoded, numbers, not labels, ids), facts

  def list_shapes(self, config, module, phase, rows):
    shapes = super().list_shapes(config, module, phase, rows)
    if module.outputs == 1:
      shapes['labels'] = jax.ShapeDtypeStruct((rows,), jnp.float32)
    return shapes

  def compute_sums(self, module, params, batch, key, settings=None):
    sums = {}
    if _is_gpt(module):
      logits, lm_loss = gpt_form.compute(module, params, batch, key)
      sums[gpt_form.LOSS] = lm_loss
    else:
      logits = supervised.apply(module, params, batch, key)
    if module.outputs == 1:
      off = jnp.square(logits[:, 0] - batch['labels']) * batch['label_weights']
      sums['squared_error'] = jnp.sum(off)
    else:
      sums |= supervised.sum_classes(logits, batch)
    return sums, {'logits': logits}

  def list_sums(self, config, module):
    """Returns sums of classes or numbers; GPT's form adds the tokens' loss."""
    numbers, gpt = module.outputs == 1, _is_gpt(module)
    return (
      ('squared_error',) if numbers else supervised.SUMS,
      {gpt_form.LOSS: gpt_form.count_tokens} if gpt else {},
      None if numbers or gpt else math.log(module.outputs),
    )

  def list_metrics(self, labels, asked=None):
    if asked and asked.metrics:
      return metrics.check(asked.metrics, labels)
    if asked and asked.glue:
      return splits.find_glue(asked.glue).metrics
    if labels:
      return 'accuracy', 'macro_f1', 'matthews'
    return 'pearson', 'spearman', 'mean_squared_error'

  def write_more(self, config, workdir, data, predicted):
    """Writes a GLUE task's test predictions in its leaderboard's form."""
    known = splits.find_glue(config.finetuning.glue)
    names = known.submissions if known else {}
    names = {split: names[split] for split in predicted if split in names}
    if not names:
      return []

    def fill(new):
      for split, name in names.items():
        chosen = predicted[split]['chosen']
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


TASK = Classes()


def _is_gpt(module) -> bool:
  return isinstance(module, classifier.GptClassifier)
