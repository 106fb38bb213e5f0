"""Predicts with a fine-tuned model of any task: for rows, and for files."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import errors
from bert_jax.finetuning import encode, supervised
from bert_jax.inference import fine_tuned, source
from bert_jax.model import precision
from bert_jax.runtime import files, progress

_LENGTH_STEP = 16  # tokens


class Job(NamedTuple):
  """What is to be predicted; fields as the arguments of `bert_jax.predict`.

  Attributes:
    output: the file to write; JSONL has the probabilities of all classes.
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
    head, words = self.model.head, self.model.tokenizer
    return encode.How(words, head.max_length, head.form, head.spans)

  def predict(self, this: supervised.Supervised, split: encode.Rows) -> Any:
    """Returns what is kept of the predictions for all rows of a split.

    It computes in float32, without dropout.
    """
    found, head, kept = self.model, self.model.head, None
    config = dataclasses.replace(found.config, dtype='float32')
    module = fine_tuned.make_head_module(head, config)
    params = jax.device_put(head.add_to(found.params))
    compute = this.make_compute(head.spans)
    batches = encode.batch_by_length(
      split.lengths, self.batch_size, _LENGTH_STEP, config.max_positions
    )
    with progress.Progress(split.size, 'rows', 'predicting') as bar:
      for rows, full, length in batches:
        batch = split.make_batch(full, length, found.tokenizer.pad_id)
        batch = jax.tree.map(jnp.asarray, batch)
        outputs = jax.device_get(_apply(params, batch, module, compute))
        whole = self.output.endswith('.jsonl')
        kept = split.keep(kept, rows, outputs, whole)
        bar.update(len(rows))
    return kept


@precision.jit_inference('module', 'compute')
def _apply(params, batch, module, compute):
  return compute(module, params, batch, None)[1]


def predict(job: Job, tasks: Mapping[str, supervised.Supervised]) -> int:
  """Writes the predictions for a file, atomically; returns their number."""
  check_head(job)
  head = job.model.head
  this = tasks[head.task]
  _check_flags(job, this)
  content = this.read_given(job)
  split, _ = this.encode(job.how, content, head.labels)
  kept = job.predict(this, split)
  found, _ = this.decide(split, kept, head.spans, tune=False)
  this.write_given(job, content, split, found)
  if split.labels is not None:
    names = this.list_metrics(head.labels)
    scored = this.compare(names, head.labels, split, found, split)
    problem = this.find_problem(scored, found)
    path = f'{os.path.splitext(job.output)[0]}.scores.json'
    scored['problem'] = problem
    with errors.explaining(f'cannot write {path}'):
      files.write_json(path, scored)
    lines = this.describe_scores({os.path.basename(job.given): scored})
    lines += [f'WARNING: {problem}.'] if problem else []
    print('\n'.join([*lines, f'  {path}: the scores']))
  return split.count()


def check_head(job: Job):
  """Raises errors.UserError if a model has no head that predicts."""
  if job.model.head is None:
    raise errors.UserError(
      f'{job.path} has no head that predicts anything of a text; fine-tune it '
      f'first: python -m bert_jax.main --config=configs/classify.py '
      f'--config.init_from={job.path}'
    )


def _check_flags(job, this):
  if job.keep and not this.takes_keep:
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
