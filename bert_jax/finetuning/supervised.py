"""What a task of fine-tuning has to define: files to rows, loss, predictions.

All else is done once, for every task: `training` reads and batches the rows,
`outcome` ends a run and `predictions` predicts for a file.
"""

import abc
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import encode, metrics, tables
from bert_jax.finetuning.readers import examples, splits, table_files
from bert_jax.inference import fine_tuned
from bert_jax.model import classifier
from bert_jax.ops import tied_decoder
from bert_jax.trainer import task

SUMS = 'cross_entropy', 'accuracy'  # of classes


class Supervised(abc.ABC):
  """A task of fine-tuning, without state: one instance is enough.

  By default, rows of a table have one label each, [N], and predictions are
  `chosen`, [N], maybe its `probability` and, for JSONL, all `logits`, [N, C].
  `f` is `config.finetuning`; `labels` name the model's outputs, () for a number.
  """

  name: str  # of config.task, or as `fine_tuned.name_task` returns it
  pipeline: str  # on Hugging Face's hub, for the model card
  auto = ''  # class of transformers after AutoModelFor; without, no export
  predicts = ''  # for the card; '' is one of the labels
  constant = (
    'the commonest class of training, or of the split if better; of numbers, the '
    'mean of training'
  )
  counted = 'rows'  # or 'words', for the card
  # What files hold and intervals resample, and what identifies it, to print.
  unit, place = 'row', 'line'
  extension = '.tsv'  # of its files in the folder `predictions`
  outputs: tuple[str, ...] = table_files.EXTENSIONS  # of `bert_jax.predict`
  # Columns that hold texts, of the first three of `splits.Columns`; and those
  # without which `bert_jax.predict` does nothing.
  columns, needed = 2, ('text',)
  cut = 'row'  # with which truncated rows are counted
  takes_keep = True  # whether --keep names columns of a file to copy
  takes_label = True  # whether --label names the labels of a file to score
  counts_words = False  # whether counting words is compared with the model
  tuned = ''  # what a threshold that is tuned on dev means, a format

  # From files to rows.

  def read(
    self,
    path: str,
    columns: splits.Columns,
    labelled: bool | None,
    asked: splits.Columns = splits.FIELDS,
  ) -> splits.Content:
    """Reads a file, whose columns the fields or flags `asked` have named.

    `labelled` is whether all rows need a label; None is if there are any.
    """
    table = table_files.read(path)
    return examples.choose_columns(table, columns, labelled, asked)

  @abc.abstractmethod
  def list_labels(
    self, source: splits.Source, contents: dict[str, splits.Content]
  ) -> Sequence[str]:
    """Returns the names of the outputs, () of a number or choices."""

  @abc.abstractmethod
  def encode(
    self,
    how: encode.How,
    content: splits.Content,
    labels: Sequence[str],
    split: str = '',
  ) -> tuple[encode.Rows, dict[str, Any]]:
    """Returns the rows of a split, '' for a file to predict for, and facts.

    `counts`, such as '12 rows', and maybe `warnings`, {what is wrong: names of
    units}.
    """

  # From rows to a loss.

  def list_shapes(
    self,
    f: config_dict.ConfigDict,
    module: nn.Module,
    phase: task.Phase,
    rows: int,
  ) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of the arrays of a batch."""
    return fine_tuned.list_inputs(rows, phase.seq_length) | {
      'labels': jax.ShapeDtypeStruct((rows,), jnp.int32),
      'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
    }

  def compute_sums(
    self,
    module: nn.Module,
    params: Any,
    batch: dict[str, jax.Array],
    key: jax.Array | None,
    settings: classifier.Spans | None = None,
  ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Returns ({metric: sum over a batch}, predictions: {'logits': [B, C]}).

    Without a key, there is no dropout. `settings` are the task's, untuned.
    """
    logits = apply(module, params, batch, key)
    return sum_classes(logits, batch), {'logits': logits}

  def list_sums(
    self, f: config_dict.ConfigDict, module: nn.Module
  ) -> tuple[tuple[str, ...], dict[str, Callable], float | None]:
    """Returns what `compute_sums` sums up.

    The sums over `label_weights`, the loss first; {name: (batch) -> its count} of
    further losses; and the loss of untrained parameters in nats, if known.
    """
    return SUMS, {}, math.log(module.outputs)

  def find_bias(self, rows: Any, count: int) -> np.ndarray:
    """Returns the first biases of a head, float32 [C], for `count` labels.

    They are the log frequencies, or the mean of numbers (0 labels), which in a
    small model's few updates the other weights would learn instead.
    """
    if not count:
      return np.array([np.mean(rows.labels)], np.float32)
    counts = np.bincount(rows.labels, minlength=count) + 1
    return np.log(counts / counts.sum()).astype(np.float32)

  # From predictions to scores.

  def decide(
    self, split: Any, kept: Any, settings: Any, tune: bool
  ) -> tuple[Any, Any]:
    """Returns what is predicted for a split of which `Rows.keep` kept `kept`.

    Also the `settings`, of `fine_tuned.get_settings`, tuned on it if `tune`.
    """
    return kept, settings

  @abc.abstractmethod
  def list_metrics(
    self, labels: Sequence[str], f: config_dict.ConfigDict | None = None
  ) -> Sequence[str]:
    """Returns the metrics that are asked for; the first decides."""

  def compare(
    self,
    names: Sequence[str],
    labels: Sequence[str],
    split: Any,
    predicted: Any,
    train: Any = None,
  ) -> dict[str, Any]:
    """Returns {'metrics': {name: value}} of the predictions for a labelled split.

    With rows to take a constant from, `train`, what `metrics.compare` does, and
    more, such as scores of single classes.
    """
    truth, chosen = split.labels, predicted['chosen']
    if train is None:
      return {'metrics': metrics.score(names, truth, chosen)}
    scored = metrics.compare(names, truth, chosen, train.labels)
    if not labels:
      return scored
    return scored | metrics.describe_classes(labels, truth, chosen)

  def find_problem(self, scored: dict[str, Any], predicted: Any) -> str | None:
    """Returns why predictions show that nothing was learnt, if they do."""
    return metrics.find_problem(scored, predicted['chosen'])

  def describe_scores(self, named: dict[str, dict]) -> list[str]:
    """Returns {split: its scores} as lines to print."""
    lines = []
    for split, x in named.items():
      lines += [
        '{} {} {:.4f} [{:.4f}, {:.4f}], a constant gets {:.4f}'.format(
          split, name, value, *x['intervals'][name], x['baseline'][name]
        )
        for name, value in x['metrics'].items()
      ]
      for kind, scores in x.get('kinds', {}).items():
        shown = [f'{name} {value:.4f}' for name, value in scores.items()]
        lines.append(f'  {split} {kind}: {", ".join(shown)}')
    if (threshold := named.get('dev', {}).get('threshold')) is not None:
      lines.append(f'{self.tuned.format(threshold)} (tuned on dev)')
    return lines

  # From predictions to files.

  def write_split(
    self,
    folder: str,
    name: str,
    labels: Sequence[str],
    split: Any,
    predicted: Any,
  ):
    """Writes the predictions for a split of a run into `predictions`.

    Here SPLIT.tsv: id, label if known, prediction and probabilities.
    """
    known = [{'id': x} for x in split.ids or range(split.size)]
    if split.labels is not None:
      truth = (tables.name(labels, x) for x in split.labels)
      known = [x | {'label': y} for x, y in zip(known, truth, strict=True)]
    path = os.path.join(folder, f'{name}.tsv')
    tables.write(path, tables.list_rows(labels, predicted), known)

  def write_given(self, job: Any, content: Any, split: Any, predicted: Any):
    """Writes the predictions for the file of a `predictions.Job`.

    Here a row for each row of the input, after the columns to keep.
    """
    head = job.model.head
    rows = tables.list_rows(head.labels, predicted)
    tables.write(job.output, rows, content.kept)
    if count := split.encoded.truncated:
      cut = errors.count(count, self.cut)
      print(f'truncated to {head.max_length} tokens: {cut}')
    if empty := content.list_empty():
      count = errors.count(len(empty), 'row')
      print(f'without text: {count}, the first in line {empty[0]}')


def apply(
  module: nn.Module,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array | None,
  method: str = '__call__',
) -> Any:
  """Returns a model's outputs, such as logits; key None turns dropout off."""
  return module.apply(
    {'params': params},
    batch,
    deterministic=key is None,
    rngs=None if key is None else {'dropout': key},
    method=method,
  )


def sum_classes(
  logits: jax.Array, batch: dict[str, jax.Array]
) -> dict[str, jax.Array]:
  """Returns the sums of logits [..., C] of classes over a batch."""
  labels, weights = batch['labels'], batch['label_weights']
  loss, hits = tied_decoder.sum_tokens(logits, labels, weights)
  return {'cross_entropy': loss, 'accuracy': hits}
