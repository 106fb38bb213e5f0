"""What every run of fine-tuning leaves: scores, predictions, an export."""

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning import card, task_data
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
    bert: the model's config.
    params: trained parameters, without padding rows of the vocabulary.
  """

  config: config_dict.ConfigDict
  directory: str
  workdir: str
  data: task_data.Data
  bert: bert_config.BertConfig
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
  return Run(config, directory, workdir, data, bert, params)


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


def export(run: Run, results: dict[str, Any], columns: Sequence[str] = ()):
  """Writes `export/`, unless Hugging Face has no such model.

  Args:
    run: the run.
    results: from `write_results`.
    columns: names of the columns that hold the texts.
  """
  if run.bert.norm != 'post':
    return
  labels = run.data.labels
  head = classifier.Head(
    *(run.params['classifier'][name] for name in ('kernel', 'bias')),
    labels,
    max(run.config.phases.seq_length),
    tuple(columns),
    run.config.task,
  )
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


def tell(run: Run, lines: Sequence[str], more: Sequence[tuple[str, str]] = ()):
  """Prints the scores, where everything is, and how to predict.

  Args:
    run: the run.
    lines: what the scores are.
    more: (name, meaning) of further files in the run's directory.
  """
  exported = run.bert.norm == 'post'
  for line in lines:
    print(line)
  written = [('results.json', 'the scores'), ('predictions', 'of every row')]
  if exported:
    written.append(('export', 'the model, for Hugging Face transformers'))
  for name, meaning in [*written, *more]:
    print(f'  {os.path.join(run.workdir, name)}: {meaning}')
  if not exported:
    print('  no export: BERT of Hugging Face has no model with norm=pre')
  model = paths.export(run.workdir) if exported else run.workdir
  print(
    f'\nnext:\n  python -m bert_jax.predict --model={shlex.quote(model)} '
    '--input=FILE --output=FILE',
    flush=True,
  )
