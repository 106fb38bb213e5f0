"""What the benchmarks of data preparation share: text, commands, runs.

Not a command; see data.py and data_statistics.py.
"""

import glob
import itertools
import os
import pathlib
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

from bert_jax.corpus import document, sentences
from bert_jax.data import dataset, hashing, masking
from bert_jax.runtime import progress
from bert_jax.tokenization import tokenizer

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
LENGTH, PREDICTIONS = 128, 20
PART = 2_000_000  # bytes of a file of sentences
MIN_CHARS = 200  # of a document; prepare would drop tiny ones

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


def make_text(inputs, folder, parts, longest=sys.maxsize, mark=''):
  """Writes parts of sentences, blank lines between documents; returns paths.

  Each part takes bytes from the inputs in proportion to their sizes, so that it
  is a fair sample. Documents of more than `longest` characters are split. No
  document occurs twice. Sentences of the first input end with `mark`.
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
          if k == 0:
            split = [sentence + mark for sentence in split]
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


# Prepared data.


def masked_batches(directory, splits, seed):
  """Yields all records of prepared data, masked, as the trainer does it."""
  words = tokenizer.Tokenizer.load(os.path.join(directory, 'vocab.txt'))
  for split in splits:
    reader = dataset.open_split(directory, split, LENGTH).reader
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


# One run.


def add_arguments(parser):
  add = parser.add_argument
  add('--input', required=True, help='Folders of real text, comma-separated.')
  add('--vocab', required=True, help="bert-base-uncased's vocab.txt.")
  add('--scratch', help='A folder with 3 GB of free space; default: /tmp.')


def prepare(paths, vocab, passes, cores, output, layout='sentences'):
  """Returns the command line that prepares texts."""
  return [
    *(sys.executable, '-m', 'bert_jax.data.prepare'),
    f'--input={",".join(paths)}',
    f'--output={output}',
    f'--vocab={vocab}',
    f'--passes={passes}',
    f'--layout={layout}',
    f'--max_seq_length={LENGTH}',
    f'--workers={cores}',
  ]


class Run(NamedTuple):
  """Costs of a run: seconds of wall clock and of all cores, memory in MB."""

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


def remove(path):
  """Removes the output of a run, its lock, or its file of features."""
  shutil.rmtree(path, ignore_errors=True)
  for name in glob.glob(glob.escape(path) + '*'):
    os.remove(name)
