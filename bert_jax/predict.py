"""Predicts for a file: classes or numbers of texts, tags of words, answers.

  python -m bert_jax.predict --model=PATH --input=FILE --output=FILE

PATH is the --workdir of a fine-tuning run, its export/, or a Hugging Face folder
with a head of BertForSequenceClassification, BertForTokenClassification,
BertForMultipleChoice or BertForQuestionAnswering. Files of texts are .csv, .tsv
or .jsonl; the output has one row per row of the input, in the same order. A model
that chooses gives the number of the likeliest choice, from 0. With a model that
tags words, both files are CoNLL files: one word per line, blank lines between
sentences; --text is then the number of the words' column, from 0. With a model
that answers questions, both are .json: the input as SQuAD's, with or without
answers, the output {id of a question: its answer}, '' where it has none.
"""

import csv
import json
from collections.abc import Sequence

from absl import flags

from bert_jax import errors
from bert_jax.runtime import cli


def _define_flags():
  flags.DEFINE_string('model', None, 'A fine-tuned run or an exported model.')
  flags.DEFINE_string('input', None, 'File with the texts, words or questions.')
  flags.DEFINE_string('output', None, 'File to write; replaced if it exists.')
  flags.DEFINE_string(
    'text', None, "Column of the text; by default the training data's."
  )
  flags.DEFINE_string(
    'pair', None, 'Column of the second text of a pair; as --text.'
  )
  flags.DEFINE_string(
    'choices', None, 'Column of the choices, as data.choices; as --text.'
  )
  flags.DEFINE_integer('batch_size', 32, 'Rows per batch.', lower_bound=1)
  flags.mark_flags_as_required(['model', 'input', 'output'])


def predict(
  model: str,
  given: str,
  output: str,
  columns: Sequence[str | None] = (None, None, None),
  batch_size: int = 32,
) -> int:
  """Writes the predictions for a file.

  Args:
    model: a fine-tuned run or an exported model.
    given: the file with the texts.
    output: the file to write, atomically.
    columns: of the text, of a second text and of choices; None is the training
      data's.
    batch_size: rows per batch.

  Returns:
    The number of rows, words or questions.

  Raises:
    errors.UserError: if the model has no head that predicts, or a file cannot
      be read or written.
  """
  # Imported here, so that --help does not wait for jax.
  from bert_jax.finetuning import (
    encode,
    examples,
    gpt_form,
    predictions,
    table_files,
  )
  from bert_jax.inference import fine_tuned, source

  found = source.read(model)
  head = found.head
  if head is not None and head.task == 'tagging':
    return _predict_words(found, given, output, columns[0], batch_size)
  if head is not None and head.task == 'spans':
    return _predict_answers(found, given, output, batch_size)
  if not output.endswith(table_files.EXTENSIONS):
    raise errors.UserError(
      f'--output={output} does not end in {", ".join(table_files.EXTENSIONS)}; '
      'give a file that does.'
    )
  if head is None:
    raise errors.UserError(
      f'{model} has no head that chooses one class or a number; fine-tune it '
      f'first: python -m bert_jax.main --config=configs/classify.py '
      f'--config.init_from={model}'
    )
  if head.task == 'choice':
    return _predict_choices(found, given, output, columns, batch_size)
  text, pair = _choose_columns(columns[:2], head.columns)
  rows = examples.choose_columns(
    table_files.read(given), text, pair, '', needs_label=False
  )
  join = gpt_form.join if head.form == 'gpt' else encode.join
  texts, pairs = (
    x and encode.tokenize(found.tokenizer, x) for x in (rows.texts, rows.pairs)
  )
  encoded = join(found.tokenizer, texts, pairs, head.max_length)
  logits = predictions.compute_logits(
    head.add_to(found.params),
    fine_tuned.make_head_module(head, found.config),
    encoded,
    found.tokenizer.pad_id,
    'predicting',
    batch_size,
  )
  _write_rows(output, _describe(logits, head.labels))
  if encoded.truncated:
    print(
      f'{encoded.truncated:,} rows were truncated to {head.max_length} tokens'
    )
  return len(rows.texts)


def _predict_choices(found, given, output, columns, batch_size) -> int:
  """Writes which choice of each row of a file is right; returns the rows."""
  from bert_jax.finetuning import choice_data, encode, predictions
  from bert_jax.inference import fine_tuned

  head = found.head
  trained = head.columns if len(head.columns) == 3 else (None, '', None)
  names = [
    default if name is None else name
    for name, default in zip(columns, trained, strict=True)
  ]
  if None in names:
    raise errors.UserError(
      'the model does not say which columns hold texts and choices; give '
      '--text=COLUMN and --choices=COLUMN, and --pair=COLUMN if need be.'
    )
  rows = choice_data.read_file(given, names)
  tokens = choice_data.tokenize(found.tokenizer, rows)
  logits = predictions.compute_logits(
    head.add_to(found.params),
    fine_tuned.make_head_module(head, found.config),
    encode.join(found.tokenizer, *tokens, head.max_length),
    found.tokenizer.pad_id,
    'choosing',
    batch_size,
  ).reshape(len(rows.texts), -1)
  labels = [str(i) for i in range(logits.shape[1])]
  _write_rows(output, _describe(logits, labels))
  return len(rows.texts)


def _predict_words(found, given, output, column, batch_size) -> int:
  """Writes the tags of a file's words; returns the number of words."""
  import numpy as np

  from bert_jax.finetuning import conll, predictions, tag_finish, windows
  from bert_jax.inference import fine_tuned
  from bert_jax.runtime import files

  if column is not None and not column.removeprefix('-').isdigit():
    raise errors.UserError(f'--text={column} is not the number of a column.')
  sentences = conll.read(given, int(column or 0), tag=None)
  made = windows.make(found.tokenizer, sentences, found.head.max_length)
  rows = predictions.compute_tags(
    found.head.add_to(found.params),
    fine_tuned.make_head_module(found.head, found.config),
    made.encoded,
    found.tokenizer.pad_id,
    'tagging',
    batch_size,
  )
  tags = [found.head.labels[i] for i in windows.take_words(made, rows)]
  words = [word for x in sentences for word in x.words]
  ends = np.cumsum([len(x.words) for x in sentences])

  def fill(new):
    with open(new, 'w', encoding='utf-8', newline='\n') as file:
      tag_finish.write_words(file, [words, tags], ends)

  files.write_file(output, fill)
  return len(words)


def _predict_answers(found, given, output, batch_size) -> int:
  """Writes the answers to a file's questions; returns their number."""
  from bert_jax.finetuning import (
    predictions,
    span_answers,
    span_data,
    span_finish,
    squad,
  )
  from bert_jax.inference import fine_tuned
  from bert_jax.tokenization import offsets

  if not output.endswith(squad.EXTENSION):
    raise errors.UserError(
      f'--output={output} does not end in {squad.EXTENSION}; give a file that '
      'does.'
    )
  head, content = found.head, squad.read(given)
  located = offsets.locate(found.tokenizer, content.passages)
  split = span_data.encode_questions(
    found.tokenizer, content, located, head.max_length, head.spans
  )
  ranked = predictions.rank_spans(
    head.add_to(found.params),
    fine_tuned.make_head_module(head, found.config),
    split.windows,
    found.tokenizer.pad_id,
    head.spans.max_answer_length,
    'answering',
    batch_size,
  )
  answers = span_answers.choose(split, ranked, head.spans)
  span_finish.write_answers(output, split.ids, answers.texts)
  return len(split.ids)


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


def _describe(logits, labels) -> list[dict]:
  """Returns what to write about each row, {column: value}."""
  from bert_jax.finetuning import predictions

  if not labels:
    return [{'prediction': float(x)} for x in logits[:, 0]]
  likely = predictions.to_probabilities(logits)
  return [
    {
      'prediction': labels[int(x.argmax())],
      'probability': round(float(x.max()), 6),
      'probabilities': dict(zip(labels, x.round(6).tolist(), strict=True)),
    }
    for x in likely
  ]


def _write_rows(output, rows):
  """Writes rows, {column: value}, to a file, atomically."""
  from bert_jax.runtime import files

  files.write_file(output, lambda new: _write(new, output, rows))


def _write(new, output, rows):
  """Writes rows to the file `new`, in the format of the name `output`."""
  with open(new, 'w', encoding='utf-8', newline='') as file:
    if output.endswith('.jsonl'):
      file.writelines(
        json.dumps(row, ensure_ascii=False) + '\n' for row in rows
      )
      return
    names = [name for name in rows[0] if name != 'probabilities']
    dialect = 'excel' if output.endswith('.csv') else 'excel-tab'
    writer = csv.DictWriter(
      file, names, extrasaction='ignore', dialect=dialect, lineterminator='\n'
    )
    writer.writeheader()
    writer.writerows(rows)


def main(argv: list[str]):
  """Runs the command."""
  del argv
  given = flags.FLAGS
  columns = given.text, given.pair, given.choices
  count = predict(
    given.model, given.input, given.output, columns, given.batch_size
  )
  print(f'wrote {given.output}: {count:,} predictions')


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
