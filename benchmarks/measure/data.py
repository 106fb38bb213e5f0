"""Compares the speed and memory of data preparation with other programs.

  python benchmarks/measure/data.py --input=wiki_extracted,novels \\
    --vocab=vocab.txt

--input names folders of English WikiExtractor pages and of plain texts, one
document per file; --vocab is bert-base-uncased's. Documents of both kinds are
mixed and split into sentences once, in the layout that Google's script reads;
then all programs read the same files:

  google      google_procedure.py in this folder; it masks while it prepares
  tokenizers  the usual pipeline: Hugging Face tokenizers, pairs in plain Python
  ours        bert_jax.data.prepare; masks are drawn later, by the loader, so
              'ours, masked' adds reading and masking every record once

Four and eight copies of the text, with one line of every document changed, show
whether memory grows with the text.

Each program runs in its own process, bound to one or two cores, alternating
with the others; the faster of two rounds counts, and the larger memory.
Start-up, measured on a thousand tiny documents, is subtracted. Memory is the
resident set of the largest process, and of all processes together at one
moment. MB are 10^6 bytes of input text, counted once whatever the number of
passes.

Prints a verdict; the exit code is 1 if it is FAILED.
"""

import argparse
import collections
import itertools
import os
import sys
import tempfile

import data_runs
import google_procedure
import numpy as np

ROUNDS = 2
USUAL = 10  # passes of Google's script, if it is not told otherwise
PASSES = (1, USUAL)
# How many parts each program reads. Ours needs many, to fill its caches.
PARTS = {'google': 3, 'tokenizers': 6, 'ours': 40, 'masking': 40}
CONTESTANTS = ('google', 'tokenizers', 'ours', 'masking')
REAL_BYTES = 20_000_000  # of each input in its own layout
COPIES = (4, 8)  # of the text, to see whether memory grows with it
GROWTH = 1.1  # of memory when the text doubles; more is not flat


# The programs.


def huggingface(paths, vocab_path, output, passes):
  """The usual pipeline, unmasked: batch encoding, then lists and loops."""
  import tokenizers

  wordpiece = tokenizers.BertWordPieceTokenizer(vocab_path, lowercase=True)
  documents = [[]]
  for path in paths:
    with open(path, encoding='utf-8') as file:
      lines = file.read().split('\n')
    for line, found in zip(
      lines,
      wordpiece.encode_batch(lines, add_special_tokens=False),
      strict=True,
    ):
      if not line:
        documents.append([])
      elif found.ids:
        documents[-1].append(found.ids)
  documents = [document for document in documents if document]
  rng = google_procedure.random.Random(0)
  with open(output, 'wb') as file:
    for _ in range(passes):
      for index in range(len(documents)):
        for first, second, is_random in google_procedure.pairs(
          documents, index, data_runs.LENGTH, rng
        ):
          head = [is_random, len(first), len(second)]
          file.write(np.array(head + first + second, '<u2').tobytes())


def command(name, paths, vocab, passes, cores, output, layout='sentences'):
  """Returns the command line of a program."""
  if name == 'ours':
    return data_runs.prepare(paths, vocab, passes, cores, output, layout)
  script = 'google_procedure.py' if name == 'google' else 'data.py'
  found = [sys.executable, os.path.join(data_runs.ROOT, 'benchmarks', script)]
  found += [] if name == 'google' else [f'--contestant={name}']
  found += [f'--input={",".join(paths)}', f'--output={output}']
  return [*found, f'--vocab={vocab}', f'--passes={passes}']


# Speed and memory.


def measure(f, parts):
  """Runs all programs, alternating; returns {(label, passes, cores): Run}."""
  output = os.path.join(f.scratch, 'output')
  tiny = os.path.join(f.scratch, 'tiny.txt')
  with open(tiny, 'w', encoding='utf-8') as file:
    for k in range(1000):  # so many that some are held out
      file.write(f'This is how document {k} begins.\nHere is its end, too.\n\n')
  best: dict[tuple, data_runs.Run] = {}

  def one(label, name, paths, passes, cores, layout='sentences'):
    if name != 'masking':  # which reads what 'ours' has made
      data_runs.remove(output)
    options = f.vocab, passes, cores, output, layout
    found = data_runs.run(command(name, paths, *options), cores)
    key = (label, passes, cores)
    before = best.get(key, found)
    best[key] = data_runs.Run(
      *map(min, found[:2], before[:2]), *map(max, found[2:], before[2:])
    )
    print(
      f'{label}, {passes} passes, {cores} cores: {found.wall:.1f} s', flush=True
    )

  for _ in range(ROUNDS):
    for name in CONTESTANTS:
      one(name + ' start', name, [tiny], 1, 1)
    one('ours start', 'ours', [tiny], 1, 2)
    for passes, name in itertools.product(PASSES, PARTS):
      for cores in (2, 1) if name == 'ours' else (1,):
        one(name, name, parts[: PARTS[name]], passes, cores)
  for n in COPIES:
    one(f'{n} copies', 'ours', copies(f, parts, n), 1, 2)
  for given in f.input:
    one(given, 'ours', some_of(given), 1, 2, 'files')
  data_runs.remove(output)
  return best


def copies(f, parts, n):
  """Writes copies with one line of each document changed; returns paths."""
  paths = []
  for k, path in itertools.product(range(n), parts):
    paths.append(os.path.join(f.scratch, f'copy-{k}-{os.path.basename(path)}'))
    if not os.path.exists(paths[-1]):
      with open(path, encoding='utf-8') as file:
        text = file.read().replace('\n\n', f'\nThis was copy {k}.\n\n')
      with open(paths[-1], 'w', encoding='utf-8') as file:
        file.write(text)
  return paths


def some_of(given):
  """Returns the first files of a folder, REAL_BYTES or all."""
  paths = data_runs.files_of(given)
  sizes = itertools.accumulate(map(os.path.getsize, paths))
  return [path for path, n in zip(paths, sizes, strict=True) if n <= REAL_BYTES]


def table(f, parts, best):
  """Prints speeds and memory; returns the MB/s of each row."""
  sizes = list(itertools.accumulate(map(os.path.getsize, parts)))
  speed = {}
  print(
    f'{"":<16} {"passes":>6} {"cores":>5} {"MB":>6} {"s":>6} {"cpu s":>6} '
    f'{"MB/s":>6} {"x google":>8} {"x tok.":>7} {"peak MB":>7} {"all MB":>6}'
  )

  def row(name, key, amount, *runs):
    """Adds the runs, without the start-up time of each."""
    _, passes, cores = key
    seconds = sum(now.wall - start.wall for now, start in runs)
    cpu = sum(now.cpu - start.cpu for now, start in runs)
    speed[name, passes, cores] = rate = amount / 1e6 / seconds
    ratios = [
      rate / cores / speed.get((other, passes, 1), float('nan'))
      for other in ('google', 'tokenizers')
    ]
    largest, tree = (max(now[k] for now, _ in runs) for k in (2, 3))
    print(
      f'{name[-16:]:<16} {passes:6} {cores:5} {amount / 1e6:6.1f} '
      f'{seconds:6.1f} {cpu:6.1f} {rate:6.2f} {ratios[0]:8.1f} '
      f'{ratios[1]:7.1f} {largest:7.0f} {tree:6.0f}'
    )

  def timed(name, passes, cores, start=None):
    return best[name, passes, cores], best[f'{start or name} start', 1, cores]

  for passes in PASSES:
    for name in ('google', 'tokenizers', 'ours'):
      amount = sizes[PARTS[name] - 1]
      row(name, (name, passes, 1), amount, timed(name, passes, 1))
    runs = timed('ours', passes, 1), timed('masking', passes, 1)
    row('ours, masked', ('ours', passes, 1), amount, *runs)
    row('ours', ('ours', passes, 2), amount, timed('ours', passes, 2))
  others = [(f'{n} copies', n * sizes[PARTS['ours'] - 1]) for n in COPIES]
  others += [(g, sum(map(os.path.getsize, some_of(g)))) for g in f.input]
  for name, amount in others:
    row(name, (name, 1, 2), amount, timed(name, 1, 2, 'ours'))
  return speed


def judge(best, speed):
  """Prints each goal; returns whether all are met."""

  def times(other, n):
    return speed['ours', n, 1] / speed[other, n, 1]

  single, double = (best[f'{n} copies', 1, 2] for n in COPIES)
  goals = [
    (f'times google at {USUAL} passes', times('google', USUAL), 20, False)
  ]
  for n in PASSES:
    of = f'at {n} pass(es)'
    goals += [
      (f'times tokenizers {of}', times('tokenizers', n), 3, False),
      (f'MB/s on 2 cores {of}', speed['ours', n, 2], 4, False),
    ]
  goals += [
    ('MB of the largest process', double.largest, 500, True),
    (
      'times its memory, text doubled',
      double.largest / single.largest,
      GROWTH,
      True,
    ),
  ]
  for what, got, goal, at_most in goals:
    ok = got <= goal if at_most else got >= goal
    sign = '<=' if at_most else '>='
    print(f'{"ok  " if ok else "FAIL"} {got:7.2f} {sign} {goal:5} {what}')
  return all(g <= x if most else g >= x for _, g, x, most in goals)


def main():
  """Runs the command; returns its exit code."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  data_runs.add_arguments(parser)
  # Used by the benchmark to start itself as one of the programs.
  parser.add_argument('--contestant', help=argparse.SUPPRESS)
  parser.add_argument('--output', help=argparse.SUPPRESS)
  parser.add_argument('--passes', type=int, help=argparse.SUPPRESS)
  f = parser.parse_args()
  f.input = f.input.split(',')
  if f.contestant == 'tokenizers':
    return huggingface(f.input, f.vocab, f.output, f.passes)
  if f.contestant == 'masking':
    batches = data_runs.masked_batches(f.output, ['train'], 0)
    return collections.deque(batches, 0) or None
  with tempfile.TemporaryDirectory(dir=f.scratch) as f.scratch:
    text = os.path.join(f.scratch, 'text')
    parts = data_runs.make_text(f.input, text, PARTS['ours'])
    best = measure(f, parts)
    ok = judge(best, table(f, parts, best))
  print(f'verdict: {"ok" if ok else "FAILED"}')
  return 0 if ok else 1


if __name__ == '__main__':
  sys.exit(main())
