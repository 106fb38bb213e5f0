"""Compares GLUE's inputs, and a fine-tuned model's logits, with transformers'.

  python benchmarks/parity/glue.py --data=GLUE --vocab=vocab.txt \\
    --transformers=PYTHON [--model=DIR --task=sst2]

GLUE is the folder that GLUE's download script writes; tasks and files that it
lacks are left out. PYTHON is the interpreter of an environment with transformers
4 and torch or flax. Every row of every file is read there by Python's csv module,
as Hugging Face's data sets do, and encoded by BertTokenizerFast as run_glue.py
does, at 128 tokens: texts, labels, ids, segments and masks must be ours. With
DIR, an exported model fine-tuned on the task, the logits of 256 dev rows must
agree to 1e-5. The exit code is 1 if anything differs.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile

import numpy as np

_LENGTH, _ROWS, _TOLERANCE = 128, 256, 1e-5


def read_theirs(path, columns, label, headless):
  """Returns [(text, pair or '', label)] of a file, as Hugging Face reads it."""
  with open(path, encoding='utf-8-sig') as file:
    if headless:
      rows = csv.reader(file, delimiter='\t', quoting=csv.QUOTE_NONE)
      rows = [dict(zip(headless, row, strict=False)) for row in rows]
    else:
      rows = csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE)
    names = [name for name in (*columns, label) if name]
    # Their script drops rows in which a value is missing.
    rows = [row for row in rows if all(row[x] is not None for x in names)]
  return [
    tuple(row[name] if name else '' for name in (*columns, label))
    for row in rows
  ]


def theirs(job):
  """Encodes the rows of a job's file, maybe with logits; for transformers."""
  import transformers

  x = np.load(job, allow_pickle=False)
  vocab, model = str(x['vocab']), str(x['model'])
  columns, label = x['columns'].tolist(), str(x['label'])
  rows = read_theirs(str(x['path']), columns, label, x['headless'].tolist())
  words = transformers.BertTokenizerFast(
    vocab_file=vocab, do_lower_case=bool(x['lowercase'])
  )
  texts = [[row[i] for row in rows] for i in range(2 if columns[1] else 1)]
  encoded = words(
    *texts, padding='max_length', max_length=_LENGTH, truncation=True
  )
  found = {name: np.array(value, np.int32) for name, value in encoded.items()}
  found['labels'] = np.array([row[2] for row in rows])
  if model:
    part = {name: encoded[name][:_ROWS] for name in encoded}
    found['logits'] = their_logits(transformers, model, part)
  np.savez(job + '.out.npz', **found)


def their_logits(transformers, model, encoded):
  try:
    import torch
  except ImportError:
    made = transformers.FlaxAutoModelForSequenceClassification.from_pretrained(
      model, from_pt=True
    )
    return np.asarray(made(**{k: np.array(v) for k, v in encoded.items()})[0])
  made = transformers.AutoModelForSequenceClassification.from_pretrained(model)
  with torch.no_grad():
    batch = {name: torch.tensor(value) for name, value in encoded.items()}
    return made.eval()(**batch).logits.numpy()


def run_theirs(python, folder, **job):
  path = os.path.join(folder, 'job.npz')
  np.savez(path, **job)
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  environment['TRANSFORMERS_VERBOSITY'] = 'error'
  command = [python, os.path.abspath(__file__), '--job', path]
  subprocess.run(command, check=True, env=environment, cwd=folder)
  return dict(np.load(path + '.out.npz'))


def compare_file(given, folder, name, split):
  """Compares one file; returns (rows, differing rows)."""
  from bert_jax.finetuning import encode
  from bert_jax.finetuning.readers import examples, glue
  from bert_jax.tokenization import tokenizer as tokenizer_lib

  known = glue.TASKS[name]
  path = os.path.normpath(
    os.path.join(given.data, known.folder, known.files[split])
  )
  if not os.path.exists(path):
    return 0, 0
  test = split not in ('train', 'dev', 'dev_mismatched')
  rows = examples.read_split(name, split, path)
  words = tokenizer_lib.Tokenizer.load(given.vocab, not given.cased)
  texts, pairs = (
    x and encode.tokenize(words, x) for x in (rows.texts, rows.pairs)
  )
  encoded = encode.join(words, texts, pairs, _LENGTH)
  ours = encode.make_batch(
    encoded, np.arange(len(rows.texts)), _LENGTH, words.pad_id
  )
  scored = given.model and (name, split) == (given.task, 'dev')
  other = run_theirs(
    given.transformers,
    folder,
    vocab=os.path.abspath(given.vocab),
    path=os.path.abspath(path),
    columns=[known.text, known.pair],
    label='' if test else known.label,
    headless=list(() if test else known.headless),
    lowercase=not given.cased,
    model=os.path.abspath(given.model) if scored else '',
  )
  if len(other['labels']) != len(rows.texts):
    sys.exit(f'error: {path}: {len(rows.texts)} rows, {len(other["labels"])}')
  same = np.ones(len(rows.texts), bool)
  for our_name, their_name in (
    ('input_ids', 'input_ids'),
    ('input_mask', 'attention_mask'),
    ('segment_ids', 'token_type_ids'),
  ):
    same &= (ours[our_name] == other[their_name]).all(-1)
  if rows.labels is not None:
    same &= np.array(rows.labels) == other['labels']
  print(
    f'{os.path.relpath(path, given.data)}: {len(same):,} rows, '
    f'{encoded.truncated:,} truncated, {(~same).sum()} differ',
    flush=True,
  )
  if scored:
    compare_logits(given, other)
  return len(same), int((~same).sum())


def compare_logits(given, other):
  """Compares the logits of an exported model for their inputs."""
  from bert_jax.inference import source
  from bert_jax.model import classifier

  model = source.read(given.model)
  module = classifier.Classifier(model.config, len(model.head.bias), 0.0)
  batch = {
    'input_ids': other['input_ids'][:_ROWS],
    'input_mask': other['attention_mask'][:_ROWS],
    'segment_ids': other['token_type_ids'][:_ROWS],
  }
  params = model.head.add_to(model.params)
  ours = np.asarray(module.apply({'params': params}, batch))
  most = float(np.abs(ours - other['logits']).max())
  print(
    f'logits of {len(ours)} rows: largest difference {most:.1e}, largest logit '
    f'{np.abs(ours).max():.2f}'
  )
  if not most <= _TOLERANCE:
    sys.exit(f'error: {most:.1e} is more than {_TOLERANCE:.0e}.')


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data')
  parser.add_argument('--vocab')
  parser.add_argument('--cased', action='store_true')
  parser.add_argument('--transformers', metavar='PYTHON')
  parser.add_argument('--model', default='')
  parser.add_argument('--task', default='')
  parser.add_argument('--job', help=argparse.SUPPRESS)
  given = parser.parse_args()
  if given.job:
    return theirs(given.job)
  if not (given.data and given.vocab and given.transformers):
    parser.error('--data, --vocab and --transformers are needed.')
  from bert_jax.finetuning.readers import glue

  total = differing = 0
  with tempfile.TemporaryDirectory() as folder:
    for name, known in glue.TASKS.items():
      for split in known.files:
        rows, wrong = compare_file(given, folder, name, split)
        total, differing = total + rows, differing + wrong
  print(f'{total:,} rows, {differing} differ')
  return int(bool(differing) or not total)


if __name__ == '__main__':
  sys.exit(main())
