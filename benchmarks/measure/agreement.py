"""Writes pairs of sentences for subject-verb agreement, as BLiMP's files.

  python benchmarks/measure/agreement.py --out=PAIRS
  python -m bert_jax.score --model=RUN --input=PAIRS --output=agreement.tsv

`attractors_N` has N nouns of the other number between a subject and its verb,
`distance_N` as many of the subject's number: who follows the nearest noun is
right about all of the latter, and wrong about all of the former but
`attractors_0`.
"""

import argparse
import itertools
import json
import pathlib
import random

_NOUNS = (
  ('man', 'men'),
  ('woman', 'women'),
  ('child', 'children'),
  *(
    (noun, noun + 's')
    for noun in 'boy girl king friend brother sister son soldier officer house '
    'town garden letter book tree horse ship door room street river'.split()
  ),
)
_PREPOSITIONS = 'near', 'behind', 'beside', 'before', 'with'
_VERBS = ('is', 'are'), ('was', 'were'), ('has been', 'have been')
_ENDS = 'here', 'old', 'very good', 'in the north', 'known to us'


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--out', required=True, help='a new folder')
  parser.add_argument('--pairs', type=int, default=500, help='of each kind')
  options = parser.parse_args()
  folder = pathlib.Path(options.out)
  folder.mkdir(parents=True)
  for kind, between in itertools.product(('attractors', 'distance'), range(4)):
    if (kind, between) == ('distance', 0):
      continue  # the same as attractors_0
    draw = random.Random(f'{kind} {between}')
    lines = [
      json.dumps(make_pair(draw, between, kind == 'attractors'))
      for _ in range(options.pairs)
    ]
    name = f'{kind}_{between}.jsonl'
    (folder / name).write_text('\n'.join(lines) + '\n', 'utf-8')


def make_pair(draw: random.Random, between: int, others: bool) -> dict:
  """Returns a pair with so many nouns between subject and verb.

  Args:
    others: whether these are of the other number than the subject.
  """
  plural = draw.random() < 0.5
  first, *rest = draw.sample(_NOUNS, 1 + between)
  words = ['the', first[plural]]
  for noun in rest:
    words += [draw.choice(_PREPOSITIONS), 'the', noun[plural != others]]
  verbs, end = draw.choice(_VERBS), draw.choice(_ENDS)
  good, bad = (
    ' '.join([*words, verbs[i], end]) + '.' for i in (plural, not plural)
  )
  return {'sentence_good': good, 'sentence_bad': bad}


if __name__ == '__main__':
  main()
