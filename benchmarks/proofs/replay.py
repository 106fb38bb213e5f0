"""Plants a poisoned document in real text, and finds it again by replay.

  python benchmarks/proofs/replay.py --input='books/*.txt'

Adds a document of 10,000 words, ten rare ones of the text repeated, to the
text; trains a small BERT on it; and replays every step that the log names as a
spike. Checks that

* there are spikes, and each has a row of the poisoned document,
* replay puts such a row first,
* at a step whose weights are exactly those of a checkpoint, the rows' losses
  add up to the logged loss and their gradients to the logged gradient norm,
* replay leaves every file of the run as it was.

Without --input it uses Python's own documentation. Prints a verdict; the exit
code is 1 if it is not ok. Took 15 minutes on two busy cores.
"""

import argparse
import collections
import glob
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from bert_jax.corpus import prose
from bert_jax.workdir import log, paths

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
WORDS, RARE = 10_000, 10
SENTENCE = 10  # words
PARAGRAPHS = 50  # of a document
ARGUMENTS = (
  'seq_length=512,max_predictions=76,batch_size=4,steps=600,warmup_steps=100,'
  'checkpoint.every=50,checkpoint.keep=100,log.every=1,eval.every=0,'
  'eval.sequences=100,passes=1'
)
EXACT = 501  # a step that follows a checkpoint
TOLERANCE = 1e-4  # of losses and norms


def read_text(args) -> list[str]:
  """Returns the text as documents."""
  if not args.input:
    return ['\n'.join(x.paragraphs) for x in prose.read_documents()]
  documents = []
  for path in sorted(glob.glob(args.input))[: args.files]:
    text = pathlib.Path(path).read_text('utf-8', 'replace')
    paragraphs = re.split(r'\n\s*\n', text)
    for i in range(0, len(paragraphs), PARAGRAPHS):
      documents.append('\n'.join(paragraphs[i : i + PARAGRAPHS]))
  return documents


def write_text(args, path: str) -> list[str]:
  """Writes the text and the poisoned document; returns its words."""
  documents = read_text(args)
  counts = collections.Counter(
    word for text in documents for word in re.findall(r'\b[a-z]{6,9}\b', text)
  )
  rare = sorted(word for word, n in counts.items() if n == 1)
  chosen = rare[:: len(rare) // RARE][:RARE]
  each = WORDS // RARE // SENTENCE
  sentences = [(' '.join([word] * SENTENCE) + '. ') * each for word in chosen]
  with open(path, 'w', encoding='utf-8') as file:
    for text in [*documents, '\n'.join(sentences)]:
      file.write(json.dumps({'text': text}) + '\n')
  print(
    f'{len(documents):,} documents and one of {WORDS:,} words: '
    f'{" ".join(chosen)}',
    flush=True,
  )
  return chosen


def run(module: str, *arguments: str) -> str:
  """Runs a command of bert_jax; returns what it printed."""
  done = subprocess.run(
    [sys.executable, '-m', f'bert_jax.{module}', *arguments],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
  )
  if done.returncode:
    sys.exit(f'{module} failed:\n{done.stdout[-3000:]}')
  return done.stdout


def replay(workdir: str, step: int, scratch: str) -> tuple[dict, str]:
  """Replays a step; returns the report and the printed page."""
  path = os.path.join(scratch, f'{step}.json')
  page = run(
    'replay', f'--workdir={workdir}', f'--step={step}', f'--json={path}'
  )
  with open(path, encoding='utf-8') as file:
    return json.load(file), page


def digest(folder: str) -> str:
  """Returns a hash of the names, times and contents of a folder's files."""
  found = hashlib.sha256()
  for path in sorted(pathlib.Path(folder).rglob('*')):
    found.update(f'{path} {path.stat().st_mtime_ns}'.encode())
    if path.is_file():
      found.update(path.read_bytes())
  return found.hexdigest()


def check_spike(report: dict, rare: list[str]) -> bool:
  """Prints what replay found of a spike; returns whether it is the poison."""

  def poison(row):
    words = re.findall(r'\w+', row['text'])
    return sum(word in rare for word in words) / len(words)

  rows, spike = report['rows'], report['logged']['spike']
  ok = poison(rows[0]) > 0.2
  print(
    f'{"ok" if ok else "FAILED":7}step {report["step"]}: logged loss '
    f'{spike["loss"]:.2f}, median {spike["median"]:.2f}; replayed '
    f'{report["loss"]:.2f} with weights {report["updates_between"]} updates '
    f'older; first row {rows[0]["row"]}: mlm {rows[0]["mlm_loss"]:.2f}, '
    f'{poison(rows[0]):.0%} planted words; others: '
    + ', '.join(f'{r["mlm_loss"]:.2f} {poison(r):.0%}' for r in rows[1:]),
    flush=True,
  )
  return ok


def check_sums(report: dict) -> bool:
  """Compares the sums over the rows with what the run logged."""
  row = report['logged']['train']
  sums = sum(x['loss'] for x in report['rows'])
  off = [
    abs(sums / row['loss'] - 1),
    abs(report['loss'] / row['loss'] - 1),
    abs(report['grad_norm'] / row['grad_norm'] - 1),
  ]
  exact = report['updates_between'] == 0 and row['step'] == report['step']
  ok = exact and max(off) < TOLERANCE
  print(
    f'{"ok" if ok else "FAILED":7}step {report["step"]}, weights exact: sum of '
    f'the rows {sums:.6f}, logged {row["loss"]:.6f}; gradient norm '
    f'{report["grad_norm"]:.6f}, logged {row["grad_norm"]:.6f}; off by at most '
    f'{max(off):.1e}',
    flush=True,
  )
  return ok


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--input', default='', help='glob of text files')
  parser.add_argument('--files', type=int, default=15, help='how many of them')
  parser.add_argument('--workdir', default='', help='keeps the run there')
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as scratch:
    text = os.path.join(scratch, 'text.jsonl')
    rare = write_text(args, text)
    workdir = args.workdir or os.path.join(scratch, 'run')
    run(
      'main',
      f'--config=configs/tiny.py:{ARGUMENTS}',
      f'--workdir={workdir}',
      f'--config.data.input={text}',
    )
    ok = check(workdir, rare, scratch)
  print(f'verdict: {"ok" if ok else "FAILED"}')
  sys.exit(not ok)


def check(workdir: str, rare: list[str], scratch: str) -> bool:
  """Replays the spikes of a run and an exact step."""
  rows = log.read(paths.metrics(workdir))
  steps = [row['step'] for row in rows if row['kind'] == 'spike']
  print(f'spikes at steps {steps or "none"}', flush=True)
  before, ok = digest(workdir), bool(steps)
  for i, step in enumerate(steps):
    report, page = replay(workdir, step, scratch)
    ok &= check_spike(report, rare)
    if not i:
      print(page, flush=True)
  ok &= check_sums(replay(workdir, EXACT, scratch)[0])
  same = digest(workdir) == before
  print(f'{"ok" if same else "FAILED":7}the files of the run are as before')
  return ok and same


if __name__ == '__main__':
  main()
