"""What every run of fine-tuning leaves: scores, predictions, an export."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import config_dict

import bert_jax
from bert_jax.config import flatten, model_config
from bert_jax.finetuning import (
  counted_words,
  metrics,
  starting,
  supervised,
  training,
)
from bert_jax.finetuning.readers import glue, table_files
from bert_jax.inference import fine_tuned, trained_length
from bert_jax.interop import hugging_face
from bert_jax.model import classifier, parameters
from bert_jax.runtime import cards, files
from bert_jax.trainer import task
from bert_jax.workdir import fingerprint, log, paths

_MOST = 20  # classes that a model card names
# Fields that the model depends on.
_RECIPE = re.compile(
  '(?!log|checkpoint|eval|profile|compute|mesh|objective|phases.max_pred|data)|'
  'data.(input|text|pair|label|choices|heldout|max_docu|vocab_size|lower|strip)'
)
_LOW, _HIGH = 0, 5  # the range of scores in STS-B


class Run(NamedTuple):
  """A trained model and what it predicts."""

  task: supervised.Supervised
  config: config_dict.ConfigDict
  workdir: str
  data: training.Data
  params: Any  # trained, without padding rows of the vocabulary
  predicted: dict[str, Any]  # by split, dev first
  settings: Any  # of the predictions, as tuned on dev, if there are any
  step: int  # of the parameters that are scored


def finish(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  data: training.Data,
  workdir: str,
  params: Any,
  predictions: dict[str, Any],
  step: int,
):
  """Writes what a run leaves, and prints a summary.

  `params` may have padding rows; `predictions` are what was kept of each split,
  with `task.HELD_OUT` for dev.
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
  files.write_json(paths.results(workdir), results)

  def fill(new):
    for name, x in predicted.items():
      this.write_split(new, name, data.labels, data.splits[name], x)

  directory = os.path.join(workdir, 'predictions')
  files.write_folder(directory, [f'*{this.extension}'], fill)
  written = {'results.json': 'the scores', 'predictions': 'of every row'}
  problem = _export(run, results)
  if problem is None:
    written['export'] = 'the model, for Hugging Face transformers'
  name = config.finetuning.glue
  if name and write_submission(name, workdir, data, predicted):
    written['submission'] = "files for GLUE's leaderboard"
  _tell(run, results, problem, written)


def score(run: Run) -> dict[str, Any]:
  """Returns the content of `results.json`.

  What `Supervised.compare` returns for `dev`; `problem`, why the run learnt nothing;
  `counts`, predictions per split; `other`, scores of further splits; and more.
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
    **(_count_words(run, names) if this.counts_words else {}),
    'task': c.finetuning.glue or this.name,
    'init_from': c.init_from,
    'seed': c.seed,
    'steps': sum(c.phases.steps),
    'select': c.finetuning.select,
    'step': run.step,
    # Of the parameters alone, without the optimizer's state.
    'fingerprint': fingerprint.combine(fingerprint.of_arrays(run.params)),
  }


def _count_words(run, names) -> dict[str, dict]:
  """Returns what counting words gets on dev, compared with the model, as `compare`.

  `doubt` is the share of resamples in which it does as well as the model,
  `problem` says so, and `rows` are those that it learnt from.
  """
  truth, train = (run.data.splits[x].labels for x in ('dev', 'train'))
  words, rows = counted_words.predict(names[0], run.data)
  scored = metrics.compare(names, truth, words, train)
  chosen = run.predicted['dev']['chosen']
  model = metrics.compare(names[:1], truth, chosen, train, words)
  problem = metrics.describe_doubt(model, 'counting words')
  about = {'doubt': model['doubt'], 'problem': problem, 'rows': rows}
  return {'counted_words': scored | about}


def _export(run, results) -> str | None:
  """Writes `export/` if transformers has such a model; else returns why not."""
  config, data, params = run.config, run.data, run.params
  head = classifier.Head(
    params['classifier']['kernel'],
    params['classifier']['bias'],
    data.labels,
    config.finetuning.max_length,
    training.list_columns(run.task, config),
    task=run.task.name,
    bilstm=params.get('bilstm'),
    form=config.finetuning.form,
    settings=run.settings,
    transform=params.get('head'),
  )
  if not run.task.auto:
    return f'transformers has no class for {run.task.name}'
  if config.finetuning.features != fine_tuned.NO_FEATURES:
    return (
      'only a head was trained, on features of frozen models, and transformers '
      'has no class for it'
    )
  if problem := hugging_face.find_problem(model_config(config), head):
    return problem
  own = 'classifier', 'head'
  size = sum(x.size for x in jax.tree.leaves(params))
  facts = log.find_facts(log.read(paths.metrics(run.workdir)))
  hugging_face.export(
    paths.export(run.workdir),
    {name: x for name, x in params.items() if name not in own},
    model_config(config),
    data.tokenizer,
    make_card(run.task, config, data.labels, results, size),
    head,
    trained_length.find(
      config.phases, config.model.max_positions, run.step, facts
    ),
  )
  return None


def _tell(run, results, problem, written: dict[str, str]):
  advice = starting.advise(run.config, run.data.splits['train'].size)
  print('\n'.join(['', *list_findings(run.task, results, f'; {advice}')]))
  for name, meaning in written.items():
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


def list_findings(
  this: supervised.Supervised, results: dict[str, Any], advice: str = ''
) -> list[str]:
  """Returns what `results.json` says, as lines for the terminal and the card."""
  lines = this.describe_scores({'dev': results} | results['other'])
  if results['select'] == 'best':
    lines.append(
      'of step {step:,} of {steps:,}, the best on dev, so dev is optimistic '
      '(finetuning.select=best)'.format_map(results)
    )
  if results['problem']:
    lines.append(f'WARNING: {results["problem"]}{advice}')
  if words := results.get('counted_words'):
    shown = ', '.join(
      '{} {:.4f} [{:.4f}, {:.4f}]'.format(name, x, *words['intervals'][name])
      for name, x in words['metrics'].items()
    )
    rows = f'{words["rows"]:,} training rows'
    lines.append(f'counting words gets on dev {shown}, from {rows}')
    if words['problem']:
      lines.append(f'WARNING: {words["problem"]}')
  return lines


def make_card(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  labels: Sequence[str],
  results: dict,
  parameters: int,
) -> str:
  """Returns the model card, in Markdown with Hugging Face's metadata."""
  name = config.finetuning.glue or cards.name_paths(config.data.input)
  fields = {x: y for x, y in flatten(config).items() if _RECIPE.match(x)}
  predicts = this.predicts.format(len(labels))
  if not predicts and len(labels) > _MOST:
    predicts = f'one of {len(labels):,} classes, which `config.json` lists'
  facts = {
    'parameters': parameters,
    'started from': cards.name_paths(config.init_from) or 'random weights',
    **{f'{this.counted} of {x}': n for x, n in results['counts'].items()},
    'predicts': predicts or ', '.join(f'`{x}`' for x in labels) or 'a number',
    'bert_jax': bert_jax.__version__,
  }
  lines = [f'* {x}' for x in list_findings(this, results)]
  notes = f"""The constant is {this.constant}. Intervals are of 95 %, by bootstrap over \
the {this.unit}s, of one seed; what was tuned on dev, transformers does not apply."""
  sections = {
    'Model': cards.list_facts(facts),
    'Evaluation': '\n'.join([*lines, '', notes]),
    'Loading': cards.show_loading(
      f'AutoModelFor{this.auto}',
      'predict --model=THIS_FOLDER --input=FILE --output=FILE',
    ),
    'Recipe': cards.list_fields(fields),
  }
  bert = 'ModernBERT' if config.model.body == 'modern' else 'BERT'
  card = cards.make_card(f'{bert} fine-tuned on {name}', sections)
  return cards.make_metadata(this.pipeline, bert) + card


def write_submission(
  name: str, workdir: str, data: Any, predicted: Mapping[str, dict]
) -> bool:
  """Writes a task's predictions for its test files, if it has any."""
  known = glue.TASKS[name]
  names = {x: y for x, y in known.submissions.items() if x in predicted}

  def fill(new):
    for split, file in names.items():
      chosen = predicted[split]['chosen']
      if data.labels:
        shown = [data.labels[i] for i in chosen]
      else:
        shown = [f'{x:.3f}' for x in np.clip(chosen, _LOW, _HIGH)]
      rows = zip(data.splits[split].ids, shown, strict=True)
      table = [('index', 'prediction'), *rows]
      table_files.write_table(os.path.join(new, file), table)

  if names:
    folder = os.path.join(workdir, 'submission')
    files.write_folder(folder, list(known.submissions.values()), fill)
  return bool(names)
