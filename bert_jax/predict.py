"""Predicts for a file: classes, labels, numbers of texts, tags of words, answers.

  python -m bert_jax.predict --model=PATH --input=FILE --output=FILE

PATH is the --workdir of a fine-tuning run, its export/, or a Hugging Face
folder with a head of BertForSequenceClassification, BertForTokenClassification,
BertForMultipleChoice or BertForQuestionAnswering. Files of texts are .csv, .tsv
or .jsonl; the output has one row per row of the input, in the same order. A
model that chooses gives the number of the likeliest choice, from 0. With a
model that tags words, both files are CoNLL files: one word per line, blank
lines between sentences; --text is then the number of the words' column, from 0.
With a model that answers questions, both are .json: the input as SQuAD's, with
or without answers, the output {id of a question: its answer}, '' for none.

With --label=COLUMN, the predictions are scored, as at the end of a run, and so
are answers if the file has the right answers; the scores are printed and
written beside the output. From Python, `bert_jax.load(PATH).predict` takes
and returns lists.
"""

from absl import flags

from bert_jax import errors
from bert_jax.runtime import cli, machine


def _define_flags():
  flags.DEFINE_string('model', None, 'A fine-tuned run or an exported model.')
  flags.DEFINE_string('input', None, 'File with the texts, words or questions.')
  flags.DEFINE_string('output', None, 'File to write; replaced if it exists.')
  usual = "by default the training data's."
  flags.DEFINE_string('text', None, f'Column of the text; {usual}')
  flags.DEFINE_string('pair', None, f'Column of the second text; {usual}')
  flags.DEFINE_string('choices', None, f'As data.choices; {usual}')
  meaning = 'Column of the right labels, to score by; of tags, its number.'
  flags.DEFINE_string('label', '', meaning)
  meaning = 'Columns of a table to copy into the output, or all.'
  flags.DEFINE_list('keep', [], meaning)
  flags.DEFINE_integer('batch_size', 32, 'Rows per batch.', lower_bound=1)
  flags.mark_flags_as_required(['model', 'input', 'output'])


def main():
  # Imported here, so that --help does not wait for jax.
  from bert_jax import tasks
  from bert_jax.finetuning import predictions
  from bert_jax.inference import source

  given = flags.FLAGS
  cli.require_other(given.output, given.input)
  job = predictions.Job(
    given.model,
    source.read(given.model),
    given.input,
    given.output,
    (given.text, given.pair, given.choices),
    given.batch_size,
    given.label,
    given.keep,
  )
  count = predictions.predict(job, tasks.SUPERVISED)
  print(f'wrote {given.output}: {errors.count(count, "prediction")}')


if __name__ == '__main__':
  machine.keep_freed_memory()
  _define_flags()
  cli.run(main, resumes=False)
