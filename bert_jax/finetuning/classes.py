"""The tasks of classifying, or rating, a text or a pair, and of labelling it.

Classes also in GPT's form ("Improving language understanding by generative
pre-training", section 3.2), where half of the language model's loss is added
(equation 5). Of labels, a text may have several: the probability of each is the
sigmoid of its logit, and the loss of a row is the mean of the labels'
cross-entropies, as in transformers.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax import errors
from bert_jax.finetuning import encode, metrics, supervised, tables
from bert_jax.finetuning.readers import examples, splits, table_files
from bert_jax.model import classifier
from bert_jax.ops import tied_decoder

_LM_LOSS, _LM_WEIGHT = 'half_lm_loss', 0.5  # of the language model


class Classes(supervised.Supervised):
  """Classes of texts or pairs, or numbers, whose `labels` are ()."""

  name = 'classification'
  pipeline, auto = 'text-classification', 'SequenceClassification'
  counts_words = True

  def list_labels(self, source, contents):
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
    numbers, facts = None, tables.list_facts(content)
    if all(x.label for x in content.units):
      numbers = examples.number_labels(content, labels)
      said = f'labels from {numbers.min():,} to {numbers.max():,}'
      if labels:
        counts = np.bincount(numbers, minlength=len(labels))
        said = tables.describe_counts(labels, counts)
      facts['counts'].append(said)
    encoded = encode.encode_texts(how, content.texts, content.pairs)
    blank = np.int32(0) if labels else np.float32(0)
    ids = [x.id for x in content.units]
    return encode.Rows(encoded, numbers, blank=blank, ids=ids), facts

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


class LabelSets(supervised.Supervised):
  """Sets of labels; predictions are `probabilities` and `chosen`, [N, C]."""

  name = 'multi_label'
  pipeline, auto = 'text-classification', 'SequenceClassification'
  predicts = 'any number of {:,} labels, which `config.json` lists'
  constant = 'the labels that have the best micro F1 together'
  tuned = 'a text has a label if its probability is above {:.3f}'

  def read(self, path, columns, labelled, asked=splits.FIELDS):
    table = table_files.read(path)
    return examples.read_lists(table, columns, labelled, asked)

  def list_labels(self, source, contents):
    labels = examples.list_classes(contents['train'].flatten())
    if not labels:
      raise errors.UserError(
        f'{source.input} has no training row with a label; is it in '
        f'data.label={source.columns.label}?'
      )
    return labels

  def encode(self, how, content, labels, split=''):
    encoded = encode.encode_texts(how, content.texts, content.pairs)
    facts, truth = tables.list_facts(content), None
    if all(x.label != '' for x in content.units):
      sizes = [len(x.label) for x in content.units]
      numbers = examples.number_labels(content.flatten(), labels)
      truth = np.zeros((len(sizes), len(labels)), np.int32)
      truth[np.repeat(np.arange(len(sizes)), sizes), numbers] = 1
      facts['counts'] += [
        f'{np.mean(sizes):.2f} labels per row',
        tables.describe_counts(labels, truth.sum(0)),
      ]
    blank = np.zeros(len(labels), np.int32)
    return encode.Rows(encoded, truth, blank=blank), facts

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
      counts = metrics.count_sets(truth, chosen)
      return {'metrics': metrics.score_sums(counts, metrics.divide_sets)}
    return metrics.compare_sets(labels, truth, chosen)

  def find_problem(self, scored, predicted):
    _, sets = np.unique(predicted['chosen'], axis=0, return_inverse=True)
    # What is not finite stays so.
    sets = sets.ravel() + 0 * predicted['probabilities'].sum(1)
    return metrics.find_problem(scored, sets)


CLASSES, SETS = Classes(), LabelSets()


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
