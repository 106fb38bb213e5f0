"""What every run of fine-tuning leaves: scores, predictions, an export."""

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning import card, exporting, metrics, task_data
from bert_jax.inference import fine_tuned
from bert_jax.interop import hf_export
from bert_jax.model import bert_config, classifier, parameters
from bert_jax.runtime import files
from bert_jax.workdir import fingerprint, paths


class Run(NamedTuple):
  """A trained model and its data.

  Attributes:
    config: the experiment.
    directory: the prepared data.
    workdir: the run's directory.
    data: the content of `directory`.
    bert: the config of its encoder.
    module: the model.
    params: trained parameters, without padding rows of the vocabulary.
  """

  config: config_dict.ConfigDict
  directory: str
  workdir: str
  data: task_data.Data
  bert: bert_config.BertConfig
  module: nn.Module
  params: Any

  @property
  def unseen(self) -> dict[str, Any]:
    """Returns the splits that the model was not trained on."""
    return {name: x for name, x in self.data.splits.items() if name != 'train'}


def open_run(
  form: task_data.Format,
  config: config_dict.ConfigDict,
  directory: str,
  workdir: str,
  params: Any,
) -> Run:
  """Returns a run that has ended; params may have padding rows."""
  data, bert = task_data.read(form, directory), config_lib.model_config(config)
  params = parameters.drop_padding_rows(params, bert.vocab_size)
  module = fine_tuned.make_module(config, bert)
  return Run(config, directory, workdir, data, bert, module, params)


def score(
  names: Sequence[str], data: task_data.Data, predicted: dict[str, np.ndarray]
) -> dict[str, Any]:
  """Returns the scores of the labelled splits.

  Args:
    names: of the metrics, see `metrics.METRICS`; the first is to compare by.
    data: the run's data, whose splits have `labels`, classes or numbers [R].
    predicted: {split: the same of the model}.

  Returns:
    `metrics`, `intervals` (bootstrap, 95 %) and `baseline` (the commonest class
    or the mean of the training labels) of `dev`, each {metric: value}; `problem`
    (see `metrics.find_problem`); `counts`, rows per split; `other`, the first
    three for further splits with labels.
  """
  train = data.splits['train'].labels
  scored = {}
  for split, found in predicted.items():
    truth = data.splits[split].labels
    if truth is None:
      continue
    constant = metrics.predict_constant(train, len(truth))
    scored[split] = {
      'metrics': metrics.score(names, truth, found),
      'intervals': metrics.find_intervals(names, truth, found),
      'baseline': metrics.score(names, truth, constant),
    }
  dev = scored.pop('dev')
  problem = metrics.find_problem(
    names[0], dev['metrics'], dev['baseline'], predicted['dev']
  )
  counts = {name: split.size for name, split in data.splits.items()}
  return dev | {'problem': problem, 'counts': counts, 'other': scored}


def write_results(run: Run, scores: dict[str, Any]) -> dict[str, Any]:
  """Writes `results.json`: scores and what run they are of; returns both."""
  c = run.config
  results = scores | {
    'task': c.finetuning.glue or c.task,
    'init_from': c.init_from,
    'seed': c.seed,
    'steps': sum(c.phases.steps),
    # Of the parameters alone, without the optimizer's state.
    'fingerprint': fingerprint.combine(fingerprint.of_arrays(run.params)),
  }
  files.write_json(paths.results(run.workdir), results)
  return results


def write_predictions(
  run: Run, extensions: tuple[str, ...], fill: Callable[[str], None]
):
  """Writes `predictions/`; earlier files with the extensions are replaced."""
  directory = os.path.join(run.workdir, 'predictions')
  old = os.listdir(directory) if os.path.isdir(directory) else []
  allowed = [name for name in old if name.endswith(extensions)]
  files.write_folder(directory, allowed, fill)


def export(
  run: Run,
  results: dict[str, Any],
  columns: Sequence[str] = (),
  spans: classifier.Spans | None = None,
) -> str | None:
  """Writes `export/`, if transformers has such a model.

  Args:
    run: the run.
    results: from `write_results`.
    columns: names of the columns that hold the texts.
    spans: how answers are found, if that is the task.

  Returns:
    Why there is no export; None if it was written.
  """
  labels = run.data.labels
  head = exporting.make_head(run.config, run.params, labels, columns, spans)
  problem = exporting.find_problem(run.config, head)
  if problem:
    return problem
  size = sum(x.size for x in jax.tree.leaves(run.params))
  hf_export.export(
    paths.export(run.workdir),
    {name: x for name, x in run.params.items() if name != 'classifier'},
    run.bert,
    False,
    manifest_lib.load_tokenizer(run.directory),
    card.make_card(run.config, labels, results, size),
    head,
  )
  return None


def describe_scores(results: dict) -> list[str]:
  """Returns the scores as lines to print."""
  lines = ['']
  named = {'dev': results} | results['other']
  for split, x in named.items():
    for name, value in x['metrics'].items():
      low, high = x['intervals'][name]
      lines.append(
        f'{split} {name} {value:.4f} [{low:.4f}, {high:.4f}], a constant gets '
        f'{x["baseline"][name]:.4f}'
      )
  if results['problem']:
    lines.append(f'WARNING: {results["problem"]}')
  return lines


def tell(
  run: Run,
  lines: Sequence[str],
  problem: str | None,
  more: Sequence[tuple[str, str]] = (),
):
  """Prints the scores, where everything is, and how to predict.

  Args:
    run: the run.
    lines: what the scores are.
    problem: from `export`.
    more: (name, meaning) of further files in the run's directory.
  """
  for line in lines:
    print(line)
  written = [('results.json', 'the scores'), ('predictions', 'of every row')]
  if problem is None:
    written.append(('export', 'the model, for Hugging Face transformers'))
  for name, meaning in [*written, *more]:
    print(f'  {os.path.join(run.workdir, name)}: {meaning}')
  if problem:
    print(f'  no export: {problem}', flush=True)
  if run.config.finetuning.features != fine_tuned.NO_FEATURES:
    return  # what was trained is a head alone, which predicts nothing
  model = run.workdir if problem else paths.export(run.workdir)
  print(
    f'\nnext:\n  python -m bert_jax.predict --model={shlex.quote(model)} '
    '--input=FILE --output=FILE',
    flush=True,
  )
