"""A tiny pre-trained model and labelled texts, for tests of fine-tuning."""

import dataclasses
import json
import os

from bert_jax import main, tasks
from bert_jax import predict as predict_command
from bert_jax.config import apply_arguments, model_config, recipes
from bert_jax.corpus import text_files
from bert_jax.finetuning import encode
from bert_jax.inference import padding, source
from bert_jax.interop import hugging_face
from bert_jax.trainer.task import list_phases
from bert_jax.workdir import log
from tests import commands, models
from tests.workdir import checkpoints

BERT = dataclasses.replace(
  models.CONFIG, max_positions=16, type_vocab_size=2, dropout=0.0
)

MODERN = dataclasses.replace(models.MODERN, max_positions=16)


def write_source(path, **parts) -> str:
  """Exports a model with heads for pre-training; returns its folder.

  Args:
    path: the folder.
    **parts: parameters to replace; None leaves a part out.
  """
  params = models.make_params(BERT, not BERT.modern) | parts
  params = {name: x for name, x in params.items() if x is not None}
  hugging_face.export(str(path), params, BERT, models.TOKENIZER)
  return str(path)


def write_model(path, tokenizer=models.TOKENIZER, seed=0, **changes) -> tuple:
  """Exports a model without NSP; returns (path, params, config)."""
  config = dataclasses.replace(BERT, **changes)
  params = models.make_params(config, with_nsp=False, seed=seed)
  hugging_face.export(str(path), params, config, tokenizer)
  return str(path), params, config


def write_reversed(path, seed=0, num_layers=2) -> tuple:
  """Writes the run of a right-to-left model; returns as `write_model`."""
  c = recipes.pretraining('tiny')
  sizes = 'vocab_size=11,hidden_size=8,mlp_size=12,num_heads=2'
  c = apply_arguments(c, f'{sizes},num_layers={num_layers},kind=rtl,nsp=False')
  c.model.max_positions, c.model.dropout = BERT.max_positions, 0.0
  config = model_config(c)
  params = models.make_params(config, with_nsp=False, seed=seed)
  vocab = models.write_data(path / 'data')
  recipe = {'lowercase': True, 'strip_accents': True}
  facts = {'data': {'recipe': recipe}}
  facts['vocab_sha256'] = text_files.compute_sha256(vocab)
  return checkpoints.write_run(path, c, facts, {1: params}), params, config


def write_texts(folder, dev=True) -> str:
  """Writes texts that are about cats or dogs, and test rows without labels."""
  rows = [
    f'{"the " * (i % 5)}{animal}{"s" * (i % 2)},{animal}'
    for i in range(24)
    for animal in ('cat', 'dog')
  ]
  write_csv(folder, train=rows, **({'dev': rows[:10]} if dev else {}))
  (folder / 'test.csv').write_text('text\nthe dog\ncats\n')
  return str(folder)


def write_csv(folder, **splits) -> str:
  """Writes splits {name: rows 'text,label'}; returns their folder."""
  folder.mkdir(exist_ok=True)
  for name, rows in splits.items():
    lines = '\n'.join(['text,label', *rows, ''])
    (folder / f'{name}.csv').write_text(lines)
  return str(folder)


def configure(root, texts='', **changes):
  """Returns the config of a run on a model and on texts that it writes."""
  texts = texts or write_texts(root / 'texts')
  return make_config(write_source(root / 'source'), texts, **changes)


def make_config(source, texts, **changes):
  """Returns the config of a run on `write_texts`, with some fields changed."""
  c = recipes.finetuning()
  c.init_from = source
  c.data.input = texts
  c.data.text, c.data.label = 'text', 'label'
  c.phases.batch_size = (8,)
  c.phases.seq_length = (BERT.max_positions,)
  c.optimizer.learning_rate = 1e-2
  c.finetuning.epochs = 8.0
  c.checkpoint.every = 24  # each takes longer than many updates
  c.log.every = 5
  with c.ignore_type():
    c.update_from_flattened_dict(changes)
  return c


def encode_rows(texts, pairs, length) -> padding.Encoded:
  """Encodes texts, or pairs of texts if `pairs` is not None."""
  firsts, seconds = (
    x and encode.tokenize(models.TOKENIZER, x) for x in (texts, pairs)
  )
  return encode.join(models.TOKENIZER, firsts, seconds, length)


def run(root, **changes) -> str:
  """Fine-tunes the tiny model below a folder; returns the working directory."""
  return train(configure(root, **changes), root)


def train(c, root) -> str:
  """Runs a config in a folder's `run`, whose path is returned."""
  main.run(c, str(root / 'run'))
  return str(root / 'run')


def predict(model, given, output, *more):
  """Runs the command that predicts for a file; more are further flags."""
  flags = f'--model={model}', f'--input={given}', f'--output={output}'
  commands.run(predict_command, *flags, *more)


def list_logged(run, kind) -> list[dict]:
  """Returns the records of a kind in the log of a run."""
  found = log.read(os.path.join(run, 'metrics.jsonl'))
  return [row for row in found if row['kind'] == kind]


def read_with_export(run: str) -> tuple:
  """Returns a run and its export, as models, which are the same."""
  ours, theirs = (source.read(x) for x in (run, os.path.join(run, 'export')))
  parts = (x.head.add_to(x.params) for x in (ours, theirs))
  models.assert_same(*parts)
  for field in ('task', 'labels', 'max_length', 'columns', 'settings'):
    assert getattr(ours.head, field) == getattr(theirs.head, field), field
  assert ours.tokenizer == theirs.tokenizer
  return ours, theirs


def prepare(c, workdir: str) -> tuple:
  """Makes the data of a config as a run does; returns (c completed, data)."""
  task = tasks.get(c)
  c = task.take_model(c, workdir)
  task.prepare(c, workdir)
  data = task.open(c, workdir)
  return task.complete(c, data, workdir), data


def make_task(c, root) -> tuple:
  """Returns (task, its phase, c completed, data), of a run in a folder."""
  c, data = prepare(c, str(root / 'run'))
  [phase] = list_phases(c)
  return tasks.get(c).make_task(c, data), phase, c, data


def read_json(*path):
  """Returns the content of a JSON file, whose path may be given in parts."""
  with open(os.path.join(*path), encoding='utf-8') as file:
    return json.load(file)


def read_lines(*path) -> list[str]:
  """Returns the lines of a file, whose path may be given in parts."""
  with open(os.path.join(*path), encoding='utf-8') as file:
    return file.read().splitlines()
