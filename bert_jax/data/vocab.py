"""Trains a WordPiece vocabulary on text, and measures how well it fits.

Text is read, cleaned and counted by the jobs of `prepare`, so the vocabulary is
the same as a run trains for itself. After an interruption, run the same command
again to continue.

  python -m bert_jax.data.vocab --input='wiki/**/wiki_*' --size=30522 \\
    --output=vocab.txt

docs/data.md compares the result with others.
"""

import collections
from collections.abc import Sequence

from absl import flags

from bert_jax import errors
from bert_jax.data import prepare, stages, summary, vocab_pieces
from bert_jax.data.recipe import Recipe, make_recipe
from bert_jax.runtime import cli, lock, storage
from bert_jax.tokenization import tokenizer, unknown

_SAME_NAMES = 'input strip_accents layout field language workers'
_FIELDS = {
  'size': 'data.vocab_size',
  **{name: f'data.{name}' for name in _SAME_NAMES.split()},
}


def _define_flags():
  from bert_jax.config import arguments

  arguments.define_flags(_FIELDS, input=None)
  flags.DEFINE_string('output', None, 'The vocabulary file to write.')
  flags.DEFINE_bool('cased', False, 'Keep case.')
  flags.DEFINE_list('beside', [], 'Vocabulary files to compare with.')
  flags.mark_flags_as_required(['input', 'output'])


def main():
  """Runs the command."""
  # Here, since worker processes import this module.
  from bert_jax.config import arguments, declare_fields

  f = flags.FLAGS
  cli.require_other(f.output, *f.input)
  c = declare_fields()
  arguments.update_by_flags(c, _FIELDS)
  c.data.lowercase = not f.cased
  runner = prepare.local_runner(c.data.workers)
  print(make(make_recipe(c), f.output, f.beside, runner))


def make(
  recipe: Recipe,
  output: str,
  beside: Sequence[str],
  runner: stages.Runner,
) -> str:
  """Trains and writes a vocabulary, by way of `output`.partial; returns a report."""
  others = {path: tokenizer.read_vocab(path) for path in beside}
  output = storage.resolve(output)
  partial = output + '.partial'
  advice = 'give a place where files can be made.'
  with (
    errors.explaining(f'the vocabulary {output} cannot be written', advice),
    lock.exclusive(output + '.lock'),
  ):
    text = stages.read(recipe, partial, runner)
    words, held = stages.count_words(text, ['train', 'heldout'], runner)
    vocab = vocab_pieces.train(words, recipe.vocab_size)
    tokenizer.write_vocab(vocab, output)
    storage.delete(partial)
  report = f'{output}: {recipe.vocab_size:,} pieces; accents are {text.accents}'
  if held:
    report += '\n' + describe({output: vocab, **others}, held)
  return '\n'.join([report, *summary.warn_of_invalid(text.counts, text.inputs)])


def describe(
  vocabs: dict[str, Sequence[str]], words: collections.Counter
) -> str:
  """Returns a table of how well vocabularies fit held-out words."""
  lines = [
    f'held-out text of {words.total():,} words',
    'tokens per word  unknown words  their characters  one-token words  vocabulary',
  ]
  fits = {name: vocab_pieces.measure(x, words) for name, x in vocabs.items()}
  for name, fit in fits.items():
    lines.append(
      f'{fit.tokens_per_word:15.4f}  {fit.unknown:13.4%}  '
      f'{fit.unknown_characters:16.4%}  {fit.whole:15.2%}  {name}'
    )
  [first, *_] = fits.values()
  shares = first.unknown_tokens, first.unknown_characters
  return '\n'.join(lines + unknown.warn(*shares, 'try a larger --size'))


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
