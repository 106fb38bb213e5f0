"""Measures the speed and memory of data preparation, against `tokenizers`.

  python benchmarks/measure/data.py --input=wiki_extracted,novels \\
    --vocab=vocab.txt [--megabytes=80]

--input names folders of English WikiExtractor pages and of plain texts, one
document per file; --vocab is bert-base-uncased's. Their sentences are written once,
one per line; then `bert_jax.data.prepare` makes pairs of 128 tokens from them, and
`tokenizers` encodes a sixth of them (`encode_batch`) without making pairs.

Each program runs in its own process, bound to one or two cores, alternating with the
other; the faster of two rounds counts, and the larger memory: the resident set of the
largest process. Start-up, measured on a thousand tiny documents, is subtracted. Twice
the text, with one line of every document changed, shows whether memory grows with it.
The exit code is 1 if a goal is missed.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from bert_jax.corpus import document

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
ROUNDS, PART = 2, 2_000_000  # bytes of a file of sentences
ENCODE = """
import sys, tokenizers
vocab, *paths = sys.argv[1:]
wordpiece = tokenizers.BertWordPieceTokenizer(vocab, lowercase=True)
for path in paths:
  with open(path) as file:
    wordpiece.encode_batch(file.read().split('\\n'), add_special_tokens=False)
"""
# Goals: times the speed of tokenizers on a core, MB/s of two cores, MB of
# memory, and times the memory when the text doubles.
FASTER, SPEED, MEMORY, GROWTH = 3, 4, 500, 1.1


def read_documents(path):
  """Yields the paragraphs of WikiExtractor pages, or of a whole file."""
  text = path.read_text('utf-8')
  if text.startswith('<doc '):
    for page in re.findall(r'<doc .*?>\n(.*?)</doc>', text, re.DOTALL):
      yield page.split('\n')[1:]  # without the title
  else:
    yield re.split(r'\n\s*\n', text)


def make_text(inputs, folder, size) -> list[str]:
  """Writes files of sentences, blank lines between documents; returns paths."""
  files = [
    sorted(x for x in pathlib.Path(given).rglob('*') if x.is_file())
    for given in inputs
  ]
  # In turns, so that each file of sentences is a fair sample.
  longest = max(map(len, files))
  order = sorted(
    (i * longest // len(group), k, path)
    for k, group in enumerate(files)
    for i, path in enumerate(group)
  )
  paths, parts, written = [], [], 0
  for *_, path in order:
    for paragraphs in read_documents(path):
      text = document.fold(document.Document(paragraphs))
      parts.append('\n'.join(document.split(text, 'en')) + '\n\n')
    if sum(map(len, parts)) >= PART:
      paths.append(pathlib.Path(folder, f'part-{len(paths):03d}.txt'))
      written += paths[-1].write_text(''.join(parts), 'utf-8')
      parts = []
      if written >= size:
        return list(map(str, paths))
  sys.exit('error: there is too little text; lower --megabytes.')


def run(name, paths, vocab, passes, cores, folder) -> tuple[float, float]:
  """Returns the seconds and MB of a program on the first cores."""
  output = os.path.join(folder, 'output')
  shutil.rmtree(output, ignore_errors=True)
  command = [sys.executable, '-c', ENCODE, vocab, *paths]
  if name == 'ours':
    command = [sys.executable, '-m', 'bert_jax.data.prepare']
    command += [f'--input={",".join(paths)}', f'--vocab={vocab}']
    command += [f'--output={output}', f'--passes={passes}']
    command += ['--max_seq_length=128', '--layout=sentences']
    command += [f'--workers={cores}']
  allowed = sorted(os.sched_getaffinity(0))[:cores]
  env = {**os.environ, 'TOKENIZERS_PARALLELISM': 'false', 'PYTHONPATH': ROOT}
  begin = time.monotonic()
  process = subprocess.Popen(
    ['taskset', '-c', ','.join(map(str, allowed)), *command],
    env=env,
    stdout=subprocess.DEVNULL,
  )
  _, status, usage = os.wait4(process.pid, 0)
  process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    sys.exit(f'{" ".join(command)[:500]} failed')
  return time.monotonic() - begin, usage.ru_maxrss * 1024 / 1e6


def measure(vocab, folder, parts) -> dict[tuple, tuple[float, float, float]]:
  """Returns {(text, name, passes, cores): seconds, MB of memory, MB of text}."""
  tiny, twice = pathlib.Path(folder, 'tiny.txt'), list(parts)
  line = 'This is how document {} begins.\nHere is its end, too.\n\n'
  tiny.write_text(''.join(map(line.format, range(1000))))  # some are held out
  for path in parts:
    twice.append(path.replace('part-', 'copy-'))
    text = pathlib.Path(path).read_text('utf-8')
    text = text.replace('\n\n', '\nThis was a copy.\n\n')
    pathlib.Path(twice[-1]).write_text(text, 'utf-8')
  texts = {'tiny': [str(tiny)], 'text': parts, 'twice': twice}
  texts['sixth'] = parts[: max(1, len(parts) // 6)]
  cases = [('tiny', 'tokenizers', 1, 1), ('sixth', 'tokenizers', 1, 1)]
  cases += [('tiny', 'ours', 1, n) for n in (1, 2)]
  cases += [('text', 'ours', passes, n) for passes in (1, 10) for n in (1, 2)]
  cases.append(('twice', 'ours', 1, 2))
  best = {}
  for _ in range(ROUNDS):
    for case in cases:
      text, name, passes, cores = case
      found = run(name, texts[text], vocab, passes, cores, folder)
      before = best.get(case, found)
      size = sum(map(os.path.getsize, texts[text])) / 1e6
      best[case] = min(found[0], before[0]), max(found[1], before[1]), size
      print(f'{case}: {found[0]:.1f} s', flush=True)
  return best


def judge(best) -> bool:
  """Prints the table and each goal; returns whether all goals are met."""
  print('| | passes | cores | MB | MB/s | peak MB |\n' + '|---' * 6 + '|')
  speed = {}
  for (text, name, passes, cores), (seconds, memory, size) in best.items():
    if text != 'tiny':
      rate = size / (seconds - best['tiny', name, 1, cores][0])
      speed[text, passes, cores] = rate
      print(
        f'| {name}, {text} | {passes} | {cores} | {size:.1f} | {rate:.2f} | '
        f'{memory:.0f} |'
      )
  once, twice = (best[x, 'ours', 1, 2][1] for x in ('text', 'twice'))
  both = min(speed['text', n, 2] for n in (1, 10))
  faster = speed['text', 1, 1] / speed['sixth', 1, 1]
  goals = {
    f'{twice:.0f} MB at most {MEMORY}': twice <= MEMORY,
    f'{twice / once:.2f} of its memory at most {GROWTH}': twice
    <= GROWTH * once,
    f'{faster:.1f} times tokenizers, {FASTER}': faster >= FASTER,
    f'{both:.1f} MB/s on 2 cores, {SPEED}': both >= SPEED,
  }
  for text, good in goals.items():
    print(f'{"PASS" if good else "FAIL"}: {text}')
  return all(goals.values())


def main():
  """Runs the command; returns its exit code."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--input', required=True, help='folders of real text, comma-separated')
  add('--vocab', required=True, help="bert-base-uncased's vocab.txt")
  add('--megabytes', type=float, default=80, help='of text; default: 80')
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    parts = make_text(args.input.split(','), folder, args.megabytes * 1e6)
    good = judge(measure(args.vocab, folder, parts))
  print(f'verdict: {"ok" if good else "FAILED"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
