"""Finishes a run on spans: answers, scores, the threshold, an export."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import metrics, outcome, task_data
from bert_jax.finetuning.spans import (
  answering,
  span_answers,
  span_data,
  span_metrics,
)
from bert_jax.runtime import files


def finish(
  config: config_dict.ConfigDict, directory: str, workdir: str, params: Any
):
  """Answers every split, scores those with answers, and exports the model.

  Args:
    config: the experiment.
    directory: the prepared data.
    workdir: the run's directory, which gets `results.json`, `predictions/` and
      `export/`.
    params: trained parameters, with padding rows of the vocabulary.
  """
  run = outcome.open_run(span_data.FORMAT, config, directory, workdir, params)
  settings = span_data.get_settings(config)
  answers = {}
  for name, split in run.unseen.items():  # dev first, which has the threshold
    ranked = answering.rank_windows(
      run.params,
      run.module,
      split.windows,
      run.data.pad_id,
      settings.max_answer_length,
      f'answering {name}',
    )
    found = span_answers.choose(split, ranked, settings, tune=name == 'dev')
    settings = settings._replace(threshold=found.threshold)
    answers[name] = found
  results = outcome.write_results(run, make_results(run.data, answers))
  outcome.write_predictions(
    run, ('.json',), lambda new: _write_predictions(new, run.data, answers)
  )
  problem = outcome.export(run, results, spans=settings)
  outcome.tell(run, describe(results), problem)


def make_results(
  data: task_data.Data, answers: dict[str, span_answers.Answers]
) -> dict[str, Any]:
  """Returns the scores of the splits whose right answers are known.

  Args:
    data: the run's data.
    answers: {split: those of the model}.

  Returns:
    `metrics`, `intervals` (95 %, over questions) and `baseline` (the commonest
    training answer or, where questions may have none, no answer) of `dev`, each
    {metric: value}; `threshold`, tuned on dev, or None; `problem` (see
    `metrics.find_problem`); `counts`, questions per split; `other`, the first
    three for a test set with answers.
  """
  threshold = answers['dev'].threshold
  constant = span_answers.predict_constant(
    data.splits['train'], threshold is not None
  )
  scored = {}
  for name, found in answers.items():
    if found.scores is None:
      continue
    right = data.splits[name].answers
    nothing = span_metrics.score([constant] * len(right), right)
    scored[name] = {
      'metrics': span_answers.summarise(found.scores),
      'intervals': span_answers.find_intervals(found.scores),
      'baseline': span_answers.summarise(nothing),
    }
  dev = scored.pop('dev')
  return dev | {
    'threshold': threshold,
    'problem': _find_problem(dev, answers['dev']),
    'counts': {name: len(x.ids) for name, x in data.splits.items()},
    'other': scored,
  }


def _find_problem(dev, answers) -> str | None:
  logits = [x.scores[0] for x in answers.candidates if x.texts]
  if not logits:
    return 'no answer has a finite score'
  different = np.unique(answers.texts, return_inverse=True)[1]
  return metrics.find_problem('f1', dev['metrics'], dev['baseline'], different)


def describe(results: dict) -> list[str]:
  """Returns the scores as lines to print."""
  lines = outcome.describe_scores(results)
  if results['threshold'] is not None:
    lines.append(
      f'a question has no answer where that scores more than '
      f'{results["threshold"]:.3f} above the best one (tuned on dev)'
    )
  return lines


def _write_predictions(new, data, answers):
  """Writes the three files of Google's run_squad.py for each split."""
  for name, found in answers.items():
    ids, unanswerable = data.splits[name].ids, found.threshold is not None
    candidates = found.candidates
    written = {
      'predictions': found.texts,
      'nbest_predictions': [
        span_answers.list_best(x, unanswerable) for x in candidates
      ],
    }
    if unanswerable:
      written['null_odds'] = [x.odds for x in candidates]
    for kind, values in written.items():
      write_answers(os.path.join(new, f'{name}.{kind}.json'), ids, values)


def write_answers(path: str, ids: Sequence[str], values: Sequence[Any]):
  """Writes {id of a question: value}, as the evaluation scripts read it."""
  files.write_json(path, dict(zip(ids, values, strict=True)))
