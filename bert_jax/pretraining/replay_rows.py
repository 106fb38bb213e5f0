"""Computes loss, gradient and predictions of each row of a replayed step.

The losses and gradients of the rows add up to the batch's, so they show which
rows made it large or not finite.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import config_dict

from bert_jax.config import model_config
from bert_jax.model import precision
from bert_jax.pretraining import pretrain
from bert_jax.pretraining.replay import Replay
from bert_jax.train import gradient, task
from bert_jax.train.step import run_key

_GUESSES = 3  # words per prediction


@dataclasses.dataclass(frozen=True)
class Rows:
  """What each of the B rows of a batch contributes to its update.

  Attributes:
    losses: float64 [B]; a row's sum of each loss divided by the batch's count.
      They add up to the batch's loss.
    grad_norms: float64 [B], norms of the gradients of `losses`.
    grad_norm: norm of the sum of these gradients, before clipping.
    sums, counts: {metric: float64 [B]}.
  """

  losses: np.ndarray
  grad_norms: np.ndarray
  grad_norm: float
  sums: dict[str, np.ndarray]
  counts: dict[str, np.ndarray]


def measure(replay: Replay, done: Callable[[int], None]) -> Rows:
  """Computes loss and gradient of each row on one device, one at a time."""
  config, objective, batch = replay.config, replay.objective, replay.batch
  params = precision.cast(replay.params, config.model.dtype)
  # Placed like the sums that follow, or the second row would be compiled anew.
  total = jax.device_put(
    jax.tree.map(lambda x: np.zeros(x.shape, np.float32), params),
    jax.devices()[0],
  )
  # Divided by the counts of the whole batch, as in training.
  counts = jax.device_get(objective.counts(jax.tree.map(jnp.asarray, batch)))
  add_row = jax.jit(
    functools.partial(_add_row, config, objective, counts), donate_argnums=1
  )
  found = []
  for i in range(len(batch['input_mask'])):
    row = {name: x[i : i + 1] for name, x in batch.items()}
    key = find_key(config, replay.phase, replay.number - 1, i)
    total, facts = add_row(params, total, row, key)
    found.append(jax.device_get(facts))
    done(1)
  stacked = jax.tree.map(lambda *x: np.array(x, np.float64), *found)
  return Rows(**stacked, grad_norm=float(optax.tree.norm(total)))


def _add_row(config, objective, counts, params, total, row, key):
  """Returns (total with the gradient of a row, facts about the row)."""

  def loss_fn(params):
    sums, _ = objective.compute(params, row, key)
    return sum(
      sums[name] / max(counts[name], 1.0) for name in objective.losses
    ), sums

  with precision.set_products(config):
    grad = jax.value_and_grad(loss_fn, has_aux=True)
    (loss, sums), grads = grad(params)
  grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
  return jax.tree.map(jnp.add, total, grads), {
    'losses': loss,
    'grad_norms': optax.tree.norm(grads),
    'sums': sums,
    'counts': objective.counts(row),
  }


def find_key(
  config: config_dict.ConfigDict, phase: task.Phase, step: int, row: int
) -> jax.Array | None:
  """Returns the key of a row of the global batch, after `step` updates.

  None, as in evaluation, if random numbers depend on the devices.
  """
  if config.rng != 'threefry':  # whose numbers depend on the row alone
    return None
  return gradient.find_row_key(
    jax.random.fold_in(run_key(config), step),
    row,
    phase.accumulate,
    config.optimizer.clip_unit == 'micro_batch',
  )


def restore_tokens(replay: Replay, row: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns ids [T] before masking and where they are masked, bool [T]."""
  one = {name: x[row] for name, x in replay.batch.items()}
  ids, masked = one['input_ids'].copy(), np.zeros(len(one['input_ids']), bool)
  if replay.config.objective.kind == 'mlm':
    used = one['masked_lm_weights'] > 0
    at = one['masked_lm_positions'][used]
    ids[at], masked[at] = one['masked_lm_ids'][used], True
  tokens = one['input_mask'] > 0
  return ids[tokens], masked[tokens]


def predict(replay: Replay, row: int) -> list[dict]:
  """Computes the predictions of a row, with the dropout of training.

  Returns:
    The `position` of each masked token, its `truth`, the piece `given` to the
    model in its place (None for a language model, which reads one way and did
    not see it), the `probability` of the truth, and the likeliest `guesses`
    with their probabilities.
  """
  config, vocab = replay.config, replay.tokenizer.vocab
  one = {name: x[row : row + 1] for name, x in replay.batch.items()}
  with precision.set_products(config):
    chances = _compute(
      precision.cast(replay.params, config.model.dtype),
      one,
      find_key(config, replay.phase, replay.number - 1, row),
      pretrain.make_module(config),
      replay.tokenizer.size,
    )
  values, guesses = jax.device_get(jax.lax.top_k(chances, _GUESSES))
  chances, bert = jax.device_get(chances), model_config(config)
  shown, ids, positions = (
    one[name][0].tolist()
    for name in ('input_ids', 'masked_lm_ids', 'masked_lm_positions')
  )
  return [
    {
      'position': positions[i] + bert.target_offset,
      'truth': vocab[ids[i]],
      'given': None if bert.causal else vocab[shown[positions[i]]],
      'probability': float(chances[i, ids[i]]),
      'guesses': [
        (vocab[word], p)
        for word, p in zip(guesses[i].tolist(), values[i].tolist(), strict=True)
      ],
    }
    for i in np.flatnonzero(one['masked_lm_weights'][0]).tolist()
  ]


@functools.partial(jax.jit, static_argnames=('module', 'size'))
def _compute(params, one, key, module, size):
  """Returns the probabilities of words, [P, V]."""
  mlm, _ = module.apply(
    {'params': params},
    one,
    key is None,
    rngs=None if key is None else {'dropout': key},
  )
  # The embeddings may have padding rows, to make V divisible.
  return jax.nn.softmax(mlm[0, :, :size])
