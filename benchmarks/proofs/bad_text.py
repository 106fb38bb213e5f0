"""Checks how data preparation handles malformed text.

Each case is a folder of generated or real files plus some good text, prepared
by `bert_jax.data.prepare` with one worker. Prints exit code, seconds, peak
memory and counts; fails if a case crashes, takes more than 10 minutes or 500
MB, or does not count what it should.

  python benchmarks/proofs/bad_text.py --vocab=vocab.txt [--real=FOLDER ...]

--real adds files or folders of real text (dumps, strings, pages), each as a
case.
"""

import argparse
import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time

_LIMIT_MB = 500
_SECONDS = 600
_GOOD = '\n\n'.join(
  '\n'.join(
    f'In the year {1500 + k} there were {k * j + 1} ships in the old harbour.'
    for j in range(1, 9)
  )
  for k in range(200)
).encode()


def _repeated(path: str, block: bytes, times: int, opener=open):
  with opener(path, 'wb') as file:
    for _ in range(times):
      file.write(block)


def long_line(folder):
  _repeated(
    os.path.join(folder, 'line.txt'), b'many words without end ' * 4348, 1000
  )


def long_word(folder):
  _repeated(os.path.join(folder, 'word.txt'), b'x' * 100_000, 1000)


def long_json_line(folder):
  with open(os.path.join(folder, 'a.jsonl'), 'w') as file:
    file.write('{"text": "')
    for _ in range(1000):
      file.write('many words without end ' * 4348)
    file.write('"}\n')
    file.write(json.dumps({'text': 'A short line of JSON that is good. ' * 3}))


def empty_documents(folder):
  _repeated(os.path.join(folder, 'a.jsonl'), b'{"text": ""}\n' * 1000, 1000)


def blank_lines(folder):
  _repeated(os.path.join(folder, 'a.txt'), b'\n \r\n\t\n' * 1000, 1000)


def short_documents(folder):
  _repeated(os.path.join(folder, 'a.txt'), b'x\n\n' * 1000, 1000)


def copies(folder):
  _repeated(os.path.join(folder, 'a.txt'), _GOOD[:800] + b'\n\n', 20_000)


def nul_bom_crlf(folder):
  text = _GOOD.replace(b'\n', b'\r\n').replace(b'ships', b'shi\0ps')
  with open(os.path.join(folder, 'a.txt'), 'wb') as file:
    file.write(b'\xef\xbb\xbf' + text + b'\r\n\r\n' + b'\0' * 10_000_000)


def latin1(folder):
  with open(os.path.join(folder, 'a.txt'), 'wb') as file:
    file.write(_GOOD.replace(b'harbour', 'château'.encode('latin-1')))


def random_bytes(folder):
  with open(os.path.join(folder, 'a.txt'), 'wb') as file:
    file.write(os.urandom(20_000_000))


def surrogates(folder):
  with open(os.path.join(folder, 'a.jsonl'), 'w') as file:
    for k in range(1000):
      text = f'Half a pair \\ud83d of number {k}, and the other \\ude00 half. '
      file.write('{"text": "' + text * 3 + '"}\n')


def cut_gzip(folder):
  whole = gzip.compress(os.urandom(1000).hex().encode() + _GOOD * 20)
  with open(os.path.join(folder, 'a.txt.gz'), 'wb') as file:
    file.write(whole[: len(whole) // 2])


def no_gzip(folder):
  with open(os.path.join(folder, 'a.txt.gz'), 'wb') as file:
    file.write(_GOOD)


def bomb(folder):
  """Writes a GB of the letter a, and one of NUL, in a few hundred kB."""
  for name, opener in (
    ('a.gz', gzip.open),
    ('b.xz', lzma.open),
    ('c.bz2', bz2.open),
  ):
    _repeated(os.path.join(folder, name), b'a' * (1 << 20), 300, opener)
    _repeated(os.path.join(folder, '0' + name), bytes(1 << 20), 300, opener)


def xml_bomb(folder):
  lines = ['<!DOCTYPE x [<!ENTITY a0 "lol lol lol">']
  lines += [f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 12)]
  page = '<page><title>x</title><ns>0</ns><id>1</id><revision><id>1</id>'
  with open(os.path.join(folder, 'a.xml'), 'w') as file:
    # A file that declares entities is not a dump; it is read as plain text.
    file.write('<mediawiki>' + page + '<text>&a11;</text></revision></page>')
  with open(os.path.join(folder, 'b.xml'), 'w') as file:
    file.write(
      '<?xml version="1.0"?>'
      + '\n'.join(lines)
      + ']>\n<mediawiki>'
      + page
      + '<text>&a11;</text></revision></page></mediawiki>'
    )


def nested_wikitext(folder):
  page = (
    '<page><title>x</title><ns>0</ns><id>1</id><revision><id>1</id><text>{}'
    '</text></revision></page>'
  )
  bodies = ('{{' * 200_000, '[[a|' * 100_000, "''" * 200_000, '{|\n|' * 50_000)
  with open(os.path.join(folder, 'a.xml'), 'w') as file:
    file.write('<mediawiki>' + ''.join(map(page.format, bodies)))
    file.write('</mediawiki>')


def cut_dump(folder):
  page = (
    '<page><title>x</title><ns>0</ns><id>1</id><revision><id>1</id><text>'
    'A page about number {}, which is long enough to be kept as text.'
    '</text></revision></page>'
  )
  pages = ''.join(page.format(k) for k in range(100))
  with open(os.path.join(folder, 'a.xml'), 'w') as file:
    file.write('<mediawiki>' + pages[:-30])


# What must be counted.
CASES = {
  long_line: {'long_lines_cut': 95},
  long_word: {'long_lines_cut': 95},
  long_json_line: {'long_lines_dropped': 1},
  empty_documents: {'empty_documents': 1_000_000},
  blank_lines: {},
  short_documents: {'short_documents': 1_000_000},
  copies: {'duplicate_documents': 19_999},
  nul_bom_crlf: {'control_characters': 10_001_600},
  latin1: {'invalid_utf8': 1600},
  random_bytes: {'invalid_utf8': 1_000_000, 'control_characters': 100_000},
  surrogates: {'invalid_utf8': 6000},
  cut_gzip: {'damaged_files': 1},
  no_gzip: {'damaged_files': 1},
  bomb: {'control_characters': 900 << 20, 'long_lines_cut': 800},
  xml_bomb: {'damaged_files': 1},
  nested_wikitext: {},
  cut_dump: {'damaged_files': 1},
}


def prepare(vocab: str, inputs: list[str], output: str):
  """Runs the command; returns (exit code, seconds, MB, its output)."""
  begin = time.monotonic()
  # In its own process, so that ru_maxrss is that of this case alone.
  code = (
    'import resource, subprocess, sys\n'
    f'try: rc = subprocess.run(sys.argv[1:], timeout={_SECONDS}).returncode\n'
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
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  *said, result = done.stdout.splitlines()
  _, rc, mb = result.split()
  return rc, time.monotonic() - begin, int(mb), '\n'.join(said) + done.stderr


def counted(output: str) -> dict:
  with open(os.path.join(output, 'manifest.json')) as file:
    found = json.load(file)
  return {
    **found['cleaned'],
    'documents': sum(found['documents'][s] for s in ('train', 'heldout')),
  }


def case(name: str, inputs, expected: dict, vocab: str, scratch: str) -> bool:
  output = os.path.join(scratch, name + '.data')
  rc, seconds, mb, said = prepare(vocab, inputs, output)
  counts = counted(output) if rc == '0' else {}
  short = [
    f'{k}={counts.get(k, 0)} < {n}'
    for k, n in expected.items()
    if counts.get(k, 0) < n
  ]
  ok = rc == '0' and mb <= _LIMIT_MB and not short
  listed = ', '.join(f'{k} {n:,}' for k, n in counts.items())
  print(
    f'{"ok" if ok else "FAILED":7}{name:18}{seconds:6.1f} s {mb:4} MB  '
    f'{listed}',
    flush=True,
  )
  if not ok:
    print(f'  exit {rc}, {short}\n  {said[-1500:]}')
  return ok


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--vocab', required=True)
  parser.add_argument('--real', nargs='*', default=[])
  parser.add_argument('--only', help='run the case of this name only')
  args = parser.parse_args()
  ok = True
  with tempfile.TemporaryDirectory() as scratch:
    good = os.path.join(scratch, 'good.txt')
    with open(good, 'wb') as file:
      file.write(_GOOD)
    ok &= case('good', [good], {'documents': 200}, args.vocab, scratch)
    for make, expected in CASES.items():
      if args.only in (None, make.__name__):
        folder = os.path.join(scratch, make.__name__)
        os.mkdir(folder)
        make(folder)
        ok &= case(make.__name__, [good, folder], expected, args.vocab, scratch)
    for n, path in enumerate([] if args.only else args.real):
      name = f'{n}-{os.path.basename(path.rstrip("/"))[:16]}'
      ok &= case(name, [good, path], {}, args.vocab, scratch)
  print(f'verdict: {"ok" if ok else "FAILED"}')
  sys.exit(not ok)


if __name__ == '__main__':
  main()
