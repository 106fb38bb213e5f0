"""What a task of fine-tuning has to define.

A task is one class, a `Supervised`, in one file: how the user's files become
rows, what is learnt from them, and how predictions are used. All else is done
once, for every task: `batches` puts the rows in order, `outcome` ends a run and
`predictions` predicts for a file.
"""

import abc
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import buckets, encode, metrics
from bert_jax.finetuning.readers import splits, table_files
from bert_jax.inference import fine_tuned
from bert_jax.model import classifier, losses, parameters
from bert_jax.tokenization import unknown
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.train import task, tuning

SUMS = 'cross_entropy', 'accuracy'  # of classes
_MOST = 20  # classes that a model card names


class Data(NamedTuple):
  """All that a run learns from and predicts.

  Attributes:
    splits: {name: rows of a split}.
    labels: names of the model's outputs, such as classes; () for a number.
    manifest: facts about the data, for `manifest.json`: `splits` has the facts
      about each split, with `rows`, `longest`, its longest row's tokens, and
      `sha256`, see `Rows.compute_sha256`.
  """

  splits: dict[str, encode.Rows]
  labels: tuple[str, ...]
  tokenizer: Tokenizer
  manifest: dict[str, Any]


class Supervised(abc.ABC):
  """A task of fine-tuning, without state: one instance is enough.

  Arguments and results are documented here, in a task only what is special.

  Attributes:
    name: the value of config.task, or as `fine_tuned.name_task` returns it.
    pipeline: its name on Hugging Face's hub, for the model card.
    auto: class of transformers after `AutoModelFor`; '' if it has none, so that
      nothing is exported.
    counted: noun of the card for what is counted.
    unit: the noun for what files hold and what is resampled for intervals.
    place: what identifies a unit, to print.
    extension: of its files in the folder `predictions`.
    outputs: extensions of the files that `bert_jax.predict` writes.
    takes_label: whether --label names the labels of a file to score.
    takes_keep: whether --keep names columns of a file to copy.
    tuned: what a threshold that is tuned on dev means, a format; '' if none is.
  """

  name: str
  pipeline: str
  auto = ''
  counted = 'rows'
  unit, place = 'row', 'line'
  extension = '.tsv'
  outputs: tuple[str, ...] = table_files.EXTENSIONS
  takes_label = True
  takes_keep = False
  tuned = ''

  # From files to rows.

  def read(self, config: config_dict.ConfigDict, tokenizer: Tokenizer) -> Data:
    """Reads and encodes the files of a config.

    Rows have at most max(config.phases.seq_length) tokens.
    """
    source = splits.get_source(config)
    read = splits.read(source, functools.partial(self.read_file, source))
    labels = self.list_labels(config, read)
    self.list_metrics(labels, config.finetuning)  # checks those asked for
    how = encode.How(
      tokenizer,
      max(config.phases.seq_length),
      config.finetuning.form,
      fine_tuned.get_settings(config),
    )
    rows, facts, repeated = {}, {}, splits.find_repeated(read)
    for split, content in read.items():
      rows[split], more = self.encode(how, content, labels, split)
      warnings = more.pop('warnings', {})
      ids, texts = rows[split].encoded.ids, list_texts(content)
      share, warning = unknown.examine(tokenizer, ids, texts, split)
      warnings[f'have the text of a training {self.unit}'] = repeated[split]
      facts[split] = {
        'path': content.path,
        'origin': content.origin or content.path,
        'rows': rows[split].size,
        'sha256': rows[split].compute_sha256(),
        'longest': int(rows[split].lengths.max()),
        'truncated': rows[split].encoded.truncated,
        'unknown': round(share, 6),
        'unknown_warning': warning,
        **more,
        'warnings': {
          what: {'count': len(names), 'first': names[0]}
          for what, names in warnings.items()
          if names
        },
      }
    unread = splits.list_unread(source)
    about = {'labels': list(labels), 'splits': facts, 'unread': unread}
    return Data(rows, tuple(labels), tokenizer, about)

  @abc.abstractmethod
  def read_file(
    self, source: splits.Source, split: str, path: str
  ) -> splits.Content:
    """Reads the file of a split."""

  @abc.abstractmethod
  def list_labels(
    self, config: config_dict.ConfigDict, read: dict[str, splits.Content]
  ) -> Sequence[str]:
    """Returns the names of the outputs; checks that labels are known."""

  @abc.abstractmethod
  def encode(
    self,
    how: encode.How,
    content: splits.Content,
    labels: Sequence[str],
    split: str = '',
  ) -> tuple[encode.Rows, dict[str, Any]]:
    """Returns what a file holds as rows, and facts about them.

    Args:
      split: its name; '' is a file to predict for.

    Returns:
      The rows; and `counts`, texts such as '12 rows', maybe `labels`, {class:
      its rows} or {'min', 'max'} of numbers, and `warnings`, {what is wrong:
      names of the units}.
    """

  def describe_data(self, manifest: dict) -> list[str]:
    """Returns a description of the data, as lines to print."""
    lines = []
    for name, x in manifest['splits'].items():
      parts = list(x['counts'])
      if labels := x.get('labels'):
        counts = [f'{label} ({n:,})' for label, n in labels.items()]
        shown = errors.listing(counts, most=10)
        if not manifest['labels']:
          shown = 'from {min:,} to {max:,}'.format(**labels)
        parts.append(f'labels {shown}')
      parts.append(f'longest {x["longest"]} tokens')
      if x['truncated']:
        parts.append(f'{x["truncated"]:,} truncated')
      if x['unknown']:
        parts.append(f'{x["unknown"]:.2%} of the tokens unknown')
      lines.append(f'{name}: {", ".join(parts)} ({x["origin"]})')
      lines += [
        f'WARNING: {name}: {errors.count(wrong["count"], self.unit)} {what}; '
        f'the first is {self.place} {wrong["first"]} of {x["path"]}'
        for what, wrong in x['warnings'].items()
      ]
      lines += filter(None, [x['unknown_warning']])
    if unread := manifest['unread']:
      lines.append(f'not read: {errors.listing(unread)}')
    return lines

  def list_columns(self, config: config_dict.ConfigDict) -> tuple[str, ...]:
    """Returns the columns that hold the texts, as `classifier.Head.columns`."""
    return ()

  # From rows to a loss.

  def list_shapes(
    self,
    config: config_dict.ConfigDict,
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
    self, config: config_dict.ConfigDict, module: nn.Module
  ) -> tuple[tuple[str, ...], dict[str, Callable], float | None]:
    """Returns what `compute_sums` sums up.

    Returns:
      Names of the sums over `label_weights`, the first of which is the loss;
      {name: (batch) -> its count} of further losses; and the first loss of
      untrained parameters in nats, None if unknown.
    """
    return SUMS, {}, math.log(module.outputs)

  def find_bias(self, rows: Any, count: int) -> np.ndarray:
    """Returns first biases of a head, float32 [C]; `count` is 0 for numbers.

    They are the labels' log frequencies, or the mean of numbers. With a small
    model's few updates, biases of 0 would still be far from what is right on
    average, and its other weights would learn that instead.
    """
    if not count:
      return np.array([np.mean(rows.labels)], np.float32)
    counts = np.bincount(rows.labels, minlength=count) + 1
    return np.log(counts / counts.sum()).astype(np.float32)

  # From predictions to scores.

  def decide(
    self, split: Any, kept: Any, settings: classifier.Spans | None, tune: bool
  ) -> tuple[Any, classifier.Spans | None]:
    """Returns what is predicted for a split, and by which settings.

    Args:
      kept: what `Rows.keep` kept of their predictions.
      settings: of `fine_tuned.get_settings`, or as tuned on dev.
      tune: whether to tune them on these rows.
    """
    return kept, settings

  @abc.abstractmethod
  def list_metrics(
    self, labels: Sequence[str], asked: config_dict.ConfigDict | None = None
  ) -> Sequence[str]:
    """Returns the metrics that `config.finetuning` asks for; the first decides."""

  @abc.abstractmethod
  def measure(
    self,
    names: Sequence[str],
    labels: Sequence[str],
    split: Any,
    predicted: Any,
  ) -> dict[str, float]:
    """Returns {metric: value} of the predictions for a labelled split."""

  @abc.abstractmethod
  def compare(
    self,
    names: Sequence[str],
    labels: Sequence[str],
    split: Any,
    predicted: Any,
    train: Any,
  ) -> dict[str, Any]:
    """Scores the predictions for a labelled split, compared with a constant.

    Args:
      train: the rows from which the constant is taken.

    Returns:
      As `metrics.compare`, and more, such as scores of single classes.
    """

  def find_problem(self, scored: dict[str, Any], predicted: Any) -> str | None:
    """Returns why predictions show that nothing was learnt, if they do."""
    return metrics.find_problem(scored, predicted['chosen'])

  # From predictions to files.

  @abc.abstractmethod
  def write_split(
    self,
    folder: str,
    name: str,
    labels: Sequence[str],
    split: Any,
    predicted: Any,
  ):
    """Writes the predictions for a split of a run into `predictions`."""

  def write_more(
    self,
    config: config_dict.ConfigDict,
    workdir: str,
    data: Data,
    predicted: dict,
  ) -> list[tuple[str, str]]:
    """Writes further files of a run; returns (name, meaning) of each."""
    return []

  def describe_scores(self, named: dict[str, dict]) -> list[str]:
    """Returns {split: its scores} as lines to print."""
    lines = ['']
    for split, x in named.items():
      for name, value in x['metrics'].items():
        low, high = x['intervals'][name]
        lines.append(
          f'{split} {name} {value:.4f} [{low:.4f}, {high:.4f}], a constant gets '
          f'{x["baseline"][name]:.4f}'
        )
    if (threshold := named.get('dev', {}).get('threshold')) is not None:
      lines.append(f'{self.tuned.format(threshold)} (tuned on dev)')
    return lines

  def describe_prediction(
    self, config: config_dict.ConfigDict, labels: Sequence[str]
  ) -> str:
    """Returns what the model predicts, for its card."""
    if len(labels) > _MOST:
      return f'one of {len(labels):,} classes, which `config.json` lists'
    return ', '.join(f'`{label}`' for label in labels) or 'a number'

  def describe_constant(
    self, config: config_dict.ConfigDict, labels: Sequence[str]
  ) -> str:
    """Describes, for the card, the constant that scores are compared with."""
    return (
      'always predicts the commonest of training, or of the split if better'
    )

  # Predictions for a user's file.

  @abc.abstractmethod
  def read_given(self, job: Any) -> splits.Content:
    """Reads the file of a `predictions.Job`, with labels if asked for."""

  @abc.abstractmethod
  def write_given(
    self, job: Any, content: splits.Content, split: Any, predicted: Any
  ):
    """Writes the predictions for a job's file."""


def make_objective(
  this: Supervised, config: config_dict.ConfigDict
) -> task.Objective:
  """Returns the part of a task that needs no data."""
  module = fine_tuned.make_module(config, tuning.model_config(config))

  shapes = functools.partial(this.list_shapes, config, module)
  sums, more, expected = this.list_sums(config, module)
  settings = fine_tuned.get_settings(config)
  init = functools.partial(parameters.init, module)
  if config.init_from:
    init = parameters.skip_layers(init, fine_tuned.list_new_layers(config))

  lengths = task.use_longest
  if config.finetuning.by_length:
    lengths = buckets.list_lengths

  def count_flops(phase):
    tokens = shapes(phase, phase.batch_size)['input_mask'].shape
    each = fine_tuned.count_flops(module, phase.seq_length)
    return math.prod(tokens[:-1]) * each

  def count(batch):
    counts = dict.fromkeys(sums, jnp.sum(batch['label_weights']))
    return counts | {name: f(batch) for name, f in more.items()}

  return task.Objective(
    init=init,
    losses=(*sums[:1], *more),
    counts=count,
    compute=functools.partial(this.compute_sums, module, settings=settings),
    batch_shapes=shapes,
    flops=count_flops,
    expected_loss=expected,
    lengths=lengths,
  )


def list_texts(content: splits.Content) -> list[str]:
  """Returns all texts of a file."""
  keys = [key for _, key in content.list_keys()]
  return [x for key in keys for x in key if isinstance(x, str)]


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
  loss, hits = losses.sum_tokens(logits, labels, weights)
  return {'cross_entropy': loss, 'accuracy': hits}
