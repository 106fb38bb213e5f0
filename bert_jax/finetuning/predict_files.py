"""Predicts for files with a fine-tuned model, whatever its task."""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax import errors
from bert_jax.finetuning import encode, predictions, row_task, supervised
from bert_jax.inference import fine_tuned, source
from bert_jax.runtime import files


class Job(NamedTuple):
  """What is to be predicted; the rest is as for `bert_jax.predict.predict`.

  Attributes:
    path: path of the model.
    model: the model.
    given: the file with the texts.
    output: the file to write, whose extension says what is predicted of a row.
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

  @property
  def how(self) -> encode.How:
    """Returns how texts become rows of the model."""
    head = self.model.head
    return encode.How(
      self.model.tokenizer, head.max_length, head.form, head.spans
    )

  def predict(self, this: supervised.Supervised, split: encode.Rows) -> Any:
    """Returns what a task keeps of the predictions for all rows of a split."""
    found, head = self.model, self.model.head
    data = supervised.Data({}, head.labels, found.tokenizer.pad_id, {})
    return predictions.predict(
      (
        head.add_to(found.params),
        fine_tuned.make_head_module(head, found.config),
      ),
      split,
      functools.partial(this.make_batch, data),
      this.make_compute(head.spans),
      this.choose_keep(self),
      this.doing,
      self.batch_size,
    )


def predict(job: Job, tasks: Mapping[str, supervised.Supervised]) -> int:
  """Writes the predictions for a file, atomically.

  Args:
    tasks: {name: task}, one of which the model was trained for.

  Returns:
    The number of rows, words or questions.

  Raises:
    errors.UserError: if the model has no head that predicts, or a file cannot
      be read or written.
  """
  check_head(job)
  head = job.model.head
  this = tasks[head.task]
  _check_flags(job, this)
  content, about = this.read_given(job)
  split, _ = this.encode(job.how, content, head.labels)
  kept = job.predict(this, split)
  found, _ = this.decide(split, kept, head.spans, tune=False)
  this.write_given(job, split, about, found)
  if this.is_labelled(split):
    names = this.list_metrics(head.labels)
    scored = this.compare(names, head.labels, split, found, split)
    path = f'{os.path.splitext(job.output)[0]}.scores.json'
    files.write_json(path, scored)
    lines = this.describe_scores({os.path.basename(job.given): scored})
    print('\n'.join([*lines, f'  {path}: the scores']))
  return this.count(split)


def check_head(job: Job):
  """Raises errors.UserError if a model has no head that predicts."""
  if job.model.head is None:
    raise errors.UserError(
      f'{job.path} has no head that predicts anything of a text; fine-tune it '
      f'first: python -m bert_jax.main --config=configs/classify.py '
      f'--config.init_from={job.path}'
    )


def _check_flags(job, this):
  """Raises errors.UserError for flags that mean nothing for a task."""
  if job.keep and not isinstance(this, row_task.RowTask):
    raise errors.UserError(
      f'--keep is for tables; {job.path} is a model for {this.name}, whose '
      'output has the words or the ids of the input.'
    )
  if job.label and not this.takes_label:
    raise errors.UserError(
      '--label means nothing here, since answers are in the file; leave it out.'
    )
  if not job.output.endswith(this.outputs):
    raise errors.UserError(
      f'--output={job.output} does not end in {", ".join(this.outputs)}; give a '
      'file that does.'
    )
