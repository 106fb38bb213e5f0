"""Checks that data preparation is reproducible, byte for byte.

Prepares the same text with 1, 2 and 7 workers, with Apache Beam's DirectRunner
(in one process and in two), and with runs that are killed (SIGKILL, the whole
process group) at random times and restarted, and compares the SHA-256 of every
file. Also checks that no finished file is made twice.

  python benchmarks/proofs/same_bytes.py --input='wiki/*' --vocab=vocab.txt \\
    --kills=20

Without --input it uses Python's own documentation, and trains a vocabulary.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from bert_jax.corpus import prose

_VOCAB_SIZE = 8000


def digest(directory: str) -> dict[str, str]:
  """Returns the SHA-256 of every file of a folder."""
  found = {}
  for name in sorted(os.listdir(directory)):
    with open(os.path.join(directory, name), 'rb') as file:
      found[name] = hashlib.file_digest(file, 'sha256').hexdigest()
  return found


def write_prose(path: str):
  """Writes Python's own documents, separated by blank lines."""
  with open(path, 'w', encoding='utf-8') as file:
    for document in prose.read_documents():
      file.write('\n'.join(document.paragraphs) + '\n\n')


def command(args, output: str, *more: str) -> list[str]:
  return [
    *(sys.executable, '-m', 'bert_jax.data.prepare'),
    *(f'--input={args.input}', f'--layout={args.layout}'),
    *(f'--vocab={args.vocab}', f'--output={output}'),
    *('--max_seq_length=128,512', f'--passes={args.passes}'),
    f'--shards={args.shards}',
    *more,
  ]


def start(args, output: str, *more: str) -> subprocess.Popen:
  with open(output + '.log', 'a') as log:
    return subprocess.Popen(
      command(args, output, *more),
      stdout=log,
      stderr=log,
      start_new_session=True,
    )


def run(args, output: str, *more: str) -> float:
  """Runs to the end; returns the seconds."""
  begin = time.monotonic()
  if start(args, output, *more).wait():
    with open(output + '.log') as log:
      sys.exit(
        f'{" ".join(command(args, output, *more))}\n{log.read()[-2000:]}'
      )
  return time.monotonic() - begin


def finished_files(output: str) -> dict[str, int]:
  """Returns path -> inode of the files of shards that are finished.

  The summary NAME.json of a shard, or of a piece of input, is written last.
  """
  inodes = {}
  for folder, _, names in os.walk(output + '.partial'):
    for name in names:
      if not name.endswith('.tmp'):
        path = os.path.join(folder, name)
        inodes[path] = os.stat(path).st_ino
  names = [os.path.basename(path) for path in inodes]
  done = tuple(n.removesuffix('.json') for n in names if n.endswith('.json'))
  return {
    path: inode
    for path, inode in inodes.items()
    if os.path.basename(path).startswith(done)
  }


def killed_run(args, output: str, seconds: float, rng, kills: int):
  """Runs until complete, killed up to `kills` times on the way.

  Returns:
    (kills, made again): files that were rewritten though their shard was done.
  """
  count = 0
  again: set[str] = set()
  seen: dict[str, int] = {}
  while True:
    process = start(args, output, '--workers=2')
    try:
      limit = rng.uniform(0.2, seconds) if count < kills else None
      if process.wait(timeout=limit):
        sys.exit(f'failed, see {output}.log')
      break
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, signal.SIGKILL)
      process.wait()
      count += 1
    now = finished_files(output)
    again |= {n for n in seen if n in now and now[n] != seen[n]}
    # The start is rewritten only when the input or the recipe changes.
    seen = now
  return count, again


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--input', default='', help='see bert_jax.data.prepare')
  parser.add_argument('--layout', default='paragraphs')
  parser.add_argument('--vocab', default='', help='default: train one')
  parser.add_argument('--passes', type=int, default=2)
  parser.add_argument('--shards', type=int, default=32)
  parser.add_argument('--kills', type=int, default=20)
  parser.add_argument('--seed', type=int, default=0)
  args = parser.parse_args()
  rng = random.Random(args.seed)
  with tempfile.TemporaryDirectory() as scratch:
    if not args.input:
      args.input = os.path.join(scratch, 'prose.txt')
      write_prose(args.input)
    if not args.vocab:
      args.vocab = os.path.join(scratch, 'vocab.txt')
      given = (f'--input={args.input}', f'--layout={args.layout}')
      made = (f'--size={_VOCAB_SIZE}', f'--output={args.vocab}')
      train = (sys.executable, '-m', 'bert_jax.data.vocab', *given, *made)
      subprocess.run(train, check=True)
    ok = compare(args, scratch, rng)
  print(f'verdict: {"ok" if ok else "FAILED"}')
  sys.exit(not ok)


def compare(args, scratch: str, rng) -> bool:
  """Runs all ways and compares them with the first."""
  beam = ('--runner=beam', '--', '--runner=DirectRunner')
  two = ('--direct_num_workers=2', '--direct_running_mode=multi_processing')
  ways = {
    '1 worker': ('--workers=1',),
    '2 workers': ('--workers=2',),
    '7 workers': ('--workers=7',),
    'Beam, in one process': beam,
    'Beam, in two processes': (*beam, *two),
  }
  reference: dict[str, str] = {}
  ok = True
  seconds = 60.0

  def check(label: str, output: str, note: str) -> bool:
    nonlocal reference
    found = digest(output)
    reference = reference or found
    different = [
      n for n in {*found, *reference} if found.get(n) != reference.get(n)
    ]
    state = f'DIFFERS: {different[:3]}' if different else 'same'
    print(
      f'{label:24} {hashlib.sha256(repr(found).encode()).hexdigest()[:16]} {state:6} {note}',
      flush=True,
    )
    shutil.rmtree(output)
    return not different

  for number, (label, more) in enumerate(ways.items()):
    output = os.path.join(scratch, f'way{number}')
    took = run(args, output, *more)
    if label == '2 workers':
      seconds = took
    ok &= check(label, output, f'{took:.1f} s')
  count = number = 0
  while count < args.kills:
    output = os.path.join(scratch, f'killed{number}')
    kills, again = killed_run(args, output, seconds, rng, args.kills - count)
    count, number = count + kills, number + 1
    note = f'made twice: {sorted(again)[:3]}' if again else 'nothing made twice'
    ok &= check(f'killed {kills} times', output, note) and not again
  print(f'{count} kills in {number} runs')
  return ok


if __name__ == '__main__':
  main()
