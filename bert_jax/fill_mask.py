"""Shows the words that a model expects in place of [MASK].

  python -m bert_jax.fill_mask --model=DIR "this function returns a [MASK] ."

DIR is a run's export/, or what `python -m bert_jax.convert` wrote. Give as
many sentences as you like, each in quotes and with one [MASK] or more.
"""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from bert_jax import errors
from bert_jax.interop import hf_load
from bert_jax.model import heads
from bert_jax.runtime import cli

_BAR = 24  # characters for a probability of 1
_LENGTH_STEP = 64  # tokens; lengths are rounded up so that few are compiled


def fill(params, config, with_nsp: bool, tokenizer, sentence: str, top=5):
  """Finds the likeliest words for each [MASK] of a sentence.

  Args:
    params: nested dict of arrays, as `heads.PretrainingModel` makes it.
    config: what the model is. A causal one sees only the words before a mask.
    with_nsp: whether it has the pooler and the NSP head.
    tokenizer: a `tokenizer.Tokenizer`.
    sentence: text with `[MASK]` in it.
    top: how many words for each mask.

  Returns:
    For each mask in order a list of `top` (word piece, probability), the
    likeliest first.

  Raises:
    errors.UserError: for a sentence without [MASK], one that is longer than
      the model's positions, and a `top` that is not in the vocabulary.
  """
  if not 1 <= top <= tokenizer.size:
    raise errors.UserError(
      f'top={top} is not a number of words from 1 to {tokenizer.size}.'
    )
  ids = tokenizer.encode(sentence)['input_ids']
  masks = [i for i, token in enumerate(ids) if token == tokenizer.mask_id]
  if not masks:
    raise errors.UserError(
      f'no [MASK] in {sentence!r}; write [MASK], in capitals, in place of the '
      'word to guess.'
    )
  if len(ids) > config.max_positions:
    raise errors.UserError(
      f'the sentence has {len(ids)} tokens with [CLS] and [SEP], the model '
      f'takes {config.max_positions}; shorten it.'
    )
  length = min(-len(ids) // _LENGTH_STEP * -_LENGTH_STEP, config.max_positions)
  padded = np.full((1, length), tokenizer.pad_id, np.int32)
  padded[0, : len(ids)] = ids
  # A causal model's vector at a position predicts the token that follows.
  positions = np.array([masks], np.int32) - config.causal
  batch = {
    'input_ids': padded,
    'input_mask': np.arange(length)[None] < len(ids),
    'segment_ids': np.zeros_like(padded),
    'masked_lm_positions': positions,
  }
  logits = _mlm_logits(params, batch, config, with_nsp)[0]  # [P, V]
  # A model may have more rows than there are words, to make V divisible.
  probabilities = jax.nn.softmax(logits[:, : tokenizer.size])
  values, words = jax.lax.top_k(probabilities, top)
  return [
    [(tokenizer.vocab[i], float(p)) for i, p in zip(*mask, strict=True)]
    for mask in zip(np.asarray(words), np.asarray(values), strict=True)
  ]


@functools.partial(jax.jit, static_argnames=('config', 'with_nsp'))
def _mlm_logits(params, batch, config, with_nsp):
  bert = heads.PretrainingModel(config, with_nsp)
  batch = jax.tree.map(jnp.asarray, batch)
  return bert.apply({'params': params}, batch)[0]  # [B, P, V]


def describe(sentence: str, guesses) -> str:
  """Returns a sentence and what `fill` made of it, as lines for a terminal."""
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
  flags.DEFINE_string('model', None, 'Folder of an exported model.')
  flags.DEFINE_integer('top', 5, 'How many words to show for each [MASK].')


def main(argv):
  # One sentence needs no accelerator, and it may be busy with training.
  jax.config.update('jax_platforms', 'cpu')
  sys.stdout.reconfigure(errors='replace')
  sentences = argv[1:]
  if not flags.FLAGS.model:
    raise errors.UserError('--model is missing; name an exported model.')
  if not sentences:
    raise errors.UserError(
      'no sentence; write one in quotes, such as "the [MASK] barked ."'
    )
  params, config, with_nsp, tokenizer = hf_load.load(flags.FLAGS.model)
  for i, sentence in enumerate(sentences):
    guesses = fill(
      params, config, with_nsp, tokenizer, sentence, flags.FLAGS.top
    )
    print(('\n' if i else '') + describe(sentence, guesses))


if __name__ == '__main__':
  _define_flags()
  cli.run(main, takes_arguments=True)
