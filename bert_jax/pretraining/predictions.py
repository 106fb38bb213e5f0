"""Computes what a model thinks of the tokens of a replayed row."""

import dataclasses
import functools

import jax
import numpy as np

from bert_jax import config as config_lib
from bert_jax.model import precision
from bert_jax.pretraining import pretrain
from bert_jax.pretraining import replay as replay_lib
from bert_jax.train import row_gradients

_GUESSES = 3  # words per prediction


@dataclasses.dataclass(frozen=True)
class Prediction:
  """What the model predicted for a token.

  Attributes:
    position: of the token in the row.
    truth: the token, a word piece.
    given: the piece that the model was shown at this position; None for a
      language model, which reads one way and did not see it.
    probability: of the truth.
    guesses: the likeliest pieces with their probabilities, likeliest first.
  """

  position: int
  truth: str
  given: str | None
  probability: float
  guesses: tuple[tuple[str, float], ...]


def predict(
  replay: replay_lib.Replay, row: int
) -> tuple[list[Prediction], list[tuple[bool, float]]]:
  """Computes the predictions of a row, with the dropout of training.

  Returns:
    (predictions, pairs): a prediction per masked token, in order; and per
    sentence pair whether its second text is random and the model's probability
    for that, [] without NSP.
  """
  one = {name: x[row : row + 1] for name, x in replay.batch.items()}
  key = row_gradients.find_key(
    replay.config, replay.phase, replay.number - 1, row
  )
  with precision.set_products(replay.config):
    mlm, nsp = _compute(
      precision.cast(replay.weights.params, replay.config.model.dtype),
      one,
      key,
      pretrain.make_module(replay.config),
      replay.tokenizer.size,
    )
  chances, *top = jax.device_get((mlm, *jax.lax.top_k(mlm, _GUESSES)))
  found = _name_predictions(replay, one, chances, *top)
  if nsp is None:
    return found, []
  present = one['next_sentence_weights'].reshape(-1) > 0
  labels = one['next_sentence_labels'].reshape(-1)[present] > 0
  random = np.asarray(nsp).reshape(-1)[present]
  return found, list(zip(labels.tolist(), random.tolist(), strict=True))


@functools.partial(jax.jit, static_argnames=('module', 'size'))
def _compute(params, one, key, module, size):
  """Returns probabilities: of words [P, V], and of a random second text."""
  mlm, nsp = module.apply(
    {'params': params},
    one,
    key is None,
    rngs=None if key is None else {'dropout': key},
  )
  # The embeddings may have padding rows, to make V divisible.
  words = jax.nn.softmax(mlm[0, :, :size])
  return words, None if nsp is None else jax.nn.softmax(nsp)[0, ..., 1]


def restore_tokens(
  replay: replay_lib.Replay, row: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the ids of a row before masking, and where tokens are masked.

  Returns:
    (ids, masked), [T] int and bool, without padding. A language model has
    no masks.
  """
  one = {name: x[row] for name, x in replay.batch.items()}
  ids, masked = one['input_ids'].copy(), np.zeros(len(one['input_ids']), bool)
  if replay.config.objective.kind == 'mlm':
    used = one['masked_lm_weights'] > 0
    at = one['masked_lm_positions'][used]
    ids[at], masked[at] = one['masked_lm_ids'][used], True
  tokens = one['input_mask'] > 0
  return ids[tokens], masked[tokens]


def _name_predictions(replay, one, chances, values, words):
  bert = config_lib.model_config(replay.config)
  vocab, causal = replay.tokenizer.vocab, bert.causal
  ids, positions, weights = (
    one[f'masked_lm_{name}'][0].tolist()
    for name in ('ids', 'positions', 'weights')
  )
  found = []
  for i in np.flatnonzero(weights).tolist():
    given = vocab[one['input_ids'][0, positions[i]]]
    guesses = zip(words[i].tolist(), values[i].tolist(), strict=True)
    found.append(
      Prediction(
        position=positions[i] + bert.target_offset,
        truth=vocab[ids[i]],
        given=None if causal else given,
        probability=float(chances[i, ids[i]]),
        guesses=tuple((vocab[word], p) for word, p in guesses),
      )
    )
  return found
