"""What every run of fine-tuning leaves: scores, predictions, an export."""

import os
import shlex
from typing import Any, NamedTuple

import jax
from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning import card, completion, supervised
from bert_jax.inference import fine_tuned
from bert_jax.interop import hf_export
from bert_jax.model import classifier, parameters
from bert_jax.runtime import files
from bert_jax.train import task
from bert_jax.workdir import fingerprint, paths


class Run(NamedTuple):
  """A trained model and what it predicts.

  Attributes:
    task: what was learnt.
    params: trained parameters, without padding rows of the vocabulary.
    found: {split: what was decided for it}, dev first.
    settings: how answers were found, if that is the task.
    step: of the parameters that are scored.
  """

  task: supervised.Supervised
  config: config_dict.ConfigDict
  workdir: str
  data: supervised.Data
  params: Any
  found: dict[str, Any]
  settings: classifier.Spans | None
  step: int


def finish(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  data: supervised.Data,
  workdir: str,
  params: Any,
  predictions: dict[str, Any],
  step: int,
):
  """Writes what a run leaves, and prints what that is.

  Args:
    params: trained parameters; may have padding rows.
    predictions: {split: what was kept}, with `task.HELD_OUT` for dev.
  """
  vocab_size = config_lib.model_config(config).vocab_size
  params = parameters.drop_padding_rows(params, vocab_size)
  kept = {'dev': predictions[task.HELD_OUT], **predictions}
  del kept[task.HELD_OUT]
  settings, found = this.get_settings(config), {}
  for name, x in kept.items():  # dev first, on which the settings are tuned
    split = data.splits[name]
    found[name], settings = this.decide(split, x, settings, name == 'dev')
  run = Run(this, config, workdir, data, params, found, settings, step)
  results = score(run)
  files.write_json(paths.results(workdir), results)
  directory = os.path.join(workdir, 'predictions')
  old = os.listdir(directory) if os.path.isdir(directory) else []
  allowed = [name for name in old if name.endswith(this.extension)]

  def fill(new):
    for name, x in found.items():
      this.write_split(new, name, data.labels, data.splits[name], x)

  files.write_folder(directory, allowed, fill)
  more = this.write_more(config, workdir, data, found)
  _tell(run, results, _export(run, results), more)


def score(run: Run) -> dict[str, Any]:
  """Returns the content of `results.json`.

  Returns:
    What `Supervised.compare` returns for `dev`; `problem`, why the run learnt
    nothing, or None; `counts`, predictions per split; `other`, the first for
    further splits with labels; and what run the scores are of.
  """
  this, data, c = run.task, run.data, run.config
  names = this.list_metrics(data.labels, c.finetuning.glue)
  train = data.splits['train']
  scored = {
    name: this.compare(names, data.labels, data.splits[name], found, train)
    for name, found in run.found.items()
    if data.splits[name].labels is not None
  }
  dev = scored.pop('dev')
  return {
    **dev,
    **this.list_results(run.settings),
    'problem': this.find_problem(names, dev, run.found['dev']),
    'counts': {name: split.count() for name, split in data.splits.items()},
    'other': scored,
    'task': c.finetuning.glue or c.task,
    'init_from': c.init_from,
    'seed': c.seed,
    'steps': sum(c.phases.steps),
    'select': c.finetuning.select,
    'step': run.step,
    # Of the parameters alone, without the optimizer's state.
    'fingerprint': fingerprint.combine(fingerprint.of_arrays(run.params)),
  }


def _export(run, results) -> str | None:
  """Writes `export/` if transformers has such a model; else returns why not."""
  config, head = run.config, make_head(run)
  problem = find_problem(run.task, config, head)
  if problem:
    return problem
  size = sum(x.size for x in jax.tree.leaves(run.params))
  hf_export.export(
    paths.export(run.workdir),
    {name: x for name, x in run.params.items() if name != 'classifier'},
    config_lib.model_config(config),
    manifest_lib.load_tokenizer(run.data.directory),
    card.make_card(run.task, config, run.data.labels, results, size),
    head,
  )
  return None


def make_head(run: Run) -> classifier.Head:
  """Returns the head of a run's parameters, and what it was trained on."""
  return classifier.Head(
    run.params['classifier']['kernel'],
    run.params['classifier']['bias'],
    run.data.labels,
    completion.find_max_length(run.config),
    run.task.list_columns(run.config),
    task=run.config.task,
    bilstm=run.params.get('bilstm'),
    form=run.config.finetuning.form,
    spans=run.settings,
  )


def find_problem(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  head: classifier.Head,
) -> str | None:
  """Returns why a run's model cannot be exported; None if it can."""
  if not this.card.auto:
    return f'transformers has no class for {this.name}'
  if config.finetuning.features != fine_tuned.NO_FEATURES:
    return (
      'only a head was trained, on features of frozen models, and transformers '
      'has no class for it'
    )
  return hf_export.find_problem(config_lib.model_config(config), head)


def _tell(run, results, problem, more):
  """Prints the scores, where everything is, and how to predict."""
  named = {'dev': results} | results['other']
  print('\n'.join(run.task.describe_scores(named)))
  if results['select'] == 'best':
    print(
      f'of step {run.step:,} of {results["steps"]:,}, the best on dev, so dev is '
      'optimistic (finetuning.select=best)'
    )
  if results['problem']:
    advice = completion.advise(run.config, run.data.splits['train'].size)
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
