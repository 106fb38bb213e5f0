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
accelerate), with SDPA and dynamic padding. Rows, model, batch size, dropout,
AdamW, clipping and schedule are the same; rows were encoded before. One epoch of
the same rows, without its first updates, and the second prediction of all rows
are timed, in a process that runs alone, round after round; the table gives
medians. The exit code is 1 if a goal is missed.
"""

import argparse
import json
import os
import pathlib
import runpy
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = ROOT / 'benchmarks/measure/step_peers/finetuning_torch.py'
WARM = 8  # updates that are not timed
# {case: (config, its arguments, goal: times as fast as the Trainer)}
CASES = {
  'sst2': ('glue', 'sst2,max_documents=6400', 1.3),
  'squad': ('squad', 'max_documents=1200,batch_size=12', 1.1),
}
PARTS = 'train', 'predict'


def prepare(name, args, folder):
  """Encodes the rows of a case, makes its model; returns the settings' path."""
  from bert_jax import config_check, tasks
  from bert_jax.config import flatten, model_config
  from bert_jax.interop import config_file

  file, arguments, _ = CASES[name]
  if args.documents:
    arguments += f',max_documents={args.documents}'
  found = runpy.run_path(str(ROOT / f'configs/{file}.py'))
  c = found['get_config'](
    f'{arguments},size=mini,epochs=1,log.every=50,checkpoint.every=1000000'
  )
  paths = {x: f'{args.glue}/SST-2/{x}.tsv' for x in ('train', 'dev')}
  if name == 'squad':
    paths = {x: args.squad for x in ('train', 'dev')}
  c.data.input = ','.join(f'{x}={path}' for x, path in paths.items())
  path, model = os.path.join(folder, 'settings'), os.path.join(folder, 'model')
  settings = {
    'config': flatten(c),
    'transformers': config_file.from_config(model_config(c)),
    'vocab': os.path.abspath(args.vocab),
    'model': model,
    'predict_batch': 32,
  }

  def write():
    with open(path, 'w') as out:
      json.dump(settings, out)

  write()
  subprocess.run([args.torch, PEER, path, 'make'], check=True)
  c.init_from, workdir = model, os.path.join(folder, 'run')
  definition = tasks.get(c)
  c = definition.take_model(c, workdir)
  data = definition.open(c, workdir)
  c = definition.complete(c, data, workdir)
  c.finetuning.by_length = True  # however few updates there are
  config_check.check(c)
  rows = data.splits['train']
  np.savez(f'{folder}/train.npz', labels=rows.labels, **rows.encoded._asdict())
  settings['data'] = folder  # of both
  settings['config'] = flatten(c)
  write()
  return path


def train(settings) -> float:
  """Runs the training loop of bert_jax.main; returns rows/s."""
  from bert_jax import tasks
  from bert_jax.config import unflatten
  from bert_jax.train import fit
  from bert_jax.workdir import status

  c, ends = unflatten(settings['config']), []
  definition = tasks.get(c)
  data = definition.open(c, os.path.join(settings['data'], 'run'))
  task = definition.make_task(c, data)

  class Clock(status.Status):
    """Is told by the training loop after each update."""

    def note(self, **fields):
      if fields.keys() == {'step'}:
        ends.append(time.perf_counter())

  with tempfile.TemporaryDirectory() as workdir:
    fit.fit(c, task, workdir, Clock())
  timed = ends[WARM:]
  return (len(timed) - 1) * c.phases.batch_size[0] / (timed[-1] - timed[0])


def predict(settings) -> float:
  """Computes the outputs of all rows, as bert_jax.predict does; returns rows/s."""
  from bert_jax import tasks
  from bert_jax.config import unflatten
  from bert_jax.finetuning import predictions
  from bert_jax.inference import source

  model = source.read(settings['model'])
  task = tasks.SUPERVISED[model.head.task]
  data = task.read(unflatten(settings['config']), model.tokenizer)
  split = data.splits['train']
  size = settings['predict_batch']
  for _ in range(2):
    begin = time.perf_counter()
    predictions.predict_rows(task, model, split, size)
  return split.size / (time.perf_counter() - begin)


def measure(python, script, settings, args) -> dict[str, float]:
  """Runs one side in a process of its own; returns {part: rows/s}."""
  env = {
    **os.environ,
    'OMP_NUM_THREADS': str(args.threads),
    'TRANSFORMERS_VERBOSITY': 'error',
  }
  command = [python, script, settings, 'train']
  done = subprocess.run(command, stdout=subprocess.PIPE, env=env, check=True)
  return json.loads(done.stdout.splitlines()[-1])


def compare(name, args, folder) -> bool:
  """Runs and prints a case; returns whether its goals are met."""
  settings, rounds = prepare(name, args, folder), []
  for _ in range(args.rounds):
    ours = measure(sys.executable, __file__, settings, args)
    theirs = measure(args.torch, PEER, settings, args)
    rounds.append((ours, theirs))
    print(f'bert_jax {ours}, Trainer {theirs} rows/s', flush=True)
  good, goal = True, CASES[name][2]
  for part in PARTS:
    ratios = [ours[part] / theirs[part] for ours, theirs in rounds]
    middle = statistics.median(ratios)
    good &= middle >= goal
    print(
      f'{"PASS" if middle >= goal else "FAIL"}: {name}, {part}: {middle:.2f} '
      f'({min(ratios):.2f} to {max(ratios):.2f}) times as fast as the Trainer '
      f'(at least {goal})'
    )
  return good


def parse_arguments():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--torch', required=True, metavar='PYTHON', help='interpreter of PyTorch')
  add('--vocab', required=True, metavar='vocab.txt', help="Google's uncased")
  add('--glue', help="GLUE's folder, for sst2")
  add('--squad', metavar='FILE', help='a JSON file, for squad')
  add('--threads', type=int, default=2, help='CPU cores for each')
  add('--rounds', type=int, default=3)
  add('--documents', type=int, help='rows or questions; default: 6400, 1200')
  args = parser.parse_args()
  if not (args.glue or args.squad):
    parser.error('there is nothing to compare; give --glue, --squad or both')
  return args


def main():
  if sys.argv[2:] == ['train']:  # as which this script starts itself
    from bert_jax.runtime import memory

    memory.keep_freed()  # as the commands do
    with open(sys.argv[1]) as file:
      settings = json.load(file)
    found = {'train': train(settings), 'predict': predict(settings)}
    print(json.dumps(found))
    return 0
  args = parse_arguments()
  os.environ['JAX_PLATFORMS'] = 'cpu'
  cores = sorted(os.sched_getaffinity(0))[: args.threads]
  os.sched_setaffinity(0, cores)  # the processes inherit it
  good = True
  for name in CASES:
    if args.glue if name == 'sst2' else args.squad:
      with tempfile.TemporaryDirectory() as folder:
        good &= compare(name, args, folder)
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
