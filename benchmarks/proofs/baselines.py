"""Runs every command of docs/baselines.md, at a tiny size.

  python benchmarks/proofs/baselines.py [--folder=DIR] [--only=TEXT]

The commands are read from that page; text, the files of GLUE's MRPC, SQuAD and
CoNLL are made here, and `smoke` is added to each config, with four layers, so
that table 7 has its last four. Each run must train, evaluate, and either export
its model or say in one line why it cannot; what the page calls refused must end
with one line. Two runs go on at a time, first those of pre-training; --folder
keeps them, so that --only can repeat a few. Prints a verdict per command; the
exit code is 1 if one failed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / 'docs/baselines.md'
_MAIN = ('-m', 'bert_jax.main')
_PRETRAINING = (
  'smoke',
  'num_layers=4',
  'seq_length=64',
  'max_predictions=10',
  'dtype=float32',
)
_FINE_TUNING = 'smoke', 'epochs=5', 'dtype=float32'
_PEOPLE, _PLACES = 'Anna Boris Clara David'.split(), 'Paris Rome Oslo'.split()


# Which data a row's command needs.
_TASKS = {
  'configs/ner': 'NER',
  'configs/squad': 'SQuAD',
  'configs/glue': 'MRPC',
}
_REFUSED = 'refused'
_AT_A_TIME = 2  # runs; each keeps about one core busy, compiling


def read_commands() -> list[tuple[str, list[str]]]:
  """Returns [(row, arguments of bert_jax.main)] of the page, in its order.

  The name of a row ends with `refused` if its command is.
  """
  found = []
  for line in PAGE.read_text(encoding='utf-8').splitlines():
    if line.startswith('python -m bert_jax.main '):
      arguments = shlex.split(line)[3:]
      name = next(x for x in arguments if x.startswith('--workdir='))
      found.append((name.rpartition('/')[2], arguments))
    row = re.fullmatch(r'\| (.*?) \| `(--config=.*?)` \|(.*)', line)
    if row:
      task = next(name for part, name in _TASKS.items() if part in row[2])
      end = f', {_REFUSED}' if _REFUSED in row[3] else ''
      found.append((f'{task}, {row[1]}{end}', shlex.split(row[2])))
  return found


def is_pretraining(arguments: list[str]) -> bool:
  """Returns whether a command of the page is one; only they have a workdir."""
  return any(x.startswith('--workdir=') for x in arguments)


def adapt(name: str, arguments: list[str], folder: str) -> list[str]:
  """Returns a command's arguments with tiny sizes, and paths in a folder."""
  pretraining = is_pretraining(arguments)
  rest, found = [], None
  for argument in arguments:
    if argument.startswith('--config='):
      file, colon, given = argument.removeprefix('--config=').partition(':')
      given = given.split(',') if colon else []
      small = _PRETRAINING if pretraining else _FINE_TUNING
      # In so few steps, a new BiLSTM learns nothing at the rate of the encoder.
      if 'features' in argument:
        small = (*small, 'bilstm=32', 'learning_rate=1e-2')
      elif 'bilstm' in argument:
        small = (*small, 'bilstm=32', 'learning_rate=1e-3')
      given += small
      found = f'--config={ROOT / file}:{",".join(given)}'
    elif not argument.startswith('--config.data.input='):
      rest.append(re.sub(r'\bruns/', f'{folder}/runs/', argument))
  if pretraining:
    return [found, *rest, '--config.data.input=python-docs']
  splits = {'NER': '{}.conll', 'SQuAD': '{}-v1.1.json'}
  data = f'{folder}/glue_data'
  if file := splits.get(name.partition(',')[0]):
    data = ','.join(
      f'{x}={folder}/{file.format(x)}' for x in ('train', 'dev', 'test')
    )
  return [
    found,
    *rest,
    f'--workdir={folder}/runs/{re.sub("[^a-z0-9]+", "_", name.lower())}',
    f'--config.data.input={data}',
  ]


def write_data(folder: str):
  """Writes pairs of texts, tagged sentences, and questions about passages."""
  draw = random.Random(0)
  words = 'the new method returns a list of names and values'.split()
  os.makedirs(f'{folder}/glue_data/MRPC', exist_ok=True)
  for split, size in (('train', 160), ('dev', 40), ('test', 8)):
    lines = ['Quality\t#1 ID\t#2 ID\t#1 String\t#2 String']
    for i in range(size):
      text = ' '.join(draw.choices(words, k=6))
      other = text if i % 2 else ' '.join(draw.choices(words, k=6))
      first = i if split == 'test' else i % 2
      lines.append(f'{first}\t{i}\t{i}\t{text}\t{other}')
    if split == 'test':
      lines[0] = lines[0].replace('Quality', 'index')
    path = f'{folder}/glue_data/MRPC/{split}.tsv'
    pathlib.Path(path).write_text('\n'.join(lines) + '\n', encoding='utf-8')
    blocks = []
    for _ in range(size):
      rows = [(word, 'O') for word in draw.choices(words, k=4)]
      rows.insert(1, (draw.choice(_PEOPLE), 'B-PER'))
      rows.insert(4, (draw.choice(_PLACES), 'B-LOC'))
      blocks.append(''.join(f'{word}\t{tag}\n' for word, tag in rows))
    path = f'{folder}/{split}.conll'
    pathlib.Path(path).write_text('\n'.join(blocks), encoding='utf-8')
    articles = {'data': [make_article(draw, words, i) for i in range(size)]}
    with open(f'{folder}/{split}-v1.1.json', 'w', encoding='utf-8') as file:
      json.dump(articles, file)


def make_article(draw: random.Random, words: list[str], number: int) -> dict:
  """Returns an article of SQuAD's form, with a question: who is in a place."""
  people, places = draw.sample(_PEOPLE, 3), draw.sample(_PLACES, 3)
  text = ' '.join(draw.choices(words, k=6))
  for person, place in zip(people, places, strict=True):
    text += f' {person} is in {place}.'
  answer = {'text': people[1], 'answer_start': text.index(people[1])}
  asked = {
    'id': str(number),
    'question': f'Who is in {places[1]}?',
    'answers': [answer],
  }
  return {'paragraphs': [{'context': text, 'qas': [asked]}]}


def run(arguments: list[str]) -> subprocess.CompletedProcess:
  """Runs bert_jax.main on the CPU."""
  env = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)}
  return subprocess.run(
    [sys.executable, *_MAIN, *arguments],
    env=env,
    capture_output=True,
    text=True,
  )


def judge_refusal(done: subprocess.CompletedProcess) -> tuple[bool, str]:
  """Returns whether a run ended with one line, and what it said."""
  said = done.stderr.strip()
  one = done.returncode == 1 and re.fullmatch('error: [^\n]*', said)
  return bool(one), said[-500:]


def judge(workdir: str, done: subprocess.CompletedProcess) -> tuple[bool, str]:
  """Returns whether a run did all it should, and what it did, as a line."""
  if done.returncode:
    return False, f'exit {done.returncode}: {done.stderr.strip()[-500:]}'
  with open(f'{workdir}/metrics.jsonl', encoding='utf-8') as file:
    rows = [json.loads(line) for line in file]
  trained = [row for row in rows if row['kind'] == 'train']
  evaluated = [row for row in rows if row['kind'] == 'eval']
  refused = re.findall(r'^  no export: (.*)$', done.stdout, re.MULTILINE)
  exported = os.path.exists(f'{workdir}/export/config.json')
  parts = [f'{trained[-1]["step"]} steps' if trained else 'no step']
  results = f'{workdir}/results.json'
  if os.path.exists(results):
    with open(results, encoding='utf-8') as file:
      scores = json.load(file)['metrics']
    name = next(iter(scores))
    parts.append(f'dev {name} {scores[name]:.3f}')
  elif evaluated:
    parts.append(f'held-out loss {evaluated[-1]["loss"]:.3f}')
  if exported:
    with open(f'{workdir}/export/config.json', encoding='utf-8') as file:
      parts.append(f'export {json.load(file)["architectures"][0]}')
  parts += [f'no export: {reason}' for reason in refused]
  news = re.findall(r'^  (\w+: new, the source has none)$', done.stdout, re.M)
  parts += [line for line in news if 'pooler' in line]
  whole = bool(trained) and bool(evaluated) and len(parts) > 2
  return whole and exported != bool(refused), '; '.join(parts)


def check(name: str, arguments: list[str], folder: str) -> tuple[bool, str]:
  """Runs a command of the page; returns whether it is good, and a line."""
  began = time.monotonic()
  arguments = adapt(name, arguments, folder)
  [workdir] = (x[10:] for x in arguments if x.startswith('--workdir='))
  done = run(arguments)
  if name.endswith(_REFUSED):
    good, said = judge_refusal(done)
  else:
    good, said = judge(workdir, done)
  seconds = time.monotonic() - began
  return good, f'{"ok  " if good else "FAIL"} {name} ({seconds:.0f} s): {said}'


def main():
  """Runs all commands, in the order of the page."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--folder', help='for data and runs; kept')
  parser.add_argument('--only', default='', help='rows that contain this text')
  given = parser.parse_args()
  failed, commands = [], read_commands()
  assert len(commands) == 27, f'{PAGE} has {len(commands)} commands'
  began = time.monotonic()
  with tempfile.TemporaryDirectory() as scratch:
    folder = os.path.abspath(given.folder or scratch)
    write_data(folder)
    chosen = [x for x in commands if given.only in x[0]]
    first = [x for x in chosen if is_pretraining(x[1])]
    rest = [x for x in chosen if x not in first]
    with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as pool:
      for rows in (first, rest):
        for good, line in pool.map(lambda x: check(*x, folder), rows):
          print(line, flush=True)
          failed += [] if good else [line]
  print(f'{(time.monotonic() - began) / 60:.0f} minutes')
  print(f'verdict: {f"FAILED {len(failed)}" if failed else "ok"}')
  return 1 if failed else 0


if __name__ == '__main__':
  sys.exit(main())
