"""Compares sentence splitters with human annotation.

  pip install pysbd icukit-pyicu
  python benchmarks/measure/sentences.py --data=FOLDER

FOLDER holds Universal Dependencies treebanks anywhere below it, named as usual
(ko_gsd-ud-dev.conllu is Korean), and google_bert_sample_text.txt, English with
one sentence per line. Neighbouring sentences are joined, ten at a time or by
document, and a splitter has to find the boundaries. Precision, recall and F1
are of boundaries; MB/s counts UTF-8 on one core. A splitter that is not
installed, or does not support a language, is skipped with a message. Takes
about a minute.
"""

import argparse
import importlib
import pathlib
import sys
import time
from collections.abc import Callable, Iterator

_SAMPLE = 'google_bert_sample_text.txt'
_RUN = 10  # sentences that are joined where no document is marked
_UNSPACED = ('ja', 'zh')  # languages without a space between sentences
_SECONDS = 2  # of timing


def _sentencex(language):
  module = importlib.import_module('sentencex')
  return lambda text: module.segment(language, text)


def _pysbd(language):
  module = importlib.import_module('pysbd')
  return module.Segmenter(language=language, clean=False).segment


def _icu(language):
  icu = importlib.import_module('icu')
  breaks = icu.BreakIterator.createSentenceInstance(icu.Locale(language))

  def split(text):
    # Its offsets count UTF-16 units.
    units = text.encode('utf-16-le')
    breaks.setText(text)
    ends = [0, *breaks]
    return [
      units[2 * a : 2 * b].decode('utf-16-le')
      for a, b in zip(ends, ends[1:], strict=False)
    ]

  return split


CANDIDATES = {'sentencex': _sentencex, 'pysbd': _pysbd, 'PyICU': _icu}


def treebank(path: pathlib.Path) -> Iterator[list[str]]:
  """Yields the sentences of each document of a CoNLL-U file."""
  found = []
  for line in path.read_text('utf-8').split('\n'):
    if line.startswith('# newdoc') and len(found) > 1:
      yield found
      found = []
    elif line.startswith('# text = '):
      found.append(line.removeprefix('# text = ').strip())
  if found:
    yield found


def sample(path: pathlib.Path) -> Iterator[list[str]]:
  """Yields the sentences of each document of Google's sample text."""
  for document in path.read_text('utf-8').split('\n\n'):
    found = [line for line in document.split('\n') if line.strip()]
    if found:
      yield found


def gold(folder: pathlib.Path) -> Iterator[tuple[str, str, list[list[str]]]]:
  """Yields language, name and runs of sentences of each annotated text."""
  for path in sorted(folder.rglob(_SAMPLE)):
    yield 'en', path.stem, list(sample(path))
  for path in sorted(folder.rglob('*.conllu')):
    documents = list(treebank(path))
    # Treebanks of single sentences mark one document, or one per sentence.
    if len(documents) == 1 or sum(map(len, documents)) < 3 * len(documents):
      flat = [sentence for document in documents for sentence in document]
      documents = [flat[k : k + _RUN] for k in range(0, len(flat), _RUN)]
    yield path.name.split('_')[0], path.stem, documents


def boundaries(sentences: list[str]) -> set[int]:
  """Returns the end of each sentence but the last, not counting spaces."""
  out = set()
  count = 0
  for sentence in sentences:
    out.add(count)
    count += len(''.join(sentence.split()))
  return out - {0, count}


def score(split: Callable, documents: list[list[str]], joint: str):
  """Returns precision, recall, F1 and MB/s."""
  texts = [joint.join(document) for document in documents]
  hits = found = wanted = 0
  for document, text in zip(documents, texts, strict=True):
    right, got = boundaries(document), boundaries(list(split(text)))
    hits += len(right & got)
    found += len(got)
    wanted += len(right)
  size = 0
  start = time.perf_counter()
  while (seconds := time.perf_counter() - start) < _SECONDS:
    for text in texts:
      split(text)
      size += len(text.encode())
  precision, recall = hits / max(found, 1), hits / max(wanted, 1)
  f1 = 2 * hits / max(found + wanted, 1)
  return precision, recall, f1, size / seconds / 1e6


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data', required=True, help='folder of annotated texts')
  folder = pathlib.Path(parser.parse_args().data)
  texts = list(gold(folder))
  if not texts:
    sys.exit(f'error: no *.conllu and no {_SAMPLE} lies below {folder}.')
  print('| text | sentences | splitter | precision | recall | F1 | MB/s |')
  print('|---|---|---|---|---|---|---|')
  for language, name, documents in texts:
    joint = '' if language in _UNSPACED else ' '
    count = sum(map(len, documents))
    for candidate, make in CANDIDATES.items():
      start = f'| {language}: {name} | {count} | {candidate} |'
      try:
        split = make(language)
      except ImportError:
        print(f'{start} not installed ||||')
      except ValueError:
        print(f'{start} does not know the language ||||')
      else:
        p, r, f1, speed = score(split, documents, joint)
        print(f'{start} {p:.3f} | {r:.3f} | {f1:.3f} | {speed:.2f} |')
      sys.stdout.flush()


if __name__ == '__main__':
  main()
