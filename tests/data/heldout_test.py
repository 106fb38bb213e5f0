"""Which text is held out, and where random second texts come from."""

import collections
import pickle
import random
import re

import numpy as np
import pytest

from bert_jax.data import document_spill, prepare
from tests.data import made, preparation
from tests.data.preparation import ONE, digest, make_recipe


def write_numbered(path, name: str, documents: int, sentences: int) -> str:
  """Writes documents of sentences like 'n1x17 a bird .'; returns the path."""
  rng = random.Random(name)
  blocks = [
    '\n'.join(
      f'{name}{d}x{s} {" ".join(rng.choices(preparation._WORDS, k=9))}.'
      for s in range(sentences)
    )
    for d in range(documents)
  ]
  path.write_text('\n\n'.join(blocks))
  return str(path)


def make(tmp_path, inputs, name='data', runner=ONE, **changes):
  """Prepares inputs with a piece for each character; returns the folder."""
  vocab = tmp_path / 'vocab.txt'
  letters = 'abcdefghijklmnopqrstuvwxyz0123456789.'
  words = [*preparation._WORDS, *letters[1:], *(f'##{x}' for x in letters)]
  preparation.write_vocab(vocab, *words)
  output = str(tmp_path / name)
  options = {
    'vocab': str(vocab),
    'vocab_size': len(words) + 5,
    'lengths': (64,),
    'short_seq_prob': 0.0,
    'heldout': 0.01,
    **changes,
  }
  recipe = make_recipe(inputs[0], inputs=tuple(inputs), **options)
  return output, prepare.prepare(recipe, output, runner)


def read_pairs(output, split):
  """Returns [(numbers of first text, those of second, is_random)] of rows."""
  return [
    (*(re.findall(r'\b([a-z])(\d+)x(\d+)\b', join(x)) for x in both), random)
    for random, *both in made.read_pairs(output, split, 64)
  ]


def join(tokens):
  return ' '.join(tokens).replace(' ##', '')


def find_sentences(output, split):
  """Returns {(input, document): set of sentence numbers} in a split."""
  found = collections.defaultdict(set)
  for first, second, _ in read_pairs(output, split):
    for name, document, sentence in first + second:
      found[name, int(document)].add(int(sentence))
  return found


def test_a_single_document_is_enough_and_no_sentence_is_on_both_sides(tmp_path):
  path = write_numbered(tmp_path / 'novel.txt', 'n', 1, 3000)
  output, manifest = make(tmp_path, [path])
  train = find_sentences(output, 'train')['n', 0]
  held = find_sentences(output, 'heldout')['n', 0]
  assert not train & held
  assert 0.05 < len(held) / 3000 < 0.15
  [given] = manifest['inputs']
  assert given['documents'] == 1 and given['heldout']['parts'] > 2
  share = given['heldout']['tokens'] / (
    given['heldout']['tokens'] + given['train']['tokens']
  )
  assert 0.05 < share < 0.15
  # Its parts are contiguous, and some sentences around them are left out.
  runs = np.split(sorted(held), np.flatnonzero(np.diff(sorted(held)) > 8) + 1)
  for run in runs:
    assert len(run) > 0.5 * (run[-1] - run[0] + 1)  # pairs are truncated
    around = {*range(run[0] - 8, run[0]), *range(run[-1] + 1, run[-1] + 9)}
    assert not train & around or run[0] < 8 or run[-1] > 2991


def test_copies_of_held_out_text_in_other_inputs_are_not_trained_on(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(document_spill, '_ENOUGH', 3000)
  few = write_numbered(tmp_path / 'few.txt', 'n', 40, 10)
  other = write_numbered(tmp_path / 'other.txt', 'w', 300, 10)
  many = tmp_path / 'many.txt'
  with open(few) as a, open(other) as b:
    many.write_text(f'{a.read()}\n\n{b.read()}')
  output, manifest = make(
    tmp_path, [str(many), few], weights=(1.0, 2.0), heldout=0.001
  )
  assert manifest['cleaned'] == {'duplicate_documents': 40}
  train, held = (find_sentences(output, s) for s in ('train', 'heldout'))
  assert held and not train.keys() & held.keys()
  assert sum(name == 'n' for name, _ in held) >= 3  # a tenth of the few


def draw_negatives(output, split):
  """Counts (input of the first text, input of the random second)."""
  return collections.Counter(
    (first[0][0], second[0][0])
    for first, second, is_random in read_pairs(output, split)
    if is_random and first and second
  )


@pytest.mark.parametrize(
  'negatives, low, high',
  # Of 220 documents 20; long ones are in parts, which weigh less.
  [('input', (1, 0), (1, 0)), ('uniform', (0.03, 0.03), (0.2, 0.2))],
)
def test_negatives_come_from_the_same_input_or_from_any_document(
  tmp_path, negatives, low, high
):
  # By text the inputs are equal, by documents 20 to 200.
  inputs = [
    write_numbered(tmp_path / 'long.txt', 'n', 20, 100),
    write_numbered(tmp_path / 'short.txt', 'w', 200, 10),
  ]
  output, _ = make(tmp_path, inputs, negatives=negatives, heldout=0.3)
  count = draw_negatives(output, 'train')
  for x, least, most in zip('nw', low, high, strict=True):
    share = count[x, 'n'] / (count[x, 'n'] + count[x, 'w'])
    assert least <= share <= most


def run_elsewhere(fn, jobs):
  """Runs copies of jobs, the last one first, as other processes might."""
  copies = pickle.loads(pickle.dumps(jobs))
  return [fn(*job) for job in reversed(copies)][::-1]


def test_neither_the_cut_of_inputs_nor_the_order_of_jobs_changes_a_byte(
  tmp_path, monkeypatch
):
  inputs = [
    write_numbered(tmp_path / 'long.txt', 'n', 3, 1000),
    write_numbered(tmp_path / 'short.txt', 'w', 300, 9),
  ]
  before, _ = make(tmp_path, inputs, 'before')
  monkeypatch.setattr('bert_jax.corpus.sources._SMALLEST', 9000)
  after, _ = make(tmp_path, inputs, 'after', run_elsewhere)
  assert digest(before) == digest(after)
