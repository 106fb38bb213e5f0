"""Compares SWAG's inputs, and a model's choices, with transformers'.

  python benchmarks/parity/choice.py --data=SWAG.csv --model=DIR \\
    --transformers=PYTHON

DIR is the export of a run of configs/swag.py, PYTHON the interpreter of an
environment with transformers 4 and torch or flax. There, Python's csv module
reads the file, BertTokenizerFast encodes it as run_swag.py does, at 128 tokens,
and BertForMultipleChoice reads DIR: ids, segments and masks of all choices must
be ours, and the logits must agree to 1e-5. The exit code is 1 if not.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile

import numpy as np

_LENGTH, _TOLERANCE, _CHOICES = 128, 1e-5, 4


def theirs(path, model, output):
  """Encodes a file and computes the logits, in transformers' environment."""
  import transformers

  with open(path, encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file))
  first = [row['sent1'] for row in rows for _ in range(_CHOICES)]
  second = [
    f'{row["sent2"]} {row[f"ending{i}"]}'
    for row in rows
    for i in range(_CHOICES)
  ]
  words = transformers.BertTokenizerFast.from_pretrained(model)
  encoded = words(
    first, second, padding='max_length', max_length=_LENGTH, truncation=True
  )
  shape = len(rows), _CHOICES, _LENGTH
  found = {
    name: np.array(x, np.int32).reshape(shape) for name, x in encoded.items()
  }
  logits = their_logits(transformers, model, found)
  labels = [int(row['label']) for row in rows]
  np.savez(output, **found, logits=logits, labels=labels)


def their_logits(transformers, model, encoded):
  try:
    import torch
  except ImportError:
    made = transformers.FlaxAutoModelForMultipleChoice.from_pretrained(
      model, from_pt=True
    )
    return np.asarray(made(**encoded)[0])
  made = transformers.AutoModelForMultipleChoice.from_pretrained(model)
  with torch.no_grad():
    batch = {k: torch.tensor(v, dtype=torch.long) for k, v in encoded.items()}
    return made.eval()(**batch).logits.numpy()


def compare(given, other) -> bool:
  """Compares inputs and logits; returns whether they agree."""
  from bert_jax.finetuning import encode, predict_files, predictions
  from bert_jax.finetuning.choices import choice_data, choose
  from bert_jax.inference import source

  model = source.read(given.model)
  rows = choice_data.read_file(
    given.data, ('sent1', 'sent2', 'ending'), 'label'
  )
  tokens = choice_data.tokenize(model.tokenizer, rows)
  encoded = encode.join(model.tokenizer, *tokens, _LENGTH)
  pairs = np.arange(len(encoded.ends))
  ours = encode.make_batch(encoded, pairs, _LENGTH, model.tokenizer.pad_id)
  same = np.array(rows.labels, int) == other['labels']
  for our_name, their_name in (
    ('input_ids', 'input_ids'),
    ('input_mask', 'attention_mask'),
    ('segment_ids', 'token_type_ids'),
  ):
    x = ours[our_name].reshape(other[their_name].shape)
    same &= (x == other[their_name]).all((1, 2))
  print(f'{len(same)} rows of {_CHOICES} choices, {(~same).sum()} differ')
  split = choice_data.Split(encoded, None, _CHOICES)
  job = predict_files.Job(given.model, model, given.data, '', (), 32)
  logits = job.predict(choose, split, predictions.fill, 'choosing')['logits']
  most = float(np.abs(logits - other['logits']).max())
  print(
    f'logits: largest difference {most:.1e}, largest logit '
    f'{np.abs(logits).max():.2f}'
  )
  return bool(same.all()) and most <= _TOLERANCE


def main():
  if sys.argv[1] == '--theirs':
    return theirs(*sys.argv[2:])
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name in ('data', 'model', 'transformers'):
    parser.add_argument(f'--{name}', required=True)
  given = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    output = os.path.join(folder, 'theirs.npz')
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    environment['TRANSFORMERS_VERBOSITY'] = 'error'
    paths = [os.path.abspath(x) for x in (given.data, given.model)]
    command = [given.transformers, os.path.abspath(__file__), '--theirs']
    subprocess.run([*command, *paths, output], check=True, env=environment)
    return 0 if compare(given, dict(np.load(output))) else 1


if __name__ == '__main__':
  sys.exit(main())
