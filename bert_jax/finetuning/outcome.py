"""What every run of fine-tuning leaves: scores, predictions, an export."""

import json
import os
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from ml_collections import config_dict

import bert_jax
from bert_jax import errors
from bert_jax.config import flatten, model_config
from bert_jax.finetuning import completion, supervised
from bert_jax.inference import fine_tuned, trained_length
from bert_jax.interop import hugging_face
from bert_jax.model import classifier, parameters
from bert_jax.runtime import files, markdown
from bert_jax.train import task
from bert_jax.workdir import fingerprint, log, paths

# Sections of the config that the model does not depend on.
_LEFT_OUT = ('log.', 'checkpoint.', 'eval.', 'profile_steps', 'compute.')


class Run(NamedTuple):
  """A trained model and what it predicts.

  Attributes:
    task: what was learnt.
    params: trained parameters, without padding rows of the vocabulary.
    predicted: {split: predictions for it}, dev first.
    settings: how answers were found, if that is the task.
    step: of the parameters that are scored.
  """

  task: supervised.Supervised
  config: config_dict.ConfigDict
  workdir: str
  data: supervised.Data
  params: Any
  predicted: dict[str, Any]
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
  """Writes what a run leaves, and prints a summary.

  Args:
    params: trained parameters; may have padding rows.
    predictions: {split: what was kept}, with `task.HELD_OUT` for dev.
  """
  vocab_size = model_config(config).vocab_size
  params = parameters.drop_padding_rows(params, vocab_size)
  kept = {'dev': predictions[task.HELD_OUT], **predictions}
  del kept[task.HELD_OUT]
  settings, predicted = fine_tuned.get_settings(config), {}
  for name, x in kept.items():  # dev first, on which the settings are tuned
    split = data.splits[name]
    predicted[name], settings = this.decide(split, x, settings, name == 'dev')
  run = Run(this, config, workdir, data, params, predicted, settings, step)
  results = score(run)
  path = paths.results(workdir)
  with errors.explaining(f'cannot write {path}'):
    files.write_json(path, results)

  def fill(new):
    for name, x in predicted.items():
      this.write_split(new, name, data.labels, data.splits[name], x)

  directory = os.path.join(workdir, 'predictions')
  files.write_folder(directory, [f'*{this.extension}'], fill)
  more = this.write_more(config, workdir, data, predicted)
  _tell(run, results, _export(run, results), more)


def score(run: Run) -> dict[str, Any]:
  """Returns the content of `results.json`.

  Returns:
    What `Supervised.compare` returns for `dev`; `problem`, why the run learnt
    nothing, or None; `counts`, predictions per split; `other`, the scores of
    further splits with labels; and which run was scored.
  """
  this, data, c = run.task, run.data, run.config
  names = this.list_metrics(data.labels, c.finetuning)
  train = data.splits['train']
  scored = {
    name: this.compare(names, data.labels, data.splits[name], predicted, train)
    for name, predicted in run.predicted.items()
    if data.splits[name].labels is not None
  }
  dev = scored.pop('dev')
  return {
    **dev,
    **({'threshold': run.settings.threshold} if run.settings else {}),
    'problem': this.find_problem(dev, run.predicted['dev']),
    'counts': {name: split.count() for name, split in data.splits.items()},
    'other': scored,
    'task': c.finetuning.glue or this.name,
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
  if not run.task.auto:
    return f'transformers has no class for {run.task.name}'
  if config.finetuning.features != fine_tuned.NO_FEATURES:
    return (
      'only a head was trained, on features of frozen models, and transformers '
      'has no class for it'
    )
  if problem := hugging_face.find_problem(model_config(config), head):
    return problem
  size = sum(x.size for x in jax.tree.leaves(run.params))
  facts = log.find_facts(log.read(paths.metrics(run.workdir)))
  hugging_face.export(
    paths.export(run.workdir),
    {name: x for name, x in run.params.items() if name != 'classifier'},
    model_config(config),
    run.data.tokenizer,
    make_card(run.task, config, run.data.labels, results, size),
    head,
    trained_length.find(config, run.step, facts),
  )
  return None


def make_head(run: Run) -> classifier.Head:
  return classifier.Head(
    run.params['classifier']['kernel'],
    run.params['classifier']['bias'],
    run.data.labels,
    run.config.finetuning.max_length,
    run.task.list_columns(run.config),
    task=run.task.name,
    bilstm=run.params.get('bilstm'),
    form=run.config.finetuning.form,
    settings=run.settings,
  )


def _tell(run, results, problem, more):
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
    return  # only a head was trained, which predicts nothing alone
  model = run.workdir if problem else paths.export(run.workdir)
  print(
    f'\nnext:\n  python -m bert_jax.predict --model={shlex.quote(model)} '
    '--input=FILE --output=FILE',
    flush=True,
  )


def make_card(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  labels: Sequence[str],
  results: dict,
  parameters: int,
) -> str:
  """Returns the model card, in Markdown with Hugging Face's metadata."""
  name = config.finetuning.glue or config.data.input
  source = f'`{config.init_from}`' if config.init_from else 'random weights'
  head = ('split', this.counted, 'metric', 'value', '95 % interval', 'constant')
  recipe = [
    (field, f'`{json.dumps(value)}`')
    for field, value in flatten(config).items()
    if not field.startswith(_LEFT_OUT)
  ]
  problem = results['problem']
  parts = [
    _METADATA.format(this.pipeline),
    f'# BERT fine-tuned on {name}',
    f'{parameters:,} parameters, fine-tuned from {source} on '
    f'{results["counts"]["train"]:,} {this.counted} by bert_jax '
    f'{bert_jax.__version__}. It predicts '
    f'{this.describe_prediction(config, labels)}.',
    '## Evaluation',
    markdown.make_table(head, _list_scores(results)),
    f'Intervals are bootstrapped over the {this.unit}s, and at least as wide '
    "as Wilson's; another seed may differ by more. `constant` "
    f'{this.describe_constant(config, labels)}.'
    + (_BEST.format(**results) if results['select'] == 'best' else '')
    + (f' **Warning: {problem}.**' if problem else ''),
    '## How to load it',
    _LOADING.format(this.auto),
    *([_ANSWERING] if config.finetuning.unanswerable else []),
    *([_LABELLING] if config.finetuning.multi_label else []),
    '## Recipe',
    markdown.make_table(('field', 'value'), recipe),
  ]
  return '\n\n'.join(parts) + '\n'


_BEST = (
  ' The parameters are from step {step:,} of {steps:,}, which scored best on '
  'dev, so the scores on dev are a little too high.'
)

_METADATA = """---
# FILL IN the licence under which you publish this model, such as apache-2.0;
# the licences of the data and of the pre-trained model matter too.
license: unknown
library_name: transformers
pipeline_tag: {}
tags:
- bert
---"""

_LOADING = """```python
from transformers import AutoModelFor{0}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('THIS_FOLDER')
model = AutoModelFor{0}.from_pretrained('THIS_FOLDER')
```

Without transformers: `python -m bert_jax.predict --model=THIS_FOLDER
--input=FILE --output=FILE`."""

_LABELLING = """A text has the labels whose probabilities, which are sigmoids, are
above `model.config.task_specific_params['bert_jax']['threshold']`, tuned on dev.
A `pipeline('text-classification', ..., top_k=None)` of transformers gives the
probabilities, and leaves the threshold to you."""

_ANSWERING = """A question has no answer if having none outscores the best answer
by more than `task_specific_params['bert_jax']['spans']['threshold']` in
`config.json`, which was tuned on dev. transformers does not apply it;
docs/finetuning.md of bert_jax has code that does."""


def _list_scores(results) -> list[tuple]:
  return [
    (
      split,
      f'{results["counts"][split]:,}',
      metric,
      f'{value:.4f}',
      '{:.4f} to {:.4f}'.format(*x['intervals'][metric]),
      f'{x["baseline"][metric]:.4f}',
    )
    for split, x in ({'dev': results} | results['other']).items()
    for metric, value in x['metrics'].items()
  ]
