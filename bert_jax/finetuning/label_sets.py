"""The task of telling which of several labels a text, or a pair, has.

The probability of a label is the sigmoid of its logit. The loss of a row is the
mean of the labels' cross-entropies, as in transformers.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax import errors
from bert_jax.finetuning import encode, metrics, row_task, supervised
from bert_jax.finetuning.readers import examples, label_lists


@dataclasses.dataclass(frozen=True)
class LabelRows(encode.Rows):
  """Rows with `labels`, int32 [N, C], 1 where a row has a label of C."""

  label_shape: Sequence[int] = ()  # [C]; the class has no C

  def keep(self, kept, rows, outputs, whole=False):
    return self.fill(kept, rows, outputs)


class LabelSets(row_task.RowTask):
  """Sets of labels; predictions are `probabilities` and `chosen`, [N, C]."""

  name = 'multi_label'
  pipeline, auto = 'text-classification', 'SequenceClassification'
  predicts = 'any number of {:,} labels, which `config.json` lists'
  constant = 'the labels that have the best micro F1 together'
  tuned = 'a text has a label if its probability is above {:.3f}'

  def read_table(self, table, columns, needs_label, asked):
    return label_lists.read(table, columns, needs_label, asked)

  def list_labels(self, source, contents):
    super().list_labels(source, contents)
    labels = examples.list_classes(contents['train'].flatten())
    if not labels:
      raise errors.UserError(
        f'{source.input} has no training row with a label; is it in '
        f'data.label={source.columns.label}?'
      )
    return labels

  def encode(self, how, content, labels, split=''):
    encoded = encode.encode_texts(how, content.texts, content.pairs)
    facts, truth = row_task.list_facts(content), None
    if all(x.label != '' for x in content.units):
      sizes = [len(x.label) for x in content.units]
      numbers = examples.number_labels(content.flatten(), labels)
      truth = np.zeros((len(sizes), len(labels)), np.int32)
      truth[np.repeat(np.arange(len(sizes)), sizes), numbers] = 1
      facts['counts'].append(f'{np.mean(sizes):.2f} labels per row')
      counts = truth.sum(0).tolist()
      facts['labels'] = dict(zip(labels, counts, strict=True))
    return LabelRows(encoded, truth, [len(labels)]), facts

  def list_shapes(self, f, module, phase, rows):
    labels = jax.ShapeDtypeStruct((rows, module.outputs), jnp.int32)
    shapes = super().list_shapes(f, module, phase, rows)
    return shapes | {'labels': labels}

  def compute_sums(self, module, params, batch, key, settings=None):
    """Returns ({metric: sum}, {'probabilities': [B, C]})."""
    logits = supervised.apply(module, params, batch, key)  # [B, C]
    each = optax.sigmoid_binary_cross_entropy(logits, batch['labels'])
    loss = jnp.sum(jnp.mean(each, -1) * batch['label_weights'])
    return {'cross_entropy': loss}, {'probabilities': jax.nn.sigmoid(logits)}

  def list_sums(self, f, module):
    return ('cross_entropy',), {}, math.log(2)

  def find_bias(self, rows, count):
    """Returns the log odds of each label, float32 [C]."""
    there = rows.labels.sum(0) + 1
    return np.log(there / (rows.size + 2 - there)).astype(np.float32)

  def decide(self, split, kept, settings, tune):
    """Chooses the labels above a threshold, which is tuned by micro F1."""
    likely = kept['probabilities'].astype(float)
    if tune:
      threshold = metrics.choose_threshold(split.labels, likely)
      settings = settings._replace(threshold=threshold)
    return kept | {'chosen': likely > settings.threshold}, settings

  def list_metrics(self, labels, f=None):
    return metrics.OF_SETS

  def compare(self, names, labels, split, predicted, train=None):
    truth, chosen = split.labels, predicted['chosen']
    if train is None:
      return {'metrics': metrics.score_sets(truth, chosen)}
    return metrics.compare_sets(labels, truth, chosen)

  def find_problem(self, scored, predicted):
    _, sets = np.unique(predicted['chosen'], axis=0, return_inverse=True)
    # What is not finite stays so.
    sets = sets.ravel() + 0 * predicted['probabilities'].sum(1)
    return metrics.find_problem(scored, sets)


TASK = LabelSets()
