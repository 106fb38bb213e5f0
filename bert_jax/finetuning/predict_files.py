"""Predicts for files with a fine-tuned model, whatever its task."""

import csv
import itertools
import json
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax import errors
from bert_jax.finetuning import encode, gpt_form, predictions, tsv
from bert_jax.finetuning.choices import choice_data
from bert_jax.finetuning.readers import conll, examples, squad, table_files
from bert_jax.finetuning.spans import (
  answering,
  span_answers,
  span_data,
  span_finish,
)
from bert_jax.finetuning.tags import tag_windows
from bert_jax.inference import fine_tuned, source
from bert_jax.runtime import files
from bert_jax.tokenization import offsets

# The flags that name the columns of a text, of a second text and of choices.
_ASKED = '--text', '--pair', '--choices'


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
  """

  path: str
  model: source.Source
  given: str
  output: str
  columns: tuple[str | None, ...]
  batch_size: int

  @property
  def network(self):
    """Returns (parameters with those of the head, module)."""
    found = self.model
    return (
      found.head.add_to(found.params),
      fine_tuned.make_head_module(found.head, found.config),
    )


def predict(job: Job) -> int:
  """Writes the predictions for a file, atomically.

  Returns:
    The number of rows, words or questions.

  Raises:
    errors.UserError: if the model has no head that predicts, or a file cannot
      be read or written.
  """
  if job.model.head is None:
    raise errors.UserError(
      f'{job.path} has no head that predicts anything of a text; fine-tune it '
      f'first: python -m bert_jax.main --config=configs/classify.py '
      f'--config.init_from={job.path}'
    )
  return _PREDICT[job.model.head.task](job)


def _predict_texts(job) -> int:
  """Writes the classes or numbers of a file's rows; returns the rows."""
  _check_output(job, table_files.EXTENSIONS)
  head, tokenizer = job.model.head, job.model.tokenizer
  text, pair = _choose_columns(job.columns[:2], head.columns)
  rows = examples.choose_columns(
    table_files.read(job.given), text, pair, '', needs_label=False, asked=_ASKED
  )
  join = gpt_form.join if head.form == 'gpt' else encode.join
  texts, pairs = (
    x and encode.tokenize(tokenizer, x) for x in (rows.texts, rows.pairs)
  )
  encoded = join(tokenizer, texts, pairs, head.max_length)
  network = *job.network, encoded, tokenizer.pad_id, 'predicting'
  if not head.labels:
    numbers = predictions.compute_logits(*network, job.batch_size)[:, 0]
    found = ({'prediction': _round(x)} for x in numbers)
  elif job.output.endswith('.jsonl'):
    logits = predictions.compute_logits(*network, job.batch_size)
    found = _list_probabilities(head.labels, logits)
  else:
    chosen = predictions.choose_classes(*network, job.batch_size)
    found = _list_likeliest(head.labels, *chosen)
  _write_rows(job.output, found)
  _report_truncated(encoded, 'rows', head.max_length)
  return len(rows.texts)


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
  rows = choice_data.read_file(job.given, names, asked=_ASKED)
  tokens = choice_data.tokenize(tokenizer, rows)
  encoded = encode.join(tokenizer, *tokens, head.max_length)
  logits = predictions.compute_logits(
    *job.network,
    encoded,
    tokenizer.pad_id,
    'choosing',
    job.batch_size,
  ).reshape(len(rows.texts), -1)
  labels = [str(i) for i in range(logits.shape[1])]
  _write_rows(job.output, _list_probabilities(labels, logits))
  _report_truncated(encoded, 'choices', head.max_length)
  return len(rows.texts)


def _predict_words(job) -> int:
  """Writes the tags of a file's words; returns the number of words."""
  _check_output(job, conll.EXTENSIONS)
  head, tokenizer, column = job.model.head, job.model.tokenizer, job.columns[0]
  if column is None:
    column = head.columns[0] if head.columns else ''
  number = conll.parse_column('--text', column, 0)
  sentences = conll.read(job.given, number, tag=None)
  made = tag_windows.make(tokenizer, sentences, head.max_length)
  rows = predictions.compute_tags(
    *job.network, made.encoded, tokenizer.pad_id, 'tagging', job.batch_size
  )
  tags = [head.labels[i] for i in tag_windows.take_words(made, rows)]
  lines = conll.list_tagged(job.given, sentences, tags)

  def fill(new):
    with open(new, 'w', encoding='utf-8', newline='\n') as file:
      file.write('\n'.join(lines))

  files.write_file(job.output, fill)
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
  ranked = answering.rank_windows(
    *job.network,
    split.windows,
    tokenizer.pad_id,
    head.spans.max_answer_length,
    'answering',
    job.batch_size,
  )
  answers = span_answers.choose(split, ranked, head.spans)
  span_finish.write_answers(job.output, split.ids, answers.texts)
  return len(split.ids)


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
    print(f'{encoded.truncated:,} {unit} were truncated to {max_length} tokens')


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


def _list_likeliest(labels, chosen, likely) -> Iterator[dict]:
  """Yields what to write about each row into a table, {column: value}."""
  for i, probability in zip(chosen, likely, strict=True):
    yield {'prediction': labels[i], 'probability': _round(probability)}


def _list_probabilities(labels, logits) -> Iterator[dict]:
  """Yields the same with the probabilities of all classes, for JSONL."""
  for row in logits:
    likely = predictions.to_probabilities(row)
    i = int(likely.argmax())
    yield {
      'prediction': labels[i],
      'probability': _round(likely[i]),
      'probabilities': dict(zip(labels, map(_round, likely), strict=True)),
    }


def _round(value) -> float:
  return float(tsv.format_number(value))


def _write_rows(output, rows: Iterator[dict]):
  """Writes rows, {column: value}, to a file, atomically."""
  files.write_file(output, lambda new: _write(new, output, rows))


def _write(new, output, rows):
  """Writes rows to the file `new`, in the format of the name `output`."""
  if output.endswith('.jsonl'):
    with open(new, 'w', encoding='utf-8', newline='\n') as file:
      file.writelines(
        json.dumps(row, ensure_ascii=False) + '\n' for row in rows
      )
    return
  first = next(rows)
  names = [name for name in first if name != 'probabilities']
  fields = (
    [str(row[name]) for name in names] for row in itertools.chain([first], rows)
  )
  table = itertools.chain([names], fields)
  if output.endswith('.tsv'):
    tsv.write(new, table)
    return
  with open(new, 'w', encoding='utf-8', newline='') as file:
    csv.writer(file, lineterminator='\n').writerows(table)
