"""Times fine-tuning and prediction against transformers' Trainer.

  python benchmarks/measure/finetuning.py --torch=PYTHON --vocab=vocab.txt \\
    --glue=GLUE --squad=dev-v1.1.json

BERT-Mini with random weights, float32, two CPU cores for each process:

  sst2: single texts, batches of 32 as in configs/glue.py:sst2
  squad: windows of up to 384 tokens, batches of 12 as in Google's run_squad.py,
    otherwise as in configs/squad.py

Ours is the training loop of bert_jax.main with all that it does between
checkpoints, and the path of bert_jax.predict. Theirs is Trainer.train and
Trainer.predict of transformers in PyTorch (PYTHON has torch, transformers 4 and
accelerate), with SDPA and dynamic padding: rows in random order, which is its
default, and grouped by length. Rows, model, batch size, dropout, AdamW, clipping
and schedule are the same; rows were encoded before.

Each runs in its own process; they take turns, round after round: 64 updates (16
of squad), or a prediction of all rows. A ratio compares the tokens per second,
without padding, of two turns of a round, since the rows of turns differ in
length; the table gives the median, minimum and maximum over rounds. `tokens` are
those of a row, without and with padding. `first` are the seconds until the first
update or prediction is done, which compiles; no other figure has them. The goals
are for the default of the Trainer; the exit code is 1 if one is missed.
"""

import argparse
import dataclasses
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import step


@dataclasses.dataclass(frozen=True)
class Case:
  """What is compared.

  Attributes:
    config: name of the config's file, and its arguments.
    steps: updates of a turn.
    goals: times as fast as the Trainer, at least: training, prediction.
  """

  config: tuple[str, str]
  steps: int
  goals: dict[str, float]


ROOT = os.path.dirname(os.path.abspath(__file__)) + '/../..'
_COMMON = 'size=mini,log.every=50,checkpoint.every=1000000'
CASES = {
  'sst2': Case(
    ('glue', f'sst2,max_documents=6400,epochs=50,{_COMMON}'),
    64,
    {'train': 1.3, 'predict': 1.3},
  ),
  'squad': Case(
    ('squad', f'max_documents=1200,epochs=50,batch_size=12,{_COMMON}'),
    16,
    {'train': 1.1, 'predict': 1.1},
  ),
}
# {part: {name: the second argument of the peer}}, of step_peers/
OURS = {'train': 'train', 'predict': 'predict'}
THEIRS = {
  'train': {'Trainer': 'train', 'Trainer, by length': 'train_grouped'},
  'predict': {'Trainer': 'predict', 'Trainer, by length': 'predict_sorted'},
}


def encode(c, workdir):
  """Encodes the files of a config.

  Args:
    c: the config.
    workdir: where to write the rows to.

  Returns:
    (c completed, directory of the rows).
  """
  from bert_jax import config_check, tasks

  definition = tasks.get(c)
  c = definition.take_model(c, workdir)
  definition.prepare(c, workdir)
  data = definition.open(c, workdir)
  c = definition.complete(c, data, workdir)
  c.finetuning.by_length = True  # however few updates there are
  config_check.check(c)
  return c, data.directory


def prepare(name, args, folder):
  """Encodes the rows of a case and makes its model.

  Returns:
    Path of the settings that the processes read: `config`, `transformers`,
    `data`, `model`, `vocab`, `predict_batch`.
  """
  from bert_jax import config as config_lib
  from bert_jax.interop import config_file

  case, path = CASES[name], os.path.join(folder, 'settings.json')
  if name == 'squad':
    given = f'train={args.squad},dev={args.squad}'
  else:
    given = ','.join(
      f'{split}={args.glue}/SST-2/{split}.tsv' for split in ('train', 'dev')
    )
  model = os.path.join(folder, 'model')
  config, arguments = case.config
  if args.documents:
    arguments += f',max_documents={args.documents}'
  found = runpy.run_path(os.path.join(ROOT, 'configs', f'{config}.py'))
  c = found['get_config'](arguments)
  c.data.input = given
  settings = {
    'config': config_lib.flatten(c),
    'transformers': config_file.from_config(config_lib.model_config(c)),
    'vocab': os.path.abspath(args.vocab),
    'model': model,
    'predict_batch': args.predict_batch,
  }

  def write():
    with open(path, 'w') as file:
      json.dump(settings, file)

  write()
  peer = os.path.join(step.PEERS, 'finetuning_torch.py')
  subprocess.run([args.torch, peer, path, 'make'], check=True)
  c.init_from = model
  c, settings['data'] = encode(c, os.path.join(folder, 'run'))
  settings['config'] = config_lib.flatten(c)
  write()
  return path


def start(part, args, settings):
  """Yields the processes of a part, ours first."""
  ours = sys.executable, 'finetuning_ours.py', OURS[part]
  yield step.Peer('bert_jax', ours, settings, 'cpu', args.threads)
  for name, way in THEIRS[part].items():
    for suffix in ('', *[', compiled'] * args.compile):
      command = (
        args.torch,
        'finetuning_torch.py',
        way,
        *['compile'] * bool(suffix),
      )
      yield step.Peer(name + suffix, command, settings, 'cpu', args.threads)


def compare(name, part, args, settings):
  """Runs and prints a comparison; returns whether its goal is met."""
  peers, answers = [], {}
  with (
    open(settings) as file,
    np.load(os.path.join(json.load(file)['data'], 'train.npz')) as rows,
  ):
    ends = rows['ends']
  counts = {'rows': len(ends), 'tokens': int(ends[-1]), 'padded': 0}
  try:
    peers.extend(start(part, args, settings))
    steps = 1
    if part == 'train':
      steps = args.steps or CASES[name].steps
    for _ in range(args.rounds):
      for peer in peers:
        answer = counts | peer.turn(steps)
        answers.setdefault(peer.name, []).append(answer)
        speed = answer['rows'] / answer['seconds']
        print(f'{peer.name}: {speed:.1f} sequences/s', flush=True)
  finally:
    for peer in peers:
      peer.close()
  return print_table(name, part, peers, answers)


def print_table(name, part, peers, answers):
  """Prints a row per peer; returns whether the Trainer's default is beaten."""
  print(
    f'\n{name}, {part}\n\n'
    '| | first s | sequences/s | real tokens/s | tokens | CPU ms/sequence | '
    'ours is faster by (least, largest) | result |\n'
    '|---|---|---|---|---|---|---|---|'
  )
  ratios = {}
  for peer in peers:
    found = answers[peer.name]
    speeds = [x['tokens'] / x['seconds'] for x in found]
    total = {
      key: sum(x[key] for x in found)
      for key in ('rows', 'tokens', 'padded', 'seconds', 'cpu_seconds')
    }
    rows = total['rows']
    tokens = f'{total["tokens"] / rows:.1f}'
    if total['padded']:
      tokens += f', {total["padded"] / rows:.1f}'
    if peer is peers[0]:
      ours = speeds
    compared = [a / b for a, b in zip(ours, speeds, strict=True)]
    ratios[peer.name] = statistics.median(compared)
    print(
      f'| {peer.name} | {peer.facts["first"]:.1f} | '
      f'{rows / total["seconds"]:.1f} | {statistics.median(speeds):.0f} | '
      f'{tokens} | '
      f'{total["cpu_seconds"] / rows * 1e3:.2f} | '
      f'{ratios[peer.name]:.2f} ({min(compared):.2f}, {max(compared):.2f}) | '
      f'{peer.loss:.4f} |'
    )
  goal, got = CASES[name].goals[part], ratios['Trainer']
  word = 'PASS' if got >= goal else 'FAIL'
  print(f'{word}: {name}, {part}: {got:.2f}x the Trainer (at least {goal}x)')
  return got >= goal


def parse_arguments():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--torch', required=True, metavar='PYTHON', help='interpreter of PyTorch')
  add('--vocab', required=True, metavar='vocab.txt', help="Google's uncased")
  add('--glue', help="GLUE's folder, for sst2")
  add('--squad', metavar='FILE', help='a JSON file, for squad')
  add('--parts', nargs='+', choices=OURS, default=list(OURS))
  add('--compile', action='store_true', help='the Trainer with torch.compile')
  add('--predict_batch', type=int, default=32, help='rows of a prediction')
  add('--threads', type=int, default=2, help='CPU cores for each')
  add('--rounds', type=int, default=5)
  add('--documents', type=int, help='rows or questions; default: 6400, 1200')
  add('--steps', type=int, help='updates of a turn; default: 64, of squad 16')
  return parser.parse_args()


def main():
  args = parse_arguments()
  cores = sorted(os.sched_getaffinity(0))[: args.threads]
  os.sched_setaffinity(0, cores)  # the processes inherit it
  print(f'{len(cores)} CPU cores for each process')
  good = True
  for name in CASES:
    if not (args.glue if name == 'sst2' else args.squad):
      continue
    with tempfile.TemporaryDirectory() as folder:
      settings = prepare(name, args, folder)
      for part in args.parts:
        good &= compare(name, part, args, settings)
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
