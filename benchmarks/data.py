"""Text to finished records: speed, memory and statistics beside others.

  python benchmarks/data.py --input=wiki_extracted,novels --vocab=vocab.txt
  python benchmarks/data.py --statistics --input=... --vocab=...

--input names folders of WikiExtractor pages and of plain texts, one document
each, in English; --vocab is bert-base-uncased's. Documents of both kinds are
mixed and split into sentences once, in the layout that Google's script reads;
then all contestants read the same files:

  google      benchmarks/google_procedure.py (it masks while it prepares)
  tokenizers  the usual pipeline: Hugging Face tokenizers, pairs in plain Python
  ours        bert_jax.data.prepare; masks are drawn later, by the loader, so
              'ours, masked' adds reading and masking every record once

Each runs as a process of its own, bound to one core or two, in turns; the
faster of two rounds counts, and the larger memory. The start-up of google and tokenizers (the time of
a run on two tiny documents) is taken off, ours is charged in full. Memory is
the resident set of the largest process, and of all processes at one moment.
MB are 10^6 bytes of input text, counted once whatever the number of passes.

--statistics compares the pairs and masks of ours with google_procedure's over
several seeds on the same documents, in standard errors of the difference.

Both end with a verdict; exit code 1 if it is FAILED.
"""

import argparse
import collections
import glob
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

import google_procedure
import numpy as np

from bert_jax import progress, tokenizer
from bert_jax.data import document, hashing, loader, masking, sentences

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LENGTH, PREDICTIONS, ROUNDS = 128, 20, 2
PASSES = (1, 10)  # 10 is what Google's script does
PART = 2_000_000  # bytes of a file of sentences
# How many parts each contestant reads. Ours must be large, to fill its caches.
PARTS = {'google': 3, 'tokenizers': 6, 'ours': 20, 'masking': 20}
MIN_CHARS = 200  # of a document; prepare would drop tiny ones
REAL_BYTES = 20_000_000  # of each input in its own layout
# Short documents: one draws one target length, so that a few novels would
# decide the means, and hide what differs.
SEEDS, STATISTICS_PARTS, STATISTICS_CHARS = 12, 5, 15_000
HELDOUT = 0.03  # its records are counted with the others
GROWTH = 1.1  # of memory when the text doubles; more is not flat


# The text.


def read_documents(path):
  """Yields the paragraphs of WikiExtractor pages, or of a whole file."""
  with open(path, encoding='utf-8') as file:
    text = file.read()
  if text.startswith('<doc '):
    for page in re.findall(r'<doc .*?>\n(.*?)</doc>', text, re.DOTALL):
      yield page.split('\n')[1:]  # without the title
  else:
    yield re.split(r'\n\s*\n', text)


def files_of(given):
  found = glob.glob(os.path.join(given, '**'), recursive=True)
  return sorted(path for path in found if os.path.isfile(path))


def make_text(inputs, folder, parts, longest=sys.maxsize):
  """Writes parts of sentences, blank lines between documents; returns paths.

  The inputs give bytes in proportion to their sizes throughout, so that each
  part is a fair sample. Documents of more than `longest` characters become
  several. No document comes twice.
  """
  paths = [os.path.join(folder, f'part-{k:03d}.txt') for k in range(parts)]
  os.makedirs(folder, exist_ok=True)
  groups = [files_of(given) for given in inputs]
  sizes = [sum(map(os.path.getsize, group)) for group in groups]
  streams = [
    itertools.chain.from_iterable(map(read_documents, group))
    for group in groups
  ]
  taken, seen = [0.0] * len(groups), set()
  with progress.Progress(parts, 'files', 'making the text') as bar:
    for path in paths:
      with open(path, 'w', encoding='utf-8') as file:
        while file.tell() < PART:
          k = taken.index(min(taken))
          paragraphs = next(streams[k], None)
          if paragraphs is None:
            sys.exit(
              f'{inputs[k]} is too small; {parts * PART:,} bytes wanted.'
            )
          split = sentences.split(document.Document(paragraphs), 'en')
          for lines in cut(split, longest):
            taken[k] += len(lines) / sizes[k]
            if len(lines) >= MIN_CHARS and hash(lines) not in seen:
              seen.add(hash(lines))
              file.write(lines + '\n\n')
      bar.update(1)
  return paths


def cut(split, longest):
  """Yields the sentences of each document, joined by line ends."""
  lines, size = [], 0
  for sentence in split:
    lines.append(sentence)
    size += len(sentence)
    if size >= longest:
      yield '\n'.join(lines)
      lines, size = [], 0
  yield '\n'.join(lines)


# The contestants.


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
          documents, index, LENGTH, rng
        ):
          head = [is_random, len(first), len(second)]
          file.write(np.array(head + first + second, '<u2').tobytes())


def masked_batches(directory, splits, seed):
  """Yields all records of prepared data, masked, as the trainer does it."""
  words = tokenizer.Tokenizer.load(os.path.join(directory, 'vocab.txt'))
  for split in splits:
    reader = loader.open_split(directory, split, LENGTH).reader
    for start in range(0, len(reader), 256):
      record = np.arange(start, min(start + 256, len(reader)))
      yield masking.mask_tokens(
        reader.rows(record, LENGTH, words.cls_id, words.sep_id),
        hashing.mix(seed, len(split), record),
        unit='token',
        rate=google_procedure.MASK_RATE,
        mix=(0.8, 0.1, 0.1),
        max_predictions=PREDICTIONS,
        vocab_size=words.size,
        mask_id=words.mask_id,
        special=np.array([words.cls_id, words.sep_id]),
        continues=np.zeros(words.size, bool),  # of no use for tokens
      )


def command(name, paths, passes, cores, f, output, layout='sentences'):
  """Returns the command line of a contestant."""
  script = [os.path.join(ROOT, 'benchmarks', 'data.py'), f'--contestant={name}']
  if name == 'google':
    script = [os.path.join(ROOT, 'benchmarks', 'google_procedure.py')]
  if name == 'ours':
    script = ['-m', 'bert_jax.data.prepare', f'--layout={layout}']
    script += [f'--max_seq_length={LENGTH}', f'--workers={cores}']
    # A few novels must do for both splits.
    script += ['--heldout=0.3'] if layout == 'files' else []
  files = [f'--input={",".join(paths)}', f'--output={output}']
  options = [f'--vocab={f.vocab}', f'--passes={passes}']
  return [sys.executable, *script, *files, *options]


# One run.


class Run(NamedTuple):
  """What a run took: seconds of wall clock and of all cores, memory in MB."""

  wall: float
  cpu: float
  largest: float
  tree: float


def run(arguments, cores) -> Run:
  """Runs a command on the first cores that this process may use."""
  allowed = sorted(os.sched_getaffinity(0))[:cores]
  environment = {**os.environ, 'TOKENIZERS_PARALLELISM': 'false'}
  environment['PYTHONPATH'] = ROOT
  with tempfile.TemporaryFile('w+') as said:
    start = time.monotonic()
    process = subprocess.Popen(
      ['taskset', '-c', ','.join(map(str, allowed)), *arguments],
      env=environment,
      stdout=said,
      stderr=subprocess.STDOUT,
    )
    peaks, done = [0, 0], threading.Event()
    watch = threading.Thread(target=_watch, args=(process.pid, peaks, done))
    watch.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    done.set()
    watch.join()
    if process.returncode:
      said.seek(0)
      sys.exit(f'{" ".join(arguments)} failed:\n{said.read()[-3000:]}')
  return Run(wall, usage.ru_utime + usage.ru_stime, *(p / 1e6 for p in peaks))


def _watch(pid, peaks, done):
  """Keeps the peaks of (largest process, whole tree) in bytes."""
  while not done.wait(0.05):
    found = [_memory(p) for p in _tree(pid)]
    peaks[0] = max([peaks[0], *(peak for peak, _ in found)])
    peaks[1] = max(peaks[1], sum(now for _, now in found))


def _tree(pid):
  yield pid
  for path in glob.glob(f'/proc/{pid}/task/*/children'):
    try:
      with open(path) as file:
        children = file.read().split()
    except OSError:  # it ended
      children = []
    for child in children:
      yield from _tree(int(child))


def _memory(pid):
  """Returns (highest, present) resident bytes of a process."""
  try:
    with open(f'/proc/{pid}/status') as file:
      text = file.read()
  except OSError:
    return 0, 0
  found = [re.search(rf'{key}:\s+(\d+) kB', text) for key in ('VmHWM', 'VmRSS')]
  return tuple(int(match[1]) * 1024 if match else 0 for match in found)


# Speed and memory.


def measure(f, parts):
  """Runs everything in turns; returns {(name, passes, cores): Run}."""
  output = os.path.join(f.scratch, 'output')
  tiny = os.path.join(f.scratch, 'tiny.txt')
  with open(tiny, 'w', encoding='utf-8') as file:
    file.write('A sentence.\nAnother one.\n\nA text.\nIts end.\n')
  best: dict[tuple, Run] = {}

  def one(label, name, paths, passes, cores, layout='sentences'):
    if name != 'masking':  # which reads what 'ours' has made
      remove(output)
    found = run(command(name, paths, passes, cores, f, output, layout), cores)
    key = (label, passes, cores)
    before = best.get(key, found)
    times = min(found[:2], before[:2])
    best[key] = Run(*times, *map(max, found[2:], before[2:]))
    print(
      f'{label}, {passes} passes, {cores} cores: {found.wall:.1f} s', flush=True
    )

  for _ in range(ROUNDS):
    for name in ('google', 'tokenizers'):
      one(name + ' start', name, [tiny], 1, 1)
    for passes, name in itertools.product(PASSES, PARTS):
      for cores in (2, 1) if name == 'ours' else (1,):
        one(name, name, parts[: PARTS[name]], passes, cores)
  one('doubled', 'ours', parts[: 2 * PARTS['ours']], 1, 2)
  for given in f.input:
    one(given, 'ours', some_of(given), 1, 2, 'files')
  remove(output)
  return best


def some_of(given):
  """Returns the first files of a folder, REAL_BYTES or all."""
  paths = files_of(given)
  sizes = itertools.accumulate(map(os.path.getsize, paths))
  return [path for path, n in zip(paths, sizes, strict=True) if n <= REAL_BYTES]


def remove(path):
  shutil.rmtree(path, ignore_errors=True)
  for name in glob.glob(glob.escape(path) + '*'):  # a lock, a file of features
    os.remove(name)


def table(f, parts, best):
  """Prints speeds and memory; returns the MB/s of each row."""
  size = {n: sum(map(os.path.getsize, parts[:k])) for n, k in PARTS.items()}
  speed = {}
  print(
    f'{"":<16} {"passes":>6} {"cores":>5} {"MB":>6} {"s":>6} {"cpu s":>6} '
    f'{"MB/s":>6} '
    f'{"x google":>8} {"x tok.":>7} {"peak MB":>7} {"all MB":>6}'
  )

  def row(name, passes, cores, amount, seconds, cpu, *peaks):
    speed[name, passes, cores] = rate = amount / 1e6 / seconds
    ratios = [
      rate / cores / speed.get((other, passes, 1), float('nan'))
      for other in ('google', 'tokenizers')
    ]
    print(
      f'{name[-16:]:<16} {passes:6} {cores:5} {amount / 1e6:6.1f} {seconds:6.1f} '
      f'{cpu:6.1f} {rate:6.2f} {ratios[0]:8.1f} {ratios[1]:7.1f} '
      + ' '.join(f'{p:{w}.0f}' for p, w in zip(peaks, (7, 6), strict=True))
    )

  for passes in PASSES:
    for name in ('google', 'tokenizers'):
      found, start = best[name, passes, 1], best[name + ' start', 1, 1]
      wall, cpu = found.wall - start.wall, found.cpu - start.cpu
      row(name, passes, 1, size[name], wall, cpu, *found[2:])
    for cores in (1, 2):
      found = best['ours', passes, cores]
      row('ours', passes, cores, size['ours'], *found)
      if cores == 1:
        more = best['masking', passes, 1]
        wall, cpu = found.wall + more.wall, found.cpu + more.cpu
        peaks = map(max, found[2:], more[2:])
        row('ours, masked', passes, 1, size['ours'], wall, cpu, *peaks)
  others = [('doubled', sum(map(os.path.getsize, parts)))]
  others += [(g, sum(map(os.path.getsize, some_of(g)))) for g in f.input]
  for name, amount in others:
    row(name, 1, 2, amount, *best[name, 1, 2])
  return speed


def judge(best, speed):
  """Prints each goal; returns whether all are met."""
  single, double = best['ours', 1, 2], best['doubled', 1, 2]
  goals = []
  for n in PASSES:
    ours, of = speed['ours', n, 1], f'at {n} pass(es)'
    goals += [
      (f'times google {of}', ours / speed['google', n, 1], 20, False),
      (f'times tokenizers {of}', ours / speed['tokenizers', n, 1], 3, False),
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


# Statistics.


def ours_by_seed(f, parts, vocab, documents):
  """Yields the statistics of our records, one preparation for each seed."""
  output = os.path.join(f.scratch, 'output')
  for seed in range(SEEDS):
    remove(output)
    options = [f'--seed={seed}', f'--heldout={HELDOUT}']
    run([*command('ours', parts, 1, 2, f, output), *options], 2)
    with open(os.path.join(output, 'manifest.json'), encoding='utf-8') as file:
      found = json.load(file)['documents']
    if found['train'] + found['heldout'] != documents:
      sys.exit(f'ours has other documents: {found}, not {documents}.')
    batches = list(masked_batches(output, ('train', 'heldout'), seed))
    rows = {k: np.concatenate([b[k] for b in batches]) for k in batches[0]}
    print(f'ours, seed {seed}: {len(rows["input_ids"]):,} pairs', flush=True)
    yield google_procedure.statistics(rows, documents, vocab['[MASK]'])


def google_by_seed(vocab, documents):
  """Yields the statistics of google_procedure, for each seed."""
  dtype = google_procedure.features_type(LENGTH, PREDICTIONS)
  for seed in range(SEEDS):
    examples = google_procedure.make_examples(
      documents,
      list(vocab),
      seed=seed,
      max_seq_length=LENGTH,
      max_predictions=PREDICTIONS,
      passes=1,
    )
    rows = google_procedure.to_features(examples, vocab, dtype)
    print(f'google, seed {seed}: {len(rows):,} pairs', flush=True)
    yield google_procedure.statistics(rows, len(documents), vocab['[MASK]'])


def compare(f, parts):
  """Prints both sides; returns whether all rows agree within 3 sigma."""
  vocab = google_procedure.read_vocab(f.vocab)
  documents = google_procedure.read_documents(
    parts, lambda line: google_procedure.tokenize(line, vocab)
  )
  theirs = list(google_by_seed(vocab, documents))
  ours = list(ours_by_seed(f, parts, vocab, len(documents)))
  print(f'{"":<28} {"ours":>9} {"google":>9} {"sigma":>9} {"off by":>7}')
  worst = 0.0
  for name in ours[0]:
    a, b = ([one[name] for one in side] for side in (ours, theirs))
    sigma = np.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / SEEDS)
    off = (np.mean(a) - np.mean(b)) / max(sigma, 1e-12)
    worst = max(worst, abs(off))
    print(
      f'{name:<28} {np.mean(a):9.4f} {np.mean(b):9.4f} {sigma:9.5f} '
      f'{off:+7.2f} {"PASS" if abs(off) <= 3 else "FAIL"}'
    )
  print(f'{SEEDS} seeds each, {len(documents)} documents; worst: {worst:.2f}')
  return worst <= 3


def main():
  """Runs the command; returns its exit code."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--input', required=True, help='Folders of real text, with commas.')
  add('--vocab', required=True, help="bert-base-uncased's vocab.txt.")
  add('--scratch', help='A folder with 1 GB of room, instead of /tmp.')
  add('--statistics', action='store_true', help='Compare pairs and masks.')
  # How the benchmark starts contestants of its own.
  add('--contestant', help=argparse.SUPPRESS)
  add('--output', help=argparse.SUPPRESS)
  add('--passes', type=int, help=argparse.SUPPRESS)
  f = parser.parse_args()
  f.input = f.input.split(',')
  if f.contestant == 'tokenizers':
    return huggingface(f.input, f.vocab, f.output, f.passes)
  if f.contestant == 'masking':
    return collections.deque(masked_batches(f.output, ['train'], 0), 0) or None
  with tempfile.TemporaryDirectory(dir=f.scratch) as f.scratch:
    text = os.path.join(f.scratch, 'text')
    if f.statistics:
      parts = make_text(f.input, text, STATISTICS_PARTS, STATISTICS_CHARS)
      ok = compare(f, parts)
    else:
      parts = make_text(f.input, text, 2 * PARTS['ours'])
      best = measure(f, parts)
      ok = judge(best, table(f, parts, best))
  print(f'verdict: {"ok" if ok else "FAILED"}')
  return 0 if ok else 1


if __name__ == '__main__':
  sys.exit(main())
