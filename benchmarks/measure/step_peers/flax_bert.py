"""Trains FlaxBertForPreTraining of transformers 4; see ../step.py."""

import itertools

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pipe
import transformers
from flax import traverse_util


def optimizer(c) -> optax.GradientTransformation:
  """Returns AdamW with clipping, warm-up and linear decay."""
  peak, warmup = c['optimizer.learning_rate'], c['optimizer.warmup_steps']
  schedule = optax.join_schedules(
    [
      optax.linear_schedule(0.0, peak, warmup),
      optax.linear_schedule(peak, 0.0, sum(c['phases.steps']) - warmup),
    ],
    [warmup],
  )
  adamw = optax.adamw(
    schedule,
    b1=c['optimizer.b1'],
    b2=c['optimizer.b2'],
    eps=c['optimizer.epsilon'],
    weight_decay=c['optimizer.weight_decay'],
    mask=decay_mask,
  )
  return optax.chain(optax.clip_by_global_norm(c['optimizer.clip_norm']), adamw)


def decay_mask(params):
  flat = traverse_util.flatten_dict(params)
  return traverse_util.unflatten_dict(
    {k: k[-1] != 'bias' and k[-2:] != ('LayerNorm', 'scale') for k in flat}
  )


def loss_of(model, params, batch, key):
  """Returns the MLM loss over the labels that are not -100, plus NSP's."""
  out = model(
    batch['input_ids'],
    attention_mask=batch['input_mask'],
    token_type_ids=batch['segment_ids'],
    params=params,
    dropout_rng=key,
    train=True,
  )
  nll = optax.softmax_cross_entropy_with_integer_labels
  labels = batch['labels']
  real = labels >= 0
  mlm = nll(
    out.prediction_logits.astype(jnp.float32), jnp.where(real, labels, 0)
  )
  nsp = nll(
    out.seq_relationship_logits.astype(jnp.float32),
    batch['next_sentence_labels'],
  )
  return jnp.sum(mlm * real) / jnp.sum(real) + jnp.mean(nsp)


def model_of(settings, **options):
  """Returns FlaxBertForPreTraining of the sizes that the settings ask for."""
  c = settings['config']
  return transformers.FlaxBertForPreTraining(
    transformers.BertConfig(**settings['transformers'], hidden_act='gelu_new'),
    seed=c['seed'],
    input_shape=(1, 8),
    dtype=jnp.dtype(c['model.dtype']),
    **options,
  )


def updater(model, tx):
  """Returns (params, opt_state, batch, key) -> (next of each, loss)."""

  def update(params, opt_state, batch, key):
    key, dropout = jax.random.split(key)
    loss, grads = jax.value_and_grad(
      lambda params: loss_of(model, params, batch, dropout)
    )(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, key, loss

  return update


def trainer(settings, batches):
  """Returns (steps) -> loss of the last step."""
  c = settings['config']
  model, tx = model_of(settings), optimizer(c)
  update = jax.jit(updater(model, tx), donate_argnums=(0, 1))
  params = jax.tree.map(jnp.array, model.params)
  state = params, jax.jit(tx.init)(params), jax.random.key(c['seed'])
  source = itertools.cycle(batches)

  def train(steps):
    nonlocal state
    for _ in range(steps):
      params, opt_state, key = state
      *state, loss = update(params, opt_state, next(source), key)
    return float(loss)

  return train


def main():
  settings = pipe.settings()
  with np.load(settings['batches']) as file:
    stacked = dict(file)
  count = len(stacked['input_ids'])
  batches = [{k: x[i] for k, x in stacked.items()} for i in range(count)]
  facts = {
    'versions': f'transformers {transformers.__version__}, '
    f'jax {jax.__version__}, flax {flax.__version__}, '
    f'optax {optax.__version__}',
    'device': jax.devices()[0].device_kind,
  }
  pipe.serve(facts, trainer(settings, batches))


if __name__ == '__main__':
  main()
