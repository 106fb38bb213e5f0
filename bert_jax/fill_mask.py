"""Shows the words that a model expects in place of [MASK].

  python -m bert_jax.fill_mask --model=PATH "this function returns a [MASK] ."

PATH is the --workdir of a run, its export/, or another model with an MLM head
that bert_jax.convert reads: a Hugging Face or Google folder. Give as many
sentences as you like, each in quotes and with one [MASK] or more. Text right
after [MASK] is the next word.
"""

import sys
from collections.abc import Sequence

import jax
from absl import flags

from bert_jax import errors, trained
from bert_jax.inference import source
from bert_jax.runtime import cli

_BAR = 24  # length of the bar for a probability of 1, characters


def describe(sentence: str, guesses: Sequence[list[tuple[str, float]]]) -> str:
  """Returns a sentence and its guesses from `fill`, as lines to print."""
  lines = [sentence]
  width = max(len(word) for words in guesses for word, _ in words)
  for i, words in enumerate(guesses, start=1):
    if len(guesses) > 1:
      lines.append(f'  [MASK] {i} of {len(guesses)}')
    for word, probability in words:
      bar = '█' * round(probability * _BAR)
      lines.append(f'  {word:<{width}}  {probability:6.1%}  {bar}'.rstrip())
  return '\n'.join(lines)


def _define_flags():
  flags.DEFINE_string('model', None, 'A run, its export or another model.')
  flags.DEFINE_integer('top', 5, 'How many words to show for each [MASK].', 1)
  flags.mark_flag_as_required('model')


def main(argv: list[str]):
  # A sentence needs no accelerator, which may be busy with training.
  jax.config.update('jax_platforms', 'cpu')
  sentences = argv[1:]
  if not sentences:
    raise errors.UserError(
      'no sentence; write one in quotes, such as "the [MASK] barked ."'
    )
  model = trained.Model(source.read(flags.FLAGS.model))
  guesses = model.fill_mask(sentences, flags.FLAGS.top)
  words = model.source.tokenizer
  for i, sentence in enumerate(sentences):
    print(('\n' if i else '') + describe(sentence, guesses[i]))
    ids = words.encode(sentence)['input_ids']
    if unknown := ids.count(words.unk_id) - sentence.count('[UNK]'):
      count = errors.count(unknown, 'word')
      line = f"WARNING: {count} of it cannot be spelt by the model's vocabulary"
      print(line, file=sys.stderr)


if __name__ == '__main__':
  _define_flags()
  cli.run(main, takes_arguments=True, resumes=False)
