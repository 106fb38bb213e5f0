"""What a run of fine-tuning learns from: its data, as the training loop takes them.

The files are read at each start. A run keeps its tokenizer, and in its checkpoints
hashes of the rows, without which it does not go on.
"""

import functools
import json
import math
import os
from typing import Any, NamedTuple

import jax.numpy as jnp
from ml_collections import config_dict

import bert_jax
from bert_jax import errors
from bert_jax.config import fields
from bert_jax.data import manifest_file
from bert_jax.finetuning import batches, encode, starting, supervised
from bert_jax.finetuning.readers import examples, splits
from bert_jax.inference import fine_tuned
from bert_jax.model import parameters
from bert_jax.parallel import distributed
from bert_jax.runtime import storage
from bert_jax.tokenization import unknown
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.trainer import task, tuning
from bert_jax.workdir import claim, paths


class Data(NamedTuple):
  """All that a run learns from and predicts."""

  splits: dict[str, encode.Rows]
  labels: tuple[str, ...]  # of the model's outputs; () for a number
  tokenizer: Tokenizer
  manifest: dict[str, Any]  # facts, for `manifest.json`


def read(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  tokenizer: Tokenizer,
) -> Data:
  """Reads and encodes the files of a config."""
  source, f = splits.get_source(config), config.finetuning
  contents = read_contents(this, source)
  labels = this.list_labels(source, contents)
  this.list_metrics(labels, f)  # checks those asked for
  settings = fine_tuned.get_settings(config)
  how = encode.How(tokenizer, max(config.phases.seq_length), f.form, settings)
  rows, facts, lines = {}, {}, []
  repeated = splits.find_repeated(contents)
  for split, content in contents.items():
    made, more = this.encode(how, content, labels, split)
    share, warning = unknown.examine(
      tokenizer, made.encoded.ids, content.list_texts(), split
    )
    said = [*more['counts'], f'longest {made.lengths.max()} tokens']
    if made.encoded.truncated:
      said.append(f'{made.encoded.truncated:,} truncated')
    if share:
      said.append(f'{share:.2%} of the tokens unknown')
    lines.append(
      f'{split}: {", ".join(said)} ({content.origin or content.path})'
    )
    wrong = more.get('warnings', {})
    wrong[f'with the text of a training {this.unit}'] = repeated[split]
    lines += [
      f'WARNING: {split}: {errors.count(len(names), this.unit)} {what}; the '
      f'first is {this.place} {names[0]} of {content.path}'
      for what, names in wrong.items()
      if names
    ]
    lines += filter(None, [warning])
    facts[split] = {'rows': made.size, 'sha256': made.compute_sha256()}
    rows[split] = made
  if unread := splits.list_unread(source):
    lines.append(f'not read: {errors.listing(unread)}')
  about = {'labels': list(labels), 'splits': facts, 'read': lines}
  return Data(rows, tuple(labels), tokenizer, about)


def read_contents(
  this: supervised.Supervised, source: splits.Source
) -> dict[str, splits.Content]:
  def read_file(split, path):
    if source.glue:
      return examples.read_glue(source.glue, split, path)
    return this.read(path, source.columns, None if split == 'test' else True)

  return splits.read(source, read_file)


def check_input(this: supervised.Supervised, config: config_dict.ConfigDict):
  """Reads and encodes the files of a config, and keeps nothing."""
  read(this, config, starting.read_tokenizer(config))


def open_data(
  this: supervised.Supervised, config: config_dict.ConfigDict, workdir: str
) -> Data:
  """Reads a run's files, and prints what they hold."""
  folder = paths.own_data(workdir)
  if claim.is_final(workdir):
    data = read(this, config, manifest_file.load_tokenizer(folder))
  else:
    data = read(this, config, starting.read_tokenizer(config))
    if distributed.is_first():
      about = {'version': bert_jax.__version__, 'recipe': _get_recipe(data)}
      storage.make_folder(folder)
      path = os.path.join(folder, data.tokenizer.file_name)
      storage.write(path, data.tokenizer.to_bytes())
      manifest_file.write(folder, about | data.manifest)
  print('\n'.join(data.manifest['read']), flush=True)
  return data


def list_columns(
  this: supervised.Supervised, config: config_dict.ConfigDict
) -> tuple[str, ...]:
  """Returns the columns that hold texts, as `classifier.Head.columns`."""
  columns = splits.get_source(config).columns[: this.columns]
  while columns and not columns[-1]:
    columns = columns[:-1]
  return columns


def _get_recipe(data) -> dict[str, Any]:
  names = 'lowercase', 'strip_accents', 'added'
  return {name: getattr(data.tokenizer, name) for name in names}


def make_objective(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  how: task.Compute | None = None,
) -> task.Objective:
  """Returns the part of a task that needs no data.

  Args:
    how: how to compute it; None is as the config says.
  """
  how, f = how or tuning.read(config), config.finetuning
  bert = tuning.apply(how, fields.model_config(config))
  module = fine_tuned.make_module(config, bert)
  shapes = functools.partial(this.list_shapes, f, module)
  sums, more, expected = this.list_sums(f, module)
  settings = fine_tuned.get_settings(config)
  init = functools.partial(parameters.init, module)
  if config.init_from:
    sizes = config.model.num_layers, f.reinit_layers
    init = parameters.skip_layers(init, fine_tuned.list_new_layers(*sizes))

  def count_flops(phase):
    tokens = shapes(phase, phase.batch_size)['input_mask'].shape
    each = fine_tuned.count_flops(module, phase.seq_length)
    return math.prod(tokens[:-1]) * each

  def count(batch):
    counts = dict.fromkeys(sums, jnp.sum(batch['label_weights']))
    return counts | {name: g(batch) for name, g in more.items()}

  return task.Objective(
    bert=bert,
    how=how,
    computed_as=lambda how, phase: make_objective(this, config, how),
    init=init,
    losses=(*sums[:1], *more),
    counts=count,
    compute=functools.partial(this.compute_sums, module, settings=settings),
    batch_shapes=shapes,
    flops=count_flops,
    expected_loss=expected,
    lengths=batches.list_lengths if f.by_length else task.use_longest,
  )


def make_task(
  this: supervised.Supervised, config: config_dict.ConfigDict, data: Data
) -> task.Task:
  """Returns a task of fine-tuning, as the training loop takes it."""
  f, pad_id = config.finetuning, data.tokenizer.pad_id
  [phase] = task.list_phases(config)
  others = {
    name: batches.make_rows(split, phase.eval_batch_size, pad_id, f.by_length)
    for name, split in data.splits.items()
    if name != 'train'
  }
  dev = others.pop('dev')
  rows, bias = data.splits['train'], None
  train = batches.Batches(config.seed, rows, pad_id, f.by_length)
  if f.head_bias == 'labels':
    bias = this.find_bias(rows, len(data.labels))

  def score(kept):
    names = this.list_metrics(data.labels, f)
    split, settings = data.splits['dev'], fine_tuned.get_settings(config)
    predicted, _ = this.decide(split, kept, settings, tune=True)
    return this.compare(names, data.labels, split, predicted)['metrics']

  facts = {
    'data': {'recipe': _get_recipe(data), 'splits': data.manifest['splits']},
    'labels': data.labels,
    'columns': list_columns(this, config),
    'max_length': f.max_length,
    'vocab_sha256': data.tokenizer.sha256,
  }
  return task.Task(
    objective=make_objective(this, config),
    train_batch=train.train_batch,
    eval_batch=dev.eval_batch,
    eval_batches=dev.eval_batches,
    describe=lambda batch: [],
    facts=json.loads(json.dumps(facts)),  # as a checkpoint has them
    start=starting.make_start(config, data.labels, bias),
    collect=dev.collect,
    score=score,
    others=others,
  )
