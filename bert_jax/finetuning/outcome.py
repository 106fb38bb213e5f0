"""What every run of fine-tuning leaves: scores, predictions, an export."""

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning import (
  card,
  exporting,
  metrics,
  recipe,
  task_data,
  tsv,
)
from bert_jax.inference import fine_tuned
from bert_jax.interop import hf_export
from bert_jax.model import bert_config, classifier, parameters
from bert_jax.runtime import files
from bert_jax.train import task
from bert_jax.workdir import fingerprint, paths


class Run(NamedTuple):
  """A trained model and its data.

  Attributes:
    config: the experiment.
    directory: the prepared data.
    workdir: the run's directory.
    data: the content of `directory`.
    bert: the config of its encoder.
    params: trained parameters, without padding rows of the vocabulary.
    kept: {split: what was kept of its predictions}, dev first.
    step: updates after which they were reached.
  """

  config: config_dict.ConfigDict
  directory: str
  workdir: str
  data: task_data.Data
  bert: bert_config.BertConfig
  params: Any
  kept: dict[str, Any]
  step: int


def open_run(
  form: task_data.Format,
  config: config_dict.ConfigDict,
  directory: str,
  workdir: str,
  params: Any,
  predictions: dict[str, Any],
  step: int,
) -> Run:
  """Returns a run that has ended; params may have padding rows.

  Args: as `tasks.Definition.finish`, and `form`, that of the data.
  """
  data, bert = task_data.read(form, directory), config_lib.model_config(config)
  params = parameters.drop_padding_rows(params, bert.vocab_size)
  kept = {'dev': predictions[task.HELD_OUT], **predictions}
  del kept[task.HELD_OUT]
  return Run(config, directory, workdir, data, bert, params, kept, step)


def leave(
  run: Run,
  scores: dict[str, Any],
  write: Callable[[str], None],
  extension: str,
  columns: Sequence[str] = (),
  describe: Callable[[dict[str, dict]], list[str]] | None = None,
  spans: classifier.Spans | None = None,
  more: Sequence[tuple[str, str]] = (),
):
  """Writes what a run leaves, and prints what that is.

  Args:
    run: the run.
    scores: those of dev and, under `other`, of further splits.
    write: writes the predictions into a folder.
    extension: that of their files.
    columns: names of the columns that hold the texts.
    describe: ({split: its scores}) -> lines to print; None is `describe_scores`.
    spans: how answers are found, if that is the task.
    more: (name, meaning) of further files in the run's directory.
  """
  results = _write_results(run, scores)
  directory = os.path.join(run.workdir, 'predictions')
  old = os.listdir(directory) if os.path.isdir(directory) else []
  allowed = [name for name in old if name.endswith(extension)]
  files.write_folder(directory, allowed, write)
  problem = _export(run, results, columns, spans)
  lines = (describe or describe_scores)({'dev': results} | results['other'])
  _tell(run, results, lines, problem, more)


def score(names: Sequence[str], run: Run) -> dict[str, Any]:
  """Returns the scores of the labelled splits of classes, choices or numbers.

  Args:
    names: of the metrics, see `metrics.score`; the first is to compare by.
    run: the run, which kept what is `chosen`.

  Returns:
    What `compare` returns for `dev`; `problem` (see `metrics.find_problem`);
    `counts`, rows per split; `other`, the first for further splits with labels.
  """
  data, train = run.data, run.data.splits['train'].labels
  scored = {}
  for split, found in run.kept.items():
    truth = data.splits[split].labels
    if truth is None:
      continue
    chosen = found['chosen']
    scored[split] = compare(names, data.labels, truth, chosen, train)
  dev = scored.pop('dev')
  problem = metrics.find_problem(names[0], dev, run.kept['dev']['chosen'])
  counts = {name: split.size for name, split in data.splits.items()}
  return dev | {'problem': problem, 'counts': counts, 'other': scored}


def compare(
  names: Sequence[str],
  labels: Sequence[str],
  truth: np.ndarray,
  predicted: np.ndarray,
  train: np.ndarray,
) -> dict[str, Any]:
  """Returns `metrics.compare` and, of classes, `metrics.describe_classes`.

  Args:
    names: as the others, see there.
    labels: names of the classes; () if there are none.
    truth: classes or numbers, [N].
    predicted: the same of the model.
    train: those of the training rows.
  """
  found = metrics.compare(names, truth, predicted, train)
  if not labels:
    return found
  return found | metrics.describe_classes(labels, truth, predicted)


def _write_results(run: Run, scores: dict[str, Any]) -> dict[str, Any]:
  """Writes `results.json`: scores and what run they are of; returns both."""
  c = run.config
  results = scores | {
    'task': c.finetuning.glue or c.task,
    'init_from': c.init_from,
    'seed': c.seed,
    'steps': sum(c.phases.steps),
    'select': c.finetuning.select,
    'step': run.step,  # of the parameters that are scored
    # Of the parameters alone, without the optimizer's state.
    'fingerprint': fingerprint.combine(fingerprint.of_arrays(run.params)),
  }
  files.write_json(paths.results(run.workdir), results)
  return results


def write_tables(folder: str, run: Run):
  """Writes SPLIT.tsv of classes, choices or numbers into a folder.

  The columns: id, label if known, prediction and, but of numbers, its probability.
  """
  labels = run.data.labels
  for name, found in run.kept.items():
    split = run.data.splits[name]
    columns = {'id': map(str, split.ids)}
    values_of = (('label', split.labels), ('prediction', found['chosen']))
    for column, values in values_of:
      if values is not None:
        columns[column] = (
          labels[x] if labels else tsv.format_number(x) for x in values
        )
    if 'probability' in found:
      columns['probability'] = map(tsv.format_number, found['probability'])
    rows = [tuple(columns), *zip(*columns.values(), strict=True)]
    tsv.write(os.path.join(folder, f'{name}.tsv'), rows)


def _export(run, results, columns, spans) -> str | None:
  """Writes `export/` if transformers has such a model; else returns why not."""
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


def describe_scores(named: dict[str, dict]) -> list[str]:
  """Returns {split: its scores} as lines to print."""
  lines = ['']
  for split, x in named.items():
    for name, value in x['metrics'].items():
      low, high = x['intervals'][name]
      lines.append(
        f'{split} {name} {value:.4f} [{low:.4f}, {high:.4f}], a constant gets '
        f'{x["baseline"][name]:.4f}'
      )
  return lines


def _tell(run, results, lines, problem, more):
  """Prints the scores, where everything is, and how to predict."""
  for line in lines:
    print(line)
  if results['select'] == 'best':
    print(
      f'of step {run.step:,} of {results["steps"]:,}, the best on dev, so dev is '
      'optimistic (finetuning.select=best)'
    )
  if results['problem']:
    advice = recipe.advise(run.config, run.data.splits['train'].size)
    print(f'WARNING: {results["problem"]}; {advice}')
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
