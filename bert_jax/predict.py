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

from collections.abc import Sequence

from absl import flags

from bert_jax.runtime import cli, memory


def _define_flags():
  flags.DEFINE_string('model', None, 'A fine-tuned run or an exported model.')
  flags.DEFINE_string('input', None, 'File with the texts, words or questions.')
  flags.DEFINE_string('output', None, 'File to write; replaced if it exists.')
  flags.DEFINE_string(
    'text', None, "Column of the text; by default the training data's."
  )
  flags.DEFINE_string(
    'pair',
    None,
    "Column of the second text of a pair; by default the training data's.",
  )
  flags.DEFINE_string(
    'choices',
    None,
    "Column of the choices, as data.choices; by default the training data's.",
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
  from bert_jax.finetuning import predict_files
  from bert_jax.inference import source

  found = source.read(model)
  job = predict_files.Job(
    model, found, given, output, tuple(columns), batch_size
  )
  return predict_files.predict(job)


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
  memory.keep_freed()
  _define_flags()
  cli.run(main)
