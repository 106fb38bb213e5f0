"""Compares ids and predicted words of an exported model with transformers'.

  python benchmarks/parity/hf_words.py --model=DIR --text=FILE --torch=PYTHON

PYTHON is the interpreter of an environment with torch and transformers 4 or 5;
DIR is an exported model. On 1,000 lines of the text AutoTokenizer must give our
ids; in 50 of them, with one word replaced by [MASK], the pipeline `fill-mask`
must predict our five words, in our order. The exit code is 1 if any differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

_LINES, _MASKED, _TOP = 1000, 50, 5
_MAX_CHARS = 300  # of a line, so that all of it fits the model


def read_lines(path):
  """Returns 1,000 lines spread over a file."""
  with open(path, encoding='utf-8') as file:
    lines = [line.strip() for line in file]
  lines = [x for x in lines if 20 <= len(x) <= _MAX_CHARS and '<' not in x]
  if len(lines) < _LINES:
    sys.exit(f'error: {path} has {len(lines)} lines of prose, not {_LINES}.')
  return [lines[i * len(lines) // _LINES] for i in range(_LINES)]


def mask(lines):
  """Returns some lines with the word in the middle replaced by [MASK]."""
  found = []
  for line in lines[:: _LINES // _MASKED]:
    words = line.split()
    words[len(words) // 2] = '[MASK]'
    found.append(' '.join(words))
  return found


def ours(model, lines, masked):
  """Returns (ids of each line, five words for each mask), from bert_jax."""
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from bert_jax.inference import fill
  from bert_jax.interop import hf_load

  params, config, with_nsp, words, _ = hf_load.read(model)
  ids = [words.encode(line)['input_ids'] for line in lines]
  guesses = [
    fill.fill(params, config, with_nsp, words, line, _TOP)[0] for line in masked
  ]
  return ids, [[word for word, _ in guess] for guess in guesses]


def theirs(model, lines, masked):
  """Returns the same, from transformers."""
  import transformers

  words = transformers.AutoTokenizer.from_pretrained(model)
  pipeline = transformers.pipeline('fill-mask', model=model, top_k=_TOP)
  guesses = [pipeline(line) for line in masked]
  return words(lines)['input_ids'], [
    [words.convert_ids_to_tokens(word['token']) for word in guess]
    for guess in guesses
  ]


def main():
  """Runs both sides; returns the exit code."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--model', required=True)
  parser.add_argument('--text', required=True)
  parser.add_argument('--torch', help='interpreter with torch and transformers')
  parser.add_argument('--output', help=argparse.SUPPRESS)
  args = parser.parse_args()
  lines = read_lines(args.text)
  if args.output:  # in the environment with torch
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(theirs(args.model, lines, mask(lines)), file)
    return 0
  if not args.torch:
    parser.error('--torch is needed')
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'theirs.json')
    given = [f'--model={args.model}', f'--text={args.text}']
    command = [args.torch, __file__, *given, f'--output={path}']
    subprocess.run(command, check=True)
    with open(path, encoding='utf-8') as file:
      their_ids, their_words = json.load(file)
  ids, words = ours(args.model, lines, mask(lines))
  ok = True
  for what, a, b in (
    ('lines with equal ids', ids, their_ids),
    ('masks with the same five words', words, their_words),
  ):
    same = sum(x == y for x, y in zip(a, b, strict=True))
    ok &= same == len(a)
    print(f'{same:,} of {len(a):,} {what}')
  print(f'for example {mask(lines)[0]}: {", ".join(words[0])}')
  print('PASS' if ok else 'FAIL')
  return 0 if ok else 1


if __name__ == '__main__':
  sys.exit(main())
