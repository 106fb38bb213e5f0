"""Prepares malformed text, and checks that it is counted.

  python benchmarks/proofs/bad_input.py --vocab=vocab.txt [--only=NAME]
    [--real=FOLDER ...]

Each case of TEXTS is prepared by `bert_jax.data.prepare` with one worker, beside
some good text: it must be counted or refused, in 500 MB and 10 minutes. --real adds files
or folders of real text (dumps, strings, pages). --vocab is Google's uncased. The
exit code is 1 if a case fails.
"""

import argparse
import bz2
import gzip
import itertools
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
LIMIT_MB, SECONDS = 500, 600
MB = 1 << 20
GOOD = '\n\n'.join(
  '\n'.join(
    f'In the year {1500 + k} there were {k * j + 1} ships in the old harbour.'
    for j in range(1, 9)
  )
  for k in range(200)
).encode()
WORDS = b'many words without end ' * 4348
PAGE = (
  '<page><title>x</title><ns>0</ns><id>1</id><revision><id>1</id><text>{}'
  '</text></revision></page>'
)
NESTED = '{{' * 200_000, '[[a|' * 100_000, "''" * 200_000, '{|\n|' * 50_000
OPENERS = {'.gz': gzip.open, '.xz': lzma.open, '.bz2': bz2.open}


def times(block: bytes, count: int):
  return itertools.repeat(block, count)


def make_dump(texts, end=None, head='') -> list[bytes]:
  pages = ''.join(map(PAGE.format, texts))[:end]
  return [f'{head}<mediawiki>{pages}</mediawiki>'.encode()]


ENTITIES = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "lol lol lol">' + (
  ''.join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 12)) + ']>'
)
HALVES = 'Half a pair \\ud83d of number {0}, and the other \\ude00 half. ' * 3
# {name: ({file: its parts}, what must be counted at least; None if the file is
# no text, and must be refused)}. A name that ends in .gz, .xz or .bz2 is compressed, unless it begins with 'raw'.
TEXTS = {
  'long_line': (
    {'line.txt': lambda: times(WORDS, 1000)},
    {'long_lines_cut': 95},
  ),
  'long_word': (
    {'word.txt': lambda: times(b'x' * 100_000, 1000)},
    {'long_lines_cut': 95},
  ),
  'long_json_line': (
    {'a.jsonl': lambda: [b'{"text": "', *times(WORDS, 1000), b'"}\n']},
    {'long_lines_dropped': 1},
  ),
  'empty_documents': (
    {'a.jsonl': lambda: times(b'{"text": ""}\n' * 1000, 1000)},
    {'empty_documents': 1_000_000},
  ),
  'blank_lines': ({'a.txt': lambda: times(b'\n \r\n\t\n' * 1000, 1000)}, {}),
  'short_documents': (
    {'a.txt': lambda: times(b'x\n\n' * 1000, 1000)},
    {'short_documents': 1_000_000},
  ),
  'copies': (
    {'a.txt': lambda: times(GOOD[:800] + b'\n\n', 20_000)},
    {'duplicate_documents': 19_999},
  ),
  'nul_bom_crlf': (
    {
      'a.txt': lambda: [
        b'\xef\xbb\xbf',
        GOOD.replace(b'\n', b'\r\n').replace(b'ships', b'shi\0ps'),
        b'\r\n\r\n' + b'\0' * 3000,
      ]
    },
    {'control_characters': 4600},
  ),
  'nul': ({'a.txt': lambda: [GOOD, b'\0' * 10_000_000]}, None),
  'latin1': (
    {'a.txt': lambda: [GOOD.replace(b'harbour', 'château'.encode('latin-1'))]},
    {'invalid_utf8': 1600},
  ),
  'random_bytes': (
    {'a.txt': lambda: [os.urandom(20_000_000)]},
    None,
  ),
  'surrogates': (
    {
      'a.jsonl': lambda: (
        f'{{"text": "{HALVES.format(k)}"}}\n'.encode() for k in range(1000)
      )
    },
    {'invalid_utf8': 6000},
  ),
  'cut_gzip': (
    {'raw.gz': lambda: [gzip.compress(GOOD * 9)[:-900]]},
    {'damaged_files': 1},
  ),
  'no_gzip': ({'raw.gz': lambda: [GOOD]}, {}),
  'bomb': (
    {f'a{end}': lambda: times(b'a' * MB, 300) for end in OPENERS},
    {'long_lines_cut': 800},
  ),
  'nul_bomb': ({'a.xz': lambda: times(b'\0' * MB, 300)}, None),
  'xml_bomb': (
    {
      'a.xml': lambda: make_dump(['&a11;']),
      'b.xml': lambda: make_dump(['&a11;'], head=ENTITIES),
    },
    {'damaged_files': 1},
  ),
  'nested_wikitext': ({'a.xml': lambda: make_dump(NESTED)}, {}),
  'cut_dump': (
    {'a.xml': lambda: make_dump([GOOD[:300].decode()] * 100, end=-30)},
    {'damaged_files': 1},
  ),
}


def write(folder: str, files: dict):
  """Writes the files of a case of TEXTS."""
  for name, parts in files.items():
    end = os.path.splitext(name)[1]
    opener = open if name.startswith('raw') else OPENERS.get(end, open)
    with opener(os.path.join(folder, name), 'wb') as file:
      for part in parts():
        file.write(part)


def prepare(vocab: str, inputs: list[str], output: str):
  """Runs the command; returns (exit code, seconds, MB, its output)."""
  # In its own process, so that ru_maxrss is that of this case alone.
  code = (
    'import resource, subprocess, sys\n'
    f'try: rc = subprocess.run(sys.argv[1:], timeout={SECONDS}).returncode\n'
    'except subprocess.TimeoutExpired: rc = "timeout"\n'
    'usage = resource.getrusage(resource.RUSAGE_CHILDREN)\n'
    'print("result", rc, usage.ru_maxrss // 1024)'
  )
  command = [
    *(sys.executable, '-c', code),
    *(sys.executable, '-m', 'bert_jax.data.prepare'),
    *(f'--input={",".join(inputs)}', f'--vocab={vocab}', f'--output={output}'),
    *('--workers=1', '--passes=1', '--heldout=0.05', '--shards=8'),
  ]
  begin, env = time.monotonic(), {**os.environ, 'PYTHONPATH': ROOT}
  done = subprocess.run(command, capture_output=True, text=True, env=env)
  *said, result = done.stdout.splitlines()
  _, rc, mb = result.split()
  return rc, time.monotonic() - begin, int(mb), '\n'.join(said) + done.stderr


def check_text(name, inputs, expected, vocab, scratch) -> bool:
  """Prepares text; returns whether it is counted, in bounded memory."""
  output = os.path.join(scratch, f'{name}.data')
  rc, seconds, mb, said = prepare(vocab, inputs, output)
  counts = {}
  if rc == '0':
    with open(os.path.join(output, 'manifest.json')) as file:
      found = json.load(file)
    documents = sum(found['documents'][x] for x in ('train', 'heldout'))
    counts = found['cleaned'] | {'documents': documents}
  wanted = expected or {}
  short = [f'{k} < {n}' for k, n in wanted.items() if counts.get(k, 0) < n]
  is_right = rc == '0' if expected is not None else 'is not text' in said
  ok = is_right and mb <= LIMIT_MB and not short
  listed = ', '.join(f'{k} {n:,}' for k, n in counts.items())
  verdict = 'ok' if ok else 'FAILED'
  print(f'{verdict:7}{name:18}{seconds:6.1f} s {mb:4} MB  {listed}', flush=True)
  if not ok:
    print(f'  exit {rc}, {short}\n  {said[-1500:]}')
  return ok


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--vocab', required=True)
  parser.add_argument('--real', nargs='*', default=[])
  parser.add_argument('--only', choices=TEXTS, help='run this case only')
  args = parser.parse_args()
  vocab, good = os.path.abspath(args.vocab), []
  with tempfile.TemporaryDirectory() as scratch:
    text = os.path.join(scratch, 'good.txt')
    pathlib.Path(text).write_bytes(GOOD)
    for name, (files, expected) in TEXTS.items():
      if args.only in (None, name):
        folder = os.path.join(scratch, name)
        os.mkdir(folder)
        write(folder, files)
        good.append(check_text(name, [text, folder], expected, vocab, scratch))
    for k, path in enumerate([] if args.only else args.real):
      good.append(check_text(f'real {k}', [text, path], {}, vocab, scratch))
  print(f'verdict: {"ok" if good and all(good) else "FAILED"}')
  return 0 if good and all(good) else 1


if __name__ == '__main__':
  sys.exit(main())
