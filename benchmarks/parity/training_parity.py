"""Trains BERT here and by numpy_bert.py, from equal weights and batches."""

import functools

import jax
import numpy as np
import numpy_bert

from bert_jax.config import model_config
from bert_jax.interop import rename
from bert_jax.model import parameters
from bert_jax.parallel import device_mesh
from bert_jax.trainer import gradient, task
from bert_jax.trainer.optimizer import make_schedule
from bert_jax.trainer.step import jit_rates, train_step


def ours(c, objective, state, batches):
  """Returns the losses [steps, 2 or 1], MLM and NSP, before each update."""
  (phase,) = task.list_phases(c)
  mesh = device_mesh.make_mesh(devices=jax.devices()[:1])
  how = gradient.make_update(c.optimizer, objective, phase, mesh)
  rates = jit_rates(make_schedule(c.optimizer, c.phases), mesh)(0)
  step = jax.jit(functools.partial(train_step, rates=rates, update=how))
  losses = []
  for batch in batches:
    state, metrics = step(state, batch, jax.random.key(c.seed))
    sums = [metrics['sums'][name] for name in objective.losses]
    losses.append([float(total) / float(count) for total, count in sums])
  return np.array(losses)


def get_words(c, state):
  """Returns the parameters without padding rows."""
  params = jax.device_get(state.params)
  return parameters.drop_padding_rows(params, c.data.vocab_size)


def in_google(c, state, batches):
  """Returns the losses of numpy_bert."""
  bert = model_config(c)
  weights = rename.to_theirs(get_words(c, state), bert, 'google')
  weights = {name: x.astype(np.float64) for name, x in weights.items()}
  return numpy_bert.train(
    weights,
    batches,
    heads=c.model.num_heads,
    cores=c.phases.accumulate[0],
    peak=c.optimizer.learning_rate,
    warmup=c.optimizer.warmup_steps,
    steps=sum(c.phases.steps),
  )
