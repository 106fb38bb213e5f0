"""Predicts for files with a fine-tuned model, whatever its task."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.finetuning import (
  encode,
  gpt_form,
  outcome,
  predicted_rows,
  predictions,
  task_data,
)
from bert_jax.finetuning.choices import choice_data, choose
from bert_jax.finetuning.classes import class_data, classify
from bert_jax.finetuning.readers import conll, examples, squad, table_files
from bert_jax.finetuning.spans import (
  answering,
  span_answers,
  span_data,
  span_finish,
)
from bert_jax.finetuning.tags import tag, tag_data, tag_finish
from bert_jax.inference import fine_tuned, source
from bert_jax.runtime import files
from bert_jax.tokenization import offsets

# The flags that name the columns of a text, of a second text, of choices and of
# labels.
_ASKED = '--text', '--pair', '--choices', '--label'


class Job(NamedTuple):
  """What is to be predicted.

  Attributes:
    path: path of the model.
    model: the model.
    given: the file with the texts.
    output: the file to write.
    columns: of the text, of a second text and of choices; None is the training
      data's.
    batch_size: rows per batch.
    safe_cells: whether a table is to be harmless in a spreadsheet, which would
      take texts such as =A1 for formulas.
    label: column of the right labels, by which to score; '' does not.
    keep: columns of a table to copy into the output; ('all',) is all.
  """

  path: str
  model: source.Source
  given: str
  output: str
  columns: tuple[str | None, ...]
  batch_size: int
  safe_cells: bool = False
  label: str = ''
  keep: Sequence[str] = ()

  def predict(self, task, split: Any, keep: Callable, label: str) -> Any:
    """Returns what is kept of the predictions for all rows of a split.

    Args:
      task: the module of the model's task, such as `classify`.
      split: the rows.
      keep: see `predictions.predict`; as is label.
    """
    found, compute = self.model, task.compute_sums
    head = found.head
    if head.spans:
      compute = functools.partial(compute, head.spans.max_answer_length)
    data = task_data.Data({}, head.labels, found.tokenizer.pad_id, {})
    return predictions.predict(
      (
        head.add_to(found.params),
        fine_tuned.make_head_module(head, found.config),
      ),
      split,
      functools.partial(task.make_batch, data),
      compute,
      keep,
      label,
      self.batch_size,
    )


def predict(job: Job) -> int:
  """Writes the predictions for a file, atomically.

  Returns:
    The number of rows, words or questions.

  Raises:
    errors.UserError: if the model has no head that predicts, or a file cannot
      be read or written.
  """
  check_head(job)
  task = job.model.head.task
  if job.keep and task not in ('classification', 'choice'):
    raise errors.UserError(
      f'--keep is for tables; {job.path} is a model for {task}, whose output has '
      'the words or the ids of the input.'
    )
  if job.label and task == 'spans':
    raise errors.UserError(
      '--label means nothing here, since answers are in the file; leave it out.'
    )
  return _PREDICT[task](job)


def check_head(job: Job):
  """Raises errors.UserError if a model has no head that predicts."""
  if job.model.head is None:
    raise errors.UserError(
      f'{job.path} has no head that predicts anything of a text; fine-tune it '
      f'first: python -m bert_jax.main --config=configs/classify.py '
      f'--config.init_from={job.path}'
    )


def _predict_texts(job) -> int:
  """Writes the classes or numbers of a file's rows; returns the rows."""
  _check_output(job, table_files.EXTENSIONS)
  head = job.model.head
  text, pair = _choose_columns(job.columns[:2], head.columns)
  table = table_files.read(job.given)
  kept_rows = predicted_rows.choose_kept(table, job.keep)
  rows = examples.choose_columns(
    table, text, pair, job.label, needs_label=bool(job.label), asked=_ASKED
  )
  truth = None
  if job.label:
    examples.check_labelled(job.given, rows)
    truth = examples.number_labels(rows, head.labels)
  split = _encode_texts(job.model, rows.texts, rows.pairs)
  all_classes = head.labels and job.output.endswith('.jsonl')
  keep = predictions.fill if all_classes else predictions.keep_likeliest
  kept = job.predict(classify, split, keep, 'predicting')
  if all_classes:
    found = predicted_rows.list_probabilities(head.labels, kept['logits'])
    kept['chosen'] = kept['logits'].argmax(-1)
  elif head.labels:
    found = predicted_rows.list_likeliest(head.labels, **kept)
  else:
    found = (
      {'prediction': predicted_rows.round_number(x)} for x in kept['chosen']
    )
  predicted_rows.write(job.output, found, kept_rows, job.safe_cells)
  _report_truncated(split.encoded, 'row', head.max_length)
  if truth is not None:
    names = classify.choose_metrics(head.labels)
    _score_rows(job, names, head.labels, truth, kept['chosen'])
  return split.size


def _encode_texts(model, texts, pairs) -> class_data.Split:
  join = gpt_form.join if model.head.form == 'gpt' else encode.join
  texts, pairs = (
    x and encode.tokenize(model.tokenizer, x) for x in (texts, pairs)
  )
  encoded = join(model.tokenizer, texts, pairs, model.head.max_length)
  return class_data.Split(encoded, None, np.arange(len(texts)))


def predict_texts(
  path: str,
  model: source.Source,
  texts: Sequence[str],
  pairs: Sequence[str] | None,
  batch_size: int,
) -> list[dict[str, Any]]:
  """Returns what is predicted for texts; see `bert_jax.predict.predict_texts`."""
  job = Job(path, model, '', '', (), batch_size)
  check_head(job)
  if model.head.task != 'classification':
    raise errors.UserError(
      f'{path} is a model for {model.head.task}, not for classes or numbers of '
      'texts; predict for a file.'
    )
  if pairs is not None and len(pairs) != len(texts):
    raise errors.UserError(
      f'{len(pairs):,} pairs for {len(texts):,} texts; give one for each text.'
    )
  if not texts:
    return []
  split = _encode_texts(model, list(texts), pairs and list(pairs))
  kept = job.predict(classify, split, predictions.fill, 'predicting')
  if not model.head.labels:
    return [
      {'prediction': predicted_rows.round_number(x)}
      for x in kept['logits'][:, 0]
    ]
  return list(
    predicted_rows.list_probabilities(model.head.labels, kept['logits'])
  )


def _predict_choices(job) -> int:
  """Writes which choice of each row of a file is right; returns the rows."""
  _check_output(job, table_files.EXTENSIONS)
  head, tokenizer = job.model.head, job.model.tokenizer
  trained = head.columns if len(head.columns) == 3 else (None, '', None)
  names = [
    default if name is None else name
    for name, default in zip(job.columns, trained, strict=True)
  ]
  if None in names:
    raise errors.UserError(
      'the model does not say which columns hold texts and choices; give '
      '--text=COLUMN and --choices=COLUMN, and --pair=COLUMN if need be.'
    )
  kept_rows = predicted_rows.choose_kept(table_files.read(job.given), job.keep)
  rows = choice_data.read_file(
    job.given, names, job.label, bool(job.label), _ASKED
  )
  choices, truth = len(rows.pairs[0]), None
  if job.label:
    examples.check_labelled(job.given, rows)
    truth = choice_data.number_labels(rows, choices)
  tokens = choice_data.tokenize(tokenizer, rows)
  encoded = encode.join(tokenizer, *tokens, head.max_length)
  split = choice_data.Split(encoded, None, choices)
  logits = job.predict(choose, split, predictions.fill, 'choosing')['logits']
  labels = [str(i) for i in range(logits.shape[1])]
  found = predicted_rows.list_probabilities(labels, logits)
  predicted_rows.write(job.output, found, kept_rows, job.safe_cells)
  _report_truncated(encoded, 'choice', head.max_length)
  if truth is not None:
    _score_rows(job, choose.METRICS, (), truth, logits.argmax(-1))
  return len(rows.texts)


def _predict_words(job) -> int:
  """Writes the tags of a file's words; returns the number of words."""
  _check_output(job, conll.EXTENSIONS)
  head, tokenizer, column = job.model.head, job.model.tokenizer, job.columns[0]
  if column is None:
    column = head.columns[0] if head.columns else ''
  number = conll.parse_column('--text', column, 0)
  label = conll.parse_column('--label', job.label, -1) if job.label else None
  sentences = conll.read(job.given, number, label)
  truth = tag_data.number_tags(job.given, sentences, head.labels)
  split = tag_data.encode_sentences(tokenizer, sentences, head.max_length)
  numbers = job.predict(tag, split, tag.keep, 'tagging')
  tags = [head.labels[i] for i in numbers]
  lines = conll.list_tagged(job.given, sentences, tags)

  def fill(new):
    with open(new, 'w', encoding='utf-8', newline='\n') as file:
      file.write('\n'.join(lines))

  files.write_file(job.output, fill)
  if truth is not None:
    split = split._replace(tags=truth)
    scored = tag_finish.compare(split, head.labels, numbers)
    _tell_scores(job, scored, tag_finish.describe)
  return len(tags)


def _predict_answers(job) -> int:
  """Writes the answers to a file's questions; returns their number."""
  _check_output(job, (squad.EXTENSION,))
  head, tokenizer = job.model.head, job.model.tokenizer
  content = squad.read(job.given)
  located = offsets.locate(tokenizer, content.passages)
  split = span_data.encode_questions(
    tokenizer, content, located, head.max_length, head.spans
  )
  ranked = job.predict(answering, split, predictions.fill, 'answering')
  answers = span_answers.choose(split, ranked, head.spans)
  span_finish.write_answers(job.output, split.ids, answers.texts)
  if answers.scores is not None:
    constant = span_answers.predict_constant(
      split, head.spans.threshold is not None
    )
    scored = span_finish.compare(split, answers, constant)
    _tell_scores(job, scored, outcome.describe_scores)
  return len(split.ids)


def _score_rows(job, names, labels, truth, predicted):
  """Scores classes, choices or numbers, beside a constant of the same rows."""
  scored = outcome.compare(names, labels, truth, predicted, truth)
  _tell_scores(job, scored, outcome.describe_scores)


def _tell_scores(job, scored, describe):
  """Prints scores, and writes them beside the output."""
  path = f'{os.path.splitext(job.output)[0]}.scores.json'
  files.write_json(path, scored)
  print('\n'.join(describe({os.path.basename(job.given): scored})))
  print(f'  {path}: the scores')


# By the task that a head was trained for.
_PREDICT = {
  'classification': _predict_texts,
  'choice': _predict_choices,
  'tagging': _predict_words,
  'spans': _predict_answers,
}


def _check_output(job, extensions):
  if not job.output.endswith(extensions):
    raise errors.UserError(
      f'--output={job.output} does not end in {", ".join(extensions)}; give a '
      'file that does.'
    )


def _report_truncated(encoded, unit, max_length):
  if encoded.truncated:
    cut = errors.count(encoded.truncated, unit)
    print(f'truncated to {max_length} tokens: {cut}')


def _choose_columns(given, trained):
  text, pair = given
  if text is None and not trained:
    raise errors.UserError(
      'the model does not say which column holds the text; give --text=COLUMN '
      'and, for pairs, --pair=COLUMN.'
    )
  if text is None:
    text = trained[0]
  if pair is None:
    pair = trained[1] if len(trained) > 1 else ''
  return text, pair
