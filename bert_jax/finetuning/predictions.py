"""Predicts with a fine-tuned model of any task: for rows, and for files."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import errors
from bert_jax.finetuning import encode, supervised, tables
from bert_jax.finetuning.readers import splits
from bert_jax.inference import fine_tuned, padding, source, trained_length
from bert_jax.model import precision
from bert_jax.runtime import files, progress
from bert_jax.tokenization import unknown

_LENGTH_STEP = 16  # tokens
# Of a batch on a CPU, about. With 32 rows of 256 tokens, BERT-Mini makes 65 rows/s, with 8
# rows and `recompute` 95; BERT-Base 12 and 15 (four layers, two cores).
_CPU_TOKENS = 2048


class Job(NamedTuple):
  """What is to be predicted for a file; most fields are flags of `predict`."""

  path: str  # of the model
  model: source.Source
  given: str  # the file
  output: str
  # Of the text, a second text and choices; None is the training data's.
  columns: tuple[str | None, ...] = (None, None, None)
  batch_size: int = 32
  label: str = ''
  keep: Sequence[str] = ()  # columns to copy into the output; ('all',) is all


def get_how(model: source.Source) -> encode.How:
  head = model.head
  return encode.How(model.tokenizer, head.max_length, head.form, head.settings)


def predict_rows(
  this: supervised.Supervised,
  model: source.Source,
  split: encode.Rows,
  batch_size: int,
  whole: bool = False,
) -> Any:
  """Returns what `Rows.keep` keeps of predictions in float32 for a split's rows."""
  head, kept = model.head, None
  trained_length.warn(model, split.lengths.tolist())
  config = dataclasses.replace(model.config, dtype='float32')
  on_cpu = jax.default_backend() == 'cpu'
  if on_cpu:  # with blocks that fit its caches
    config = dataclasses.replace(config, attention='recompute')
  module = fine_tuned.make_head_module(head, config)
  params = jax.device_put(head.add_to(model.params))
  batches = padding.batch_by_length(
    split.lengths,
    batch_size,
    _LENGTH_STEP,
    config.max_positions,
    _CPU_TOKENS if on_cpu else None,
  )
  with progress.Progress(split.size, 'rows', 'predicting') as bar:
    for rows, full, length in batches:
      batch = split.make_batch(full, length, model.tokenizer.pad_id)
      batch = jax.tree.map(jnp.asarray, batch)
      outputs = _apply(params, batch, module, this, head.settings)
      kept = split.keep(kept, rows, jax.device_get(outputs), whole)
      bar.update(len(rows))
  return kept


@precision.jit_inference('module', 'this', 'settings')
def _apply(params, batch, module, this, settings):
  return this.compute_sums(module, params, batch, None, settings)[1]


def predict(job: Job, tasks: Mapping[str, supervised.Supervised]) -> int:
  """Writes the predictions for a file, atomically; returns their number."""
  check_head(job.path, job.model)
  head = job.model.head
  this = tasks[head.task]
  _check_flags(job, this)
  columns = _choose_columns(job, this)
  content = this.read(job.given, columns, bool(job.label), splits.ASKED)
  if content.notes:
    print(f'{job.given}: {", ".join(content.notes)}')
  if this.takes_keep:
    content = tables.keep_columns(content, job.keep, job.output)
  split, _ = this.encode(get_how(job.model), content, head.labels)
  ids, texts = split.encoded.ids, content.list_texts()
  unknown.tell(job.model.tokenizer, ids, texts, job.given)
  # Only JSONL has the probabilities of all classes.
  whole = job.output.endswith('.jsonl')
  kept = predict_rows(this, job.model, split, job.batch_size, whole)
  predicted, _ = this.decide(split, kept, head.settings, tune=False)
  this.write_given(job, content, split, predicted)
  if split.labels is not None:
    names = this.list_metrics(head.labels)
    scored = this.compare(names, head.labels, split, predicted, split)
    problem = scored['problem'] = this.find_problem(scored, predicted)
    path = f'{os.path.splitext(job.output)[0]}.scores.json'
    files.write_json(path, scored)
    lines = this.describe_scores({os.path.basename(job.given): scored})
    lines += [f'WARNING: {problem}.'] if problem else []
    print('\n'.join(['', *lines, f'  {path}: the scores']))
  return split.count()


def check_head(path: str, model: source.Source):
  """Raises errors.UserError for a model without a head that predicts."""
  if model.head is None:
    raise errors.UserError(
      f'{path} has no head that predicts anything of a text; fine-tune it '
      f'first: python -m bert_jax.main --config=configs/classify.py '
      f'--config.init_from={path}'
    )


def _check_flags(job, this):
  if job.keep and not this.takes_keep:
    raise errors.UserError(f'--keep is for tables, not for {this.name}.')
  if job.label and not this.takes_label:
    raise errors.UserError(
      '--label means nothing here, since answers are in the file; leave it out.'
    )
  if not job.output.endswith(this.outputs):
    raise errors.UserError(
      f'--output={job.output} does not end in {", ".join(this.outputs)}; give a '
      'file that does.'
    )


def _choose_columns(job, this) -> splits.Columns:
  """Returns the training data's columns, unless the job names others."""
  trained = job.model.head.columns
  if not trained and this.needed:
    trained = (None, '', None)
  both = zip(job.columns, (*trained, '', '', ''), strict=False)
  columns = splits.Columns(*(y if x is None else x for x, y in both), job.label)
  if None in (getattr(columns, x) for x in this.needed):
    asked = ' and '.join(f'--{x}=COLUMN' for x in this.needed)
    raise errors.UserError(
      f'the model does not say which columns hold what it reads; give {asked} '
      'and, if need be, --pair=COLUMN.'
    )
  return columns
