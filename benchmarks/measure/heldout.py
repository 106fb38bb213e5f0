"""Shows how a pre-training run does on the held-out text of each input.

  python benchmarks/measure/heldout.py --workdir=RUN

Prints the held-out rows of each input with the NSP accuracy of always giving the
more frequent answer; then, for each evaluation, losses and accuracies by input,
beside those of the training rows since the evaluation before.
"""

import argparse

import numpy as np

from bert_jax.data import dataset, manifest
from bert_jax.inference import trained_run
from bert_jax.workdir import log, paths

METRICS = ('mlm_loss', 'mlm_accuracy', 'nsp_loss', 'nsp_accuracy')


def show_rows(directory, length):
  """Prints the number of held-out rows and the majority of each input."""
  split = dataset.open_split(directory, 'heldout', length)
  words = manifest.load_tokenizer(directory)
  pack = manifest.read(directory)['recipe']['pack']
  for name, records in split.inputs.items():
    rows = split.reader.rows(records, length, words.cls_id, words.sep_id, pack)
    random = np.average(
      rows['next_sentence_labels'], weights=rows['next_sentence_weights']
    )
    print(
      f'{name or "all"}: {len(records):,} rows, NSP majority '
      f'{max(random, 1 - random):.1%}'
    )


def show_evaluations(rows):
  """Prints the metrics of each evaluation, and of training before it."""
  train = []
  print(f'{"step":>6} ' + ' '.join(f'{name:>12}' for name in METRICS))
  for row in rows:
    if row['kind'] == 'train':
      train.append(row)
    if row['kind'] != 'eval':
      continue
    means = {
      name: np.mean([x[name] for x in train])
      for name in METRICS
      if train and name in train[0]
    }
    _show(row['step'], means, '', 'training')
    train = []
    for of in (x[len('mlm_loss') :] for x in row if x.startswith('mlm_loss')):
      _show(row['step'], row, of, of[1:] or 'held out')


def _show(step, values, of, label):
  numbers = ' '.join(f'{values.get(x + of, np.nan):12.4f}' for x in METRICS)
  print(f'{step:6,} {numbers} {label}')


def main():
  """Runs the command."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--workdir', required=True, help='A run.')
  f = parser.parse_args()
  config = trained_run.read_config(paths.config(f.workdir))
  directory = paths.prepared_data(config, f.workdir)
  for line in manifest.describe_inputs(manifest.read(directory)):
    print(line)
  show_rows(directory, config.phases.seq_length[-1])
  show_evaluations(log.read(paths.metrics(f.workdir)))


if __name__ == '__main__':
  main()
