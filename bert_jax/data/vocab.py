"""Trains a WordPiece vocabulary on text, and measures how well it fits.

Text is read, cleaned and counted by the jobs of `prepare`, so the vocabulary is
the same as a run trains for itself. After an interruption, run the same command
again to continue.

  python -m bert_jax.data.vocab --input='wiki/**/wiki_*' --size=30522 \\
    --output=vocab.txt
"""

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
  print(make(make_recipe(c), f.output, runner))


def make(recipe: Recipe, output: str, runner: stages.Runner) -> str:
  """Trains and writes a vocabulary, by way of `output`.partial; returns a report."""
  output = storage.resolve(output)
  partial = output + '.partial'
  advice = 'give a place where files can be made.'
  with (
    errors.explaining(f'the vocabulary {output} cannot be written', advice),
    lock.exclusive(output + '.lock'),
  ):
    text = stages.read(recipe, partial, runner)
    words, held = (
      stages.count_words(text, split, runner) for split in ('train', 'heldout')
    )
    vocab = vocab_pieces.train(words, recipe.vocab_size)
    tokenizer.write_vocab(vocab, output)
    storage.delete(partial)
  fit = vocab_pieces.measure(vocab, held)
  lines = [
    f'{output}: {recipe.vocab_size:,} pieces; accents are {text.accents}',
    f'held-out text of {held.total():,} words: {fit.tokens_per_word:.4f} tokens per '
    f'word, {fit.unknown:.4%} of the words unknown, {fit.whole:.2%} one token',
    *unknown.warn(
      fit.unknown_tokens, fit.unknown_characters, 'try a larger --size'
    ),
    *summary.warn_of_invalid(text.counts, text.inputs),
  ]
  return '\n'.join(lines)


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
