"""Lists the programs of the commands that use a trained model.

`matrix.py` compiles them for TPUs that are not here.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from bert_jax import tasks
from bert_jax.config import model_config, recipes
from bert_jax.finetuning import classes, predictions
from bert_jax.inference import (
  fill,
  fine_tuned,
  hidden_states,
  pseudo_likelihood,
)
from bert_jax.model import heads, parameters
from bert_jax.pretraining import replay
from bert_jax.train import programs, task, tuning

ROWS = 32  # of a batch


def list_programs(config, device) -> list[programs.Program]:
  """Returns fill_mask's program, features', score's, predict's and replay's.

  Args:
    config: an experiment of pre-training, whose model they use.
    device: where they run; may be absent.
  """
  (phase, *_), key = task.list_phases(config), jax.random.key(0)
  bert = model_config(config)
  pretrained = heads.PretrainingModel(bert)
  params = jax.eval_shape(functools.partial(parameters.init, pretrained), key)
  tokens = dict.fromkeys(
    ('input_ids', 'input_mask', 'segment_ids'), _integers(phase.seq_length)
  )
  masks = {
    name: _integers(1) for name in ('masked_lm_positions', 'masked_lm_ids')
  }
  tuned = recipes.finetuning()
  module = fine_tuned.make_module(tuned, bert)
  tuned_for_classes = jax.eval_shape(
    functools.partial(parameters.init, module), key
  )
  texts = classes.TASK.list_shapes(tuned, module, phase, ROWS)
  found = {
    'fill_mask': (fill._mlm_logits, params, tokens | masks, bert),
    'features': (hidden_states._compute, params, tokens, bert, 'all', True),
    'score': (
      *(pseudo_likelihood._compute, params, tokens | masks, bert),
      bert.vocab_size,
    ),
    'predict': (
      *(predictions._apply, tuned_for_classes, texts, module),
      *(classes.TASK, None),
    ),
    'replay': _replay(config, phase, device),
  }
  placed = functools.partial(_place, SingleDeviceSharding(device))
  return [
    programs.Program(name, jitted, tuple(map(placed, arguments)))
    for name, (jitted, *arguments) in found.items()
  ]


def _replay(config, phase, device):
  """Returns the losses of a row, and their arguments."""
  config = tuning.resolve(config, device, phase.seq_length)
  made = tasks.get(config).make_objective(config)
  params = jax.eval_shape(made.init, jax.random.key(0))
  compute = replay.make_program(config, made)
  return compute, params, made.batch_shapes(phase, 1)


def _integers(length):
  return jax.ShapeDtypeStruct((ROWS, length), jnp.int32)


def _place(sharding, argument):
  """Returns an argument with its arrays on a device."""
  return jax.tree.map(
    lambda x: (
      jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
      if isinstance(x, jax.ShapeDtypeStruct)
      else x
    ),
    argument,
  )
