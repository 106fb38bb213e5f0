"""Fine-tunes a pre-trained model, and random weights, on seven real tasks.

  python benchmarks/measure/finetuning_scores.py --model=RUN --data=FOLDER \\
    --workdir=DIR

With --rates=1e-4,1e-3 it fine-tunes the model alone, which may be in any format:
with these learning rates, and with the default one (0), for the default epochs.

Each task is two sweeps over seeds, one from --model and one from random
weights of the same size with the same vocabulary, by the same recipe, with the
default learning rate of their size; with --starts it is one of them. The table
has the mean of the first metric on dev, its standard deviation over the seeds,
and what a constant gets. A killed command goes on where it was; it may be
started several times at once, and then shares the runs.

--data has `glue/` (the folders of GLUE's download; STS-B and RTE may lack their
dev files, of which a tenth of the training rows takes the place), `squad/` (with
dev-v1.1.json) and `wnut17/`. QNLI part is the pairs of `glue/QNLI/test.tsv`, whose
labels follow from SQuAD's dev set, of which they were made: whether an answer lies in
the sentence. Trained on the questions of four fifths of the articles.
"""

import argparse
import csv
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

from bert_jax.runtime import files

ROOT = pathlib.Path(__file__).resolve().parents[2]
_STARTS = 'pre-trained', 'random weights'


class Task(NamedTuple):
  """How a task is trained.

  Attributes:
    config: the config file, with what stands before its arguments.
    input: `data.input`; {data} is --data, {made} the folder of files made here.
    epochs: times that each row is seen.
  """

  config: str
  input: str
  epochs: int


TASKS = {
  'CoLA': Task('glue.py:cola', '{data}/glue', 5),
  'SST-2': Task('glue.py:sst2', '{data}/glue', 1),
  'MRPC': Task('glue.py:mrpc', '{data}/glue', 5),
  'STS-B': Task('glue.py:stsb', 'train={data}/glue/STS-B/train.tsv', 5),
  'RTE': Task('glue.py:rte', 'train={data}/glue/RTE/train.tsv', 5),
  'QNLI part': Task(
    'classify.py:text=question,pair=sentence', '{made}/qnli', 5
  ),
  'WNUT-17': Task(
    'ner.py:',
    'train={data}/wnut17/wnut17train.conll,'
    'dev={data}/wnut17/emerging.dev.conll',
    6,
  ),
}


def main():
  """Trains whatever is not trained yet, and prints the table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--model', required=True, help='a run of bert_jax.main')
  parser.add_argument('--data', required=True)
  parser.add_argument('--workdir', required=True)
  parser.add_argument('--tasks', default=','.join(TASKS))
  parser.add_argument(
    '--starts',
    default=','.join(_STARTS),
    help='one of them is half of the work',
  )
  parser.add_argument('--seeds', default=5, type=int)
  parser.add_argument('--rates', default='', help='learning rates to compare')
  parser.add_argument(
    '--more', default='', help='arguments of all configs, such as seq_length=32'
  )
  options = parser.parse_args()
  for flag, known in (('starts', _STARTS), ('tasks', TASKS)):
    if unknown := {*getattr(options, flag).split(',')} - {*known}:
      parser.error(f'--{flag} has {unknown}; there are {", ".join(known)}')
  made = os.path.join(options.workdir, 'made')
  if not os.path.exists(made):
    files.write_folder(made, [], lambda new: write_data(options.data, new))
  starts = list_starts(options.model)
  kinds = options.starts.split(',')
  if options.rates:  # 0 is the default
    grid, kinds = f'learning_rate=0,{options.rates}', ['rates']
    starts = {'rates': ('', [f'--config.init_from={options.model}'])}
  else:
    grid = ''
  results = {
    (name, kind): sweep(name, kind, starts[kind], options, made, grid)
    for name in options.tasks.split(',')
    for kind in kinds
  }
  print_table(results)


def list_starts(model):
  """Returns {what training starts from: its flags}."""
  c = json.loads(pathlib.Path(model, 'config.json').read_text())
  names = 'num_layers', 'hidden_size', 'num_heads', 'mlp_size', 'attention_init'
  size = ''.join(f',{x}={c[f"model.{x}"]}' for x in names)
  # A run on data elsewhere keeps their vocabulary beside its config.
  vocabulary = os.path.join(model, '' if c['data.dir'] else 'data', 'vocab.txt')
  pretrained = '', [f'--config.init_from={model}']
  random = size, [f'--config.data.vocab={vocabulary}']
  return dict(zip(_STARTS, (pretrained, random), strict=True))


def sweep(name, kind, start, options, made, grid):
  """Runs the sweep of a task; returns its results."""
  task, (arguments, flags) = TASKS[name], start
  folder = os.path.join(
    options.workdir, f'{name} {kind}'.lower().replace(' ', '_')
  )
  config = task.config
  if not grid:
    config += f',epochs={task.epochs}{arguments}'
  config += f',{options.more}' if options.more else ''
  seeds = ','.join(map(str, range(options.seeds)))
  command = [
    sys.executable,
    '-m',
    'bert_jax.sweep',
    f'--config={ROOT}/configs/{config.replace(":,", ":")}',
    f'--workdir={folder}',
    f'--grid={grid} seed={seeds}',
    f'--config.data.input={task.input.format(data=options.data, made=made)}',
    *flags,
  ]
  print(' '.join(command), flush=True)
  subprocess.run(command, check=True)
  return json.loads(pathlib.Path(folder, 'results.json').read_text())


def print_table(results):
  """Prints the scores of {(task, start): results of its sweep} as Markdown."""
  print(
    '\n| task | metric | of | runs | mean on dev | constant |\n'
    + '|---' * 6
    + '|'
  )
  for (name, kind), found in results.items():
    for x in found['settings']:
      rate = x['fields'].get('learning_rate', '')
      score = f'{x["mean"]:.3f} ± {x["std"] or 0:.3f}'
      print(
        f'| {name} | {x["metric"]} | {kind} {rate} | {x["runs"]} | {score} | '
        f'{x["baseline"]:.3f} |'
      )


def write_data(data, folder):
  """Writes the part of QNLI to a folder."""
  squad = json.loads(pathlib.Path(data, 'squad', 'dev-v1.1.json').read_text())
  os.makedirs(os.path.join(folder, 'qnli'))
  write_qnli(squad, os.path.join(data, 'glue', 'QNLI', 'test.tsv'), folder)


def choose_split(title):
  """Returns the split of an article: dev for one in five."""
  return 'train' if hashlib.sha256(title.encode()).digest()[0] % 5 else 'dev'


def write_qnli(squad, path, folder):
  """Labels the pairs of QNLI's test set by SQuAD, of which they were made."""
  asked = {}
  for article in squad['data']:
    for passage in article['paragraphs']:
      for x in passage['qas']:
        known = passage['context'], x['answers'], choose_split(article['title'])
        asked.setdefault(x['question'].strip(), []).append(known)
  rows, lost = {'train': [], 'dev': []}, 0
  with open(path, encoding='utf-8') as file:
    for row in csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE):
      for context, answers, split in asked.get(row['question'].strip(), []):
        begin = context.find(row['sentence'])
        if begin >= 0:
          end = begin + len(row['sentence'])
          holds = any(begin <= x['answer_start'] < end for x in answers)
          label = 'entailment' if holds else 'not_entailment'
          rows[split].append((row['question'], row['sentence'], label))
          break
      else:
        lost += 1
  counts = {split: len(x) for split, x in rows.items()}
  print(f'QNLI part: {counts}, {lost} pairs without their passage', flush=True)
  for split, found in rows.items():
    lines = ('question', 'sentence', 'label'), *found
    target = pathlib.Path(folder, 'qnli', f'{split}.tsv')
    target.write_text(''.join('\t'.join(x) + '\n' for x in lines), 'utf-8')


if __name__ == '__main__':
  main()
