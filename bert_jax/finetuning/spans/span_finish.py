"""Finishes a run on spans: answers, scores, the threshold, an export."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.finetuning import metrics, outcome, task_data
from bert_jax.finetuning.spans import span_answers, span_data, span_metrics
from bert_jax.runtime import files


def finish(run: outcome.Run):
  """Scores the splits with answers, writes answers and exports the model."""
  settings, answers = span_data.get_settings(run.config), {}
  for name, ranked in run.kept.items():  # dev first, which has the threshold
    split = run.data.splits[name]
    found = span_answers.choose(split, ranked, settings, tune=name == 'dev')
    settings = settings._replace(threshold=found.threshold)
    answers[name] = found
  outcome.leave(
    run,
    make_results(run.data, answers),
    lambda new: _write_predictions(new, run.data, answers),
    '.json',
    describe=describe,
    spans=settings,
  )


def make_results(
  data: task_data.Data, answers: dict[str, span_answers.Answers]
) -> dict[str, Any]:
  """Returns the scores of the splits whose right answers are known.

  Args:
    data: the run's data.
    answers: {split: those of the model}.

  Returns:
    What `metrics.compare` returns for `dev`, beside the commonest training answer
    or, where questions may have none, no answer; `threshold`, tuned on dev, or
    None; `problem` (see `metrics.find_problem`); `counts`, questions per split;
    `other`, the first for a test set with answers.
  """
  threshold = answers['dev'].threshold
  constant = span_answers.predict_constant(
    data.splits['train'], threshold is not None
  )
  scored = {}
  for name, found in answers.items():
    if found.scores is None:
      continue
    scored[name] = compare(data.splits[name], found, constant)
  dev = scored.pop('dev')
  return dev | {
    'threshold': threshold,
    'problem': _find_problem(dev, answers['dev']),
    'counts': {name: len(x.ids) for name, x in data.splits.items()},
    'other': scored,
  }


def compare(
  split: span_data.Split, found: span_answers.Answers, constant: str
) -> dict[str, Any]:
  """Returns `span_answers.compare` of a split's answers and a constant one."""
  nothing = span_metrics.score([constant] * len(split.ids), split.answers)
  return span_answers.compare(found.scores, nothing)


def _find_problem(dev, answers) -> str | None:
  logits = [x.scores[0] for x in answers.candidates if x.texts]
  if not logits:
    return 'no answer has a finite score'
  different = np.unique(answers.texts, return_inverse=True)[1]
  return metrics.find_problem('f1', dev, different)


def describe(named: dict[str, dict]) -> list[str]:
  """Returns {split: its scores} as lines to print."""
  lines, threshold = outcome.describe_scores(named), named['dev']['threshold']
  if threshold is not None:
    lines.append(
      f'a question has no answer where that scores more than '
      f'{threshold:.3f} above the best one (tuned on dev)'
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
