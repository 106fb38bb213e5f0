"""Compares the speed and memory of data preparation with a usual pipeline.

  python benchmarks/measure/data.py --input=wiki_extracted,novels \\
    --vocab=vocab.txt [--megabytes=80]

--input names folders of English WikiExtractor pages and of plain texts, one
document per file; --vocab is bert-base-uncased's. Documents of both kinds are
mixed and split into sentences once, in the layout that Google's script reads;
then both programs make pairs of 128 tokens from these files:

  tokenizers  Hugging Face tokenizers (`encode_batch`), pairs with lists and
              loops as in Google's script, unmasked, the corpus in memory; it
              reads a sixth of the text
  ours        bert_jax.data.prepare; masks are drawn later, by the loader

Each program runs in its own process, bound to one or two cores, alternating
with the other; the faster of two rounds counts, and the larger memory: the
resident set of the largest process. Start-up, measured on a thousand tiny
documents, is subtracted. Twice the text, with one line of every document
changed, shows whether memory grows with it. MB are 10^6 bytes of input text,
counted once whatever the number of passes.

Prints a verdict; the exit code is 1 if it is FAILED.
"""

import argparse
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.corpus import document

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
LENGTH, SHORT_SEQ_PROB = 128, 0.1
ROUNDS = 2
PASSES = (1, 10)  # 10 is the default of Google's script
PART = 2_000_000  # bytes of a file of sentences
SHARE = 6  # what tokenizers reads is so many times less
MIN_CHARS = 200  # of a document; prepare would drop tiny ones
# Goals: times the speed of tokenizers on a core, MB/s of two cores, MB of
# memory, and times the memory when the text doubles.
FASTER, SPEED, MEMORY, GROWTH = 3, 4, 500, 1.1


def read_documents(path: pathlib.Path) -> Iterator[list[str]]:
  """Yields the paragraphs of WikiExtractor pages, or of a whole file."""
  text = path.read_text('utf-8')
  if text.startswith('<doc '):
    for page in re.findall(r'<doc .*?>\n(.*?)</doc>', text, re.DOTALL):
      yield page.split('\n')[1:]  # without the title
  else:
    yield re.split(r'\n\s*\n', text)


def make_text(inputs: list[str], folder: str, size: int) -> list[str]:
  """Writes parts of sentences, blank lines between documents; returns paths.

  Each part takes bytes from the inputs in proportion to their sizes, so that it
  is a fair sample.
  """
  groups = [
    sorted(x for x in pathlib.Path(given).rglob('*') if x.is_file())
    for given in inputs
  ]
  sizes = [sum(x.stat().st_size for x in group) for group in groups]
  streams = [
    itertools.chain.from_iterable(map(read_documents, group))
    for group in groups
  ]
  taken, paths = [0.0] * len(groups), []
  for number in range(-(-size // PART)):
    paths.append(os.path.join(folder, f'part-{number:03d}.txt'))
    with open(paths[-1], 'w', encoding='utf-8') as file:
      while file.tell() < PART:
        k = taken.index(min(taken))
        paragraphs = next(streams[k], None)
        if paragraphs is None:
          sys.exit(f'error: {inputs[k]} is too small; lower --megabytes.')
        text = document.fold(document.Document(paragraphs))
        lines = '\n'.join(document.split(text, 'en'))
        taken[k] += len(lines) / sizes[k]
        if len(lines) >= MIN_CHARS:
          file.write(lines + '\n\n')
  return paths


def make_pairs(
  documents: Sequence[list[list[int]]], index: int, rng: random.Random
) -> Iterator[tuple[list[int], list[int], bool]]:
  """Yields (first, second, is_random) of one document, as Google's script.

  The whole document has one target length; sentences are collected until it is
  reached, and split at a random place.
  """
  sentences_, room = documents[index], LENGTH - 3  # [CLS], [SEP], [SEP]
  target = rng.randint(2, room) if rng.random() < SHORT_SEQ_PROB else room
  chunk: list[list[int]] = []
  i = 0
  while i < len(sentences_):
    chunk.append(sentences_[i])
    if sum(map(len, chunk)) >= target or i == len(sentences_) - 1:
      split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
      first, second = list(itertools.chain(*chunk[:split])), []
      is_random = len(chunk) == 1 or rng.random() < 0.5
      if is_random:
        second = take_random(documents, index, target - len(first), rng)
        i -= len(chunk) - split  # the unused sentences are put back
      else:
        second = list(itertools.chain(*chunk[split:]))
      while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        longer.pop(0 if rng.random() < 0.5 else -1)
      yield first, second, is_random
      chunk = []
    i += 1


def take_random(documents, index, target, rng) -> list[int]:
  """Returns text of another document, from a random sentence on."""
  for _ in range(10):
    other = rng.randint(0, len(documents) - 1)
    if other != index:
      break
  second: list[int] = []
  for i in range(
    rng.randint(0, len(documents[other]) - 1), len(documents[other])
  ):
    second.extend(documents[other][i])
    if len(second) >= target:
      break
  return second


def use_tokenizers(paths, vocab, output, passes):
  """Runs the usual pipeline: batch encoding, then lists and loops."""
  import tokenizers

  wordpiece = tokenizers.BertWordPieceTokenizer(vocab, lowercase=True)
  documents: list[list[list[int]]] = [[]]
  for path in paths:
    lines = pathlib.Path(path).read_text('utf-8').split('\n')
    found = wordpiece.encode_batch(lines, add_special_tokens=False)
    for line, encoded in zip(lines, found, strict=True):
      if not line:
        documents.append([])
      elif encoded.ids:
        documents[-1].append(encoded.ids)
  documents, rng = [x for x in documents if x], random.Random(0)
  with open(output, 'wb') as file:
    for _ in range(passes):
      for index in range(len(documents)):
        for first, second, is_random in make_pairs(documents, index, rng):
          row = [is_random, len(first), len(second), *first, *second]
          file.write(np.array(row, '<u2').tobytes())


class Run(NamedTuple):
  """Costs of a run: seconds of wall clock and of all cores, memory in MB."""

  wall: float
  cpu: float
  memory: float


def run(name, paths, vocab, passes, cores, output) -> Run:
  """Runs a program on the first cores that this process may use."""
  shutil.rmtree(output, ignore_errors=True)
  given = [f'--input={",".join(paths)}', f'--vocab={vocab}']
  given += [f'--output={output}', f'--passes={passes}']
  command = [sys.executable, __file__, *given]
  if name == 'ours':
    command = [sys.executable, '-m', 'bert_jax.data.prepare', *given]
    command += [f'--max_seq_length={LENGTH}', '--layout=sentences']
    command += [f'--workers={cores}']
  allowed = sorted(os.sched_getaffinity(0))[:cores]
  env = {**os.environ, 'TOKENIZERS_PARALLELISM': 'false', 'PYTHONPATH': ROOT}
  with tempfile.TemporaryFile('w+') as said:
    begin = time.monotonic()
    process = subprocess.Popen(
      ['taskset', '-c', ','.join(map(str, allowed)), *command],
      env=env,
      stdout=said,
      stderr=said,
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
      said.seek(0)
      sys.exit(f'{" ".join(command)} failed:\n{said.read()[-3000:]}')
  if name != 'ours':
    os.remove(output)
  cpu = usage.ru_utime + usage.ru_stime
  print(f'{name}, {passes} passes, {cores} cores: {wall:.1f} s', flush=True)
  return Run(wall, cpu, usage.ru_maxrss * 1024 / 1e6)


def measure(args, folder, parts):
  """Runs all programs, alternating; returns {(text, name, passes, cores): Run}."""
  tiny, twice = [os.path.join(folder, 'tiny.txt')], list(parts)
  with open(tiny[0], 'w', encoding='utf-8') as file:
    for k in range(1000):  # so many that some are held out
      file.write(f'This is how document {k} begins.\nHere is its end, too.\n\n')
  for path in parts:
    twice.append(path.replace('part-', 'copy-'))
    text = pathlib.Path(path).read_text('utf-8')
    text = text.replace('\n\n', '\nThis was a copy.\n\n')
    pathlib.Path(twice[-1]).write_text(text, 'utf-8')
  some = parts[: max(1, len(parts) // SHARE)]
  cases = [('tiny', 'tokenizers', tiny, 1, 1)]
  cases += [('tiny', 'ours', tiny, 1, n) for n in (1, 2)]
  for passes in PASSES:
    cases.append(('text', 'tokenizers', some, passes, 1))
    cases += [('text', 'ours', parts, passes, n) for n in (1, 2)]
  cases.append(('twice', 'ours', twice, 1, 2))
  best, sizes = {}, {}
  for _ in range(ROUNDS):
    for text, name, paths, passes, cores in cases:
      key = text, name, passes, cores
      output = os.path.join(folder, 'output')
      found = run(name, paths, args.vocab, passes, cores, output)
      before = best.get(key, found)
      best[key] = Run(
        *map(min, found[:2], before[:2]), max(found[2], before[2])
      )
      sizes[key] = sum(map(os.path.getsize, paths)) / 1e6
  return best, sizes


def judge(best, sizes) -> bool:
  """Prints the table and each goal; returns whether all goals are met."""
  print('| | passes | cores | MB | s | cpu s | MB/s | peak MB |')
  print('|' + '---|' * 8)
  speed = {}
  for key, found in best.items():
    text, name, passes, cores = key
    if text == 'tiny':
      continue
    start = best['tiny', name, 1, cores]
    seconds, cpu = found.wall - start.wall, found.cpu - start.cpu
    speed[key] = sizes[key] / seconds
    print(
      f'| {name}, {text} | {passes} | {cores} | {sizes[key]:.1f} | '
      f'{seconds:.1f} | {cpu:.1f} | {speed[key]:.2f} | {found.memory:.0f} |'
    )
  once, twice = (best[x, 'ours', 1, 2].memory for x in ('text', 'twice'))
  goals = [
    (f'{twice:.0f} MB at most {MEMORY}', twice <= MEMORY),
    (
      f'{twice / once:.2f} of its memory at most {GROWTH}',
      twice / once <= GROWTH,
    ),
  ]
  for n in PASSES:
    ratio = speed['text', 'ours', n, 1] / speed['text', 'tokenizers', n, 1]
    both = speed['text', 'ours', n, 2]
    goals += [
      (
        f'{ratio:.1f} times tokenizers at {n} pass(es), {FASTER}',
        ratio >= FASTER,
      ),
      (f'{both:.1f} MB/s on 2 cores at {n} pass(es), {SPEED}', both >= SPEED),
    ]
  for text, good in goals:
    print(f'{"PASS" if good else "FAIL"}: {text}')
  return all(good for _, good in goals)


def main():
  """Runs the command; returns its exit code."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--input', required=True, help='folders of real text, comma-separated')
  add('--vocab', required=True, help="bert-base-uncased's vocab.txt")
  add('--scratch', help='a folder with 3 GB of free space; default: /tmp')
  add('--megabytes', type=float, default=80, help='of text; default: 80')
  # Used by the benchmark to start itself as the other program.
  add('--output', help=argparse.SUPPRESS)
  add('--passes', type=int, help=argparse.SUPPRESS)
  args = parser.parse_args()
  inputs = args.input.split(',')
  if args.output:
    return use_tokenizers(inputs, args.vocab, args.output, args.passes)
  with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
    parts = make_text(inputs, folder, int(args.megabytes * 1e6))
    good = judge(*measure(args, folder, parts))
  print(f'verdict: {"ok" if good else "FAILED"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
