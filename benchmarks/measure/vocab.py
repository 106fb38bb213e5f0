"""Compares our vocabulary trainer with Hugging Face's WordPieceTrainer.

  python benchmarks/measure/vocab.py --input='books/*.txt' --input='wiki/**' \\
    --size=30522 --beside=bert-base-uncased/vocab.txt

All train on the same lines and are evaluated on the same held-out lines, the
last 200 of every 4,000. Each trainer runs in its own process, to measure its
time (including reading) and peak memory. Hugging Face's trainer runs with its
defaults, and with the limits that its BertWordPieceTokenizer sets: 1,000
characters, and pairs that occur at least twice.

Needs bert_jax and tokenizers. Exits with 1 unless ours is at least as good as
both in tokens per word and unknown words, faster, and smaller in memory.
"""

import argparse
import glob
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

_BLOCK, _BLOCKS = 200, 20  # lines; the last of 20 blocks is held out
_LIMITS = {'limit_alphabet': 1000, 'min_frequency': 2}
_ROLES = ('ours', 'ours-half', 'hf', 'hf-1000')
_NAMES = {
  'ours': 'ours',
  'ours-half': 'ours, half the text',
  'hf': 'Hugging Face',
  'hf-1000': 'Hugging Face, 1,000 characters',
}


def _lines(patterns):
  for pattern in patterns:
    for path in sorted(glob.glob(pattern, recursive=True)):
      if os.path.isfile(path):
        with open(path, encoding='utf-8-sig', errors='replace') as file:
          for line in file:
            # WikiExtractor's tags are not text.
            if line.strip() and not line.startswith(('<doc ', '</doc>')):
              yield line.rstrip('\n')


def _part(patterns, held_out):
  for n, line in enumerate(_lines(patterns)):
    if (n // _BLOCK % _BLOCKS == _BLOCKS - 1) == held_out:
      yield line


def _ours(texts, args):
  from bert_jax.data import vocab

  return vocab.train(vocab.count_words(texts, not args.cased), args.size)


def _hugging_face(texts, args, limits):
  import tokenizers

  from bert_jax.tokenization import tokenizer

  model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token='[UNK]'))
  model.normalizer = tokenizers.normalizers.BertNormalizer(
    lowercase=not args.cased, strip_accents=not args.cased
  )
  model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  trainer = tokenizers.trainers.WordPieceTrainer(
    vocab_size=args.size,
    special_tokens=list(tokenizer.SPECIAL),
    show_progress=False,
    **limits,
  )
  model.train_from_iterator(texts, trainer)
  return sorted(model.get_vocab(), key=model.get_vocab().get)


def _train(args):
  """Prints the result of one trainer as JSON; runs in the child process."""
  texts = _part(args.input, held_out=False)
  start = time.perf_counter()
  if args.role == 'ours':
    pieces = _ours(texts, args)
  elif args.role == 'ours-half':
    # Every second block, so that it is a half of each kind of text.
    half = (x for n, x in enumerate(texts) if n // _BLOCK % 2 == 0)
    pieces = _ours(half, args)
  else:
    limits = _LIMITS if args.role == 'hf-1000' else {}
    pieces = _hugging_face(texts, args, limits)
  seconds = time.perf_counter() - start
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
  with open(args.output, 'w', encoding='utf-8') as file:
    json.dump({'pieces': pieces, 'seconds': seconds, 'peak': peak}, file)


def _run(role, directory):
  """Runs one trainer in its own process and returns its result."""
  path = os.path.join(directory, role)
  subprocess.run(
    [sys.executable, *sys.argv, f'--role={role}', f'--output={path}'],
    check=True,
    stdout=subprocess.DEVNULL,
  )
  with open(path, encoding='utf-8') as file:
    return json.load(file)


def _report(made, fits):
  print(
    'tokens/word  unknown  one-token  characters  entries  seconds  peak MB'
    '  vocabulary'
  )
  for name, fit in fits.items():
    result = made.get(name, {})
    seconds, peak = (
      f'{result[key]:.1f}' if key in result else '-'
      for key in ('seconds', 'peak')
    )
    print(
      f'{fit.tokens_per_word:11.4f} {fit.unknown:8.4%} {fit.whole:10.2%}'
      f' {fit.characters:11.4%} {len(result.get("pieces", ())) or "-":>8}'
      f' {seconds:>8} {peak:>8}  {_NAMES.get(name, name)}'
    )


def _verdict(made, fits):
  """Prints how ours compares; returns whether it is best in everything."""
  good = True
  for role in ('hf', 'hf-1000'):
    a, b = fits['ours'], fits[role]
    checks = {
      'tokens per word': (a.tokens_per_word, b.tokens_per_word),
      'unknown words': (a.unknown, b.unknown),
      'seconds': (made['ours']['seconds'], made[role]['seconds']),
      'peak memory': (made['ours']['peak'], made[role]['peak']),
    }
    parts = [
      f'{name} {x / y - 1:+.2%}' if y else f'{name} {x:.4%} against none'
      for name, (x, y) in checks.items()
    ]
    good &= all(x <= y for x, y in checks.values())
    print(f'ours against {_NAMES[role]}: {", ".join(parts)}')
  growth = made['ours']['peak'] / made['ours-half']['peak']
  print(f'ours with twice the text: peak memory x {growth:.2f}')
  print('PASS' if good else 'FAIL')
  return good


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--input', action='append', required=True, help='a glob; may be repeated'
  )
  parser.add_argument('--size', type=int, default=30522)
  parser.add_argument('--cased', action='store_true')
  parser.add_argument(
    '--beside', action='append', default=[], help='a vocabulary to compare'
  )
  parser.add_argument('--role', choices=_ROLES, help=argparse.SUPPRESS)
  parser.add_argument('--output', help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.role:
    return _train(args)
  with tempfile.TemporaryDirectory() as directory:
    made = {role: _run(role, directory) for role in _ROLES}
  # Not earlier: a child's peak memory starts at that of its parent.
  from bert_jax.data import vocab, vocab_pieces
  from bert_jax.tokenization import tokenizer

  texts = list(_part(args.input, held_out=True))
  if not texts:
    sys.exit(f'error: fewer than {_BLOCK * _BLOCKS} lines; give more text.')
  words = vocab.count_words(texts, not args.cased)
  print(f'{words.total():,} held-out words; {os.cpu_count()} cores')
  fits = {
    role: vocab_pieces.measure(x['pieces'], words) for role, x in made.items()
  }
  for path in args.beside:
    fits[path] = vocab_pieces.measure(tokenizer.read_vocab(path), words)
  _report(made, fits)
  return 0 if _verdict(made, fits) else 1


if __name__ == '__main__':
  sys.exit(main())
