"""Fine-tunes a pre-trained model on seven real tasks, beside counting words.

  python benchmarks/measure/finetuning_scores.py --model=RUN --data=FOLDER \\
    --workdir=DIR

Each task is a sweep over seeds with the default settings, or with the learning
rates that --rates=1e-4,1e-3 names. The table has the mean of the first metric on
dev, its standard deviation over the seeds, what counting words gets, `doubt`, the
mean share of resamples of dev in which that is as good as the model, and what a
constant gets. A killed command goes on where it was.

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
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# {name: config and `data.input`}; {data} is --data, {made} is written here.
TASKS = {
  'STS-B': ('glue.py:stsb', 'train={data}/glue/STS-B/train.tsv'),
  'MRPC': ('glue.py:mrpc', '{data}/glue'),
  'RTE': ('glue.py:rte', 'train={data}/glue/RTE/train.tsv'),
  'QNLI part': ('classify.py:text=question,pair=sentence', '{made}'),
  'CoLA': ('glue.py:cola', '{data}/glue'),
  'SST-2': ('glue.py:sst2', '{data}/glue'),
  'WNUT-17': (
    'ner.py',
    'train={data}/wnut17/wnut17train.conll,'
    'dev={data}/wnut17/emerging.dev.conll',
  ),
}


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--model', required=True, help='as init_from takes it')
  parser.add_argument('--data', required=True)
  parser.add_argument('--workdir', required=True)
  parser.add_argument('--tasks', default=','.join(TASKS))
  parser.add_argument('--seeds', default=3, type=int)
  parser.add_argument('--rates', default='', help='0 is the default rate')
  options = parser.parse_args()
  made = pathlib.Path(options.workdir, 'qnli')
  if not made.exists():
    write_qnli(pathlib.Path(options.data), made)
  lines = []
  for name in options.tasks.split(','):
    lines += describe(name, sweep(name, options, made))
    print_table(lines)


def sweep(name, options, made):
  """Runs the sweep of a task; returns its folder."""
  config, given = TASKS[name]
  folder = pathlib.Path(options.workdir, name.lower().replace(' ', '_'))
  seeds = ','.join(map(str, range(options.seeds)))
  rates = f'learning_rate={options.rates} ' if options.rates else ''
  command = [
    *(sys.executable, '-m', 'bert_jax.sweep'),
    f'--config={ROOT}/configs/{config}',
    f'--workdir={folder}',
    f'--grid={rates}seed={seeds}',
    f'--config.data.input={given.format(data=options.data, made=made)}',
    f'--config.init_from={options.model}',
  ]
  print(' '.join(command), flush=True)
  subprocess.run(command, check=True)
  return folder


def describe(name, folder):
  """Yields a line of the table for each setting of a sweep."""
  for x in read_json(folder / 'results.json')['settings']:
    metric = x['metric']
    runs = [read_json(folder / run / 'results.json') for run in x['values']]
    words = [run['counted_words'] for run in runs if run.get('counted_words')]
    values = (
      [of['metrics'][metric] for of in words],
      [of['doubt'] for of in words],
    )
    yield [
      f'{name} {x["fields"].get("learning_rate", "")}',
      metric,
      f'{x["runs"]}',
      f'{x["mean"]:.3f} ± {x["std"] or 0:.3f}',
      *(f'{statistics.fmean(of):.3f}' if of else '-' for of in values),
      f'{x["baseline"]:.3f}',
    ]


def print_table(lines):
  head = 'task', 'metric', 'runs', 'mean on dev', 'words', 'doubt', 'constant'
  for line in (head, ['---'] * len(head), *lines):
    print(f'| {" | ".join(line)} |', flush=True)


def read_json(path):
  return json.loads(path.read_text())


def write_qnli(data, folder):
  """Labels the pairs of QNLI's test set by SQuAD, of which they were made."""
  asked = {}
  for article in read_json(data / 'squad' / 'dev-v1.1.json')['data']:
    train = hashlib.sha256(article['title'].encode()).digest()[0] % 5
    for passage in article['paragraphs']:
      for x in passage['qas']:
        known = passage['context'], x['answers'], 'train' if train else 'dev'
        asked.setdefault(x['question'].strip(), []).append(known)
  rows, lost = {'train': [], 'dev': []}, 0
  with open(data / 'glue' / 'QNLI' / 'test.tsv', encoding='utf-8') as file:
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
  folder.mkdir(parents=True)
  for split, pairs in rows.items():
    lines = ('question', 'sentence', 'label'), *pairs
    text = ''.join('\t'.join(x) + '\n' for x in lines)
    (folder / f'{split}.tsv').write_text(text, 'utf-8')


if __name__ == '__main__':
  main()
