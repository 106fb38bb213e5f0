"""A small corpus, recipes for it, and the bytes that were prepared of it."""

import functools
import hashlib
import random
import string

from bert_jax import config
from bert_jax.data import prepare, recipe
from bert_jax.runtime import storage
from bert_jax.tokenization import tokenizer

ONE = prepare.local_runner(0)  # in this process
BEAM = functools.partial(prepare.run_on_beam, options=['--runner=DirectRunner'])

# Pieces that spell every word of `write_corpus`.
LETTERS = [f'{mark}{c}' for mark in ('', '##') for c in string.ascii_lowercase]
LETTERS.append('.')

_WORDS = (
  'the a bird fish stone river cold warm runs sees under over quickly old new '
  'house tree cloud rain wind sun night day morning evening child woman man'
).split()


class Stopped(Exception):
  """What a runner raises that is interrupted."""


def stop_after(stage):
  """Returns a runner that is interrupted when a function's jobs are done."""

  def run(fn, jobs):
    yield from [fn(*job) for job in jobs]
    if fn is stage:
      raise Stopped

  return run


def write_corpus(path, documents: int = 120, seed: int = 0) -> str:
  """Writes documents of a sentence per line; returns the path."""
  rng = random.Random(seed)
  blocks = []
  for _ in range(documents):
    lines = [
      ' '.join(rng.choices(_WORDS, k=rng.randint(4, 12))) + '.'
      for _ in range(rng.randint(4, 12))
    ]
    blocks.append('\n'.join(lines))
  path.write_text('\n\n'.join(blocks), encoding='utf-8')
  return str(path)


def make_recipe(path: str, **changes) -> recipe.Recipe:
  """Returns the recipe for a text, with some of its attributes changed."""
  changes = {'lengths': (32, 64), 'inputs': (path,), **changes}
  c = config.declare_fields()
  c.data.update(
    input=','.join(changes.pop('inputs')),
    layout='sentences',
    min_chars=0,
    vocab_size=120,
    passes=2,
    heldout=0.1,
    shards=4,
  )
  c.phases.seq_length = changes.pop('lengths')
  c.seed = changes.pop('seed', 0)
  strip = str(changes.pop('strip_accents', None)).lower()
  c.data.strip_accents = strip.replace('none', 'auto')
  c.data.update(changes)
  return recipe.make_recipe(c)


def write_vocab(path, *words: str):
  """Writes a vocabulary of the special tokens and some words."""
  path.write_text('\n'.join([*tokenizer.SPECIAL, *words]) + '\n')


def digest(folder: str) -> dict[str, str]:
  """Returns {file name: SHA-256} of a folder, local or in a bucket."""
  return {
    name: hashlib.sha256(storage.read(f'{folder}/{name}')).hexdigest()
    for name in storage.list_names(folder)
  }
