"""Checks the values of an experiment's fields, alone and in combination."""

import operator
import os
import re
import unicodedata

from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax import errors
from bert_jax.corpus import sources
from bert_jax.data import accents, masking, recipe
from bert_jax.model import attention, bert_config, feature_model, precision
from bert_jax.ops import dropout
from bert_jax.runtime import workers
from bert_jax.train import optimizer, tuning
from bert_jax.workdir import paths

_BOUNDS = {
  'least': ('at least', operator.ge),
  'above': ('above', operator.gt),
  'most': ('at most', operator.le),
  'below': ('below', operator.lt),
}
_STEPS = {'least': 1, 'most': 2**31 - 1}  # an int32 counts them
_STEPS_OR_0 = {'least': 0, 'most': 2**31 - 1}
_PROCESSES = {'least': workers.ONE_PER_CORE, 'most': 4096}
_SHARE = {'least': 0, 'below': 1}
# What is above 0 in float32 too, so that nothing is divided by 0.
_EPSILON = {'least': 1e-37, 'below': 1}
_DECAY = {'least': 0, 'most': 0.999999}  # float32 rounds what is above to 1

# Of every number, also of each one in a tuple. Where nothing breaks at a
# certain size, the limit is far beyond what anyone trains.
RANGES = {
  'seed': {'least': 0, 'below': 2**32},  # jax uses 32 bits
  'profile_steps': _STEPS_OR_0,
  'model.num_layers': {'least': 1, 'most': 1024},
  'model.hidden_size': {'least': 1, 'most': 2**16},
  'model.num_heads': {'least': 1, 'most': 2**16},
  'model.mlp_size': {'least': 1, 'most': 2**18},
  'model.max_positions': {'least': 8, 'most': 2**16},
  'model.dropout': _SHARE,
  'model.attention_dropout': _SHARE,
  'model.norm_epsilon': _EPSILON,
  'model.bilstm': {'least': 0, 'most': 2**16},
  'model.initializer_std': {'above': 0, 'most': 1},
  # Far below any score, and finite in float32.
  'model.mask_value': {'least': -3.4028234663852886e38, 'most': -1000},
  'data.weights': {'above': 0, 'most': 1000},
  'data.min_chars': {'least': 0, 'most': 2**31 - 1},
  'data.max_documents': {'least': 0, 'most': 2**63 - 1},
  'data.vocab_size': {'least': 6, 'most': 2**24},  # five are special
  'data.passes': {'least': 1, 'most': 1000},
  'data.short_seq_prob': {'least': 0, 'most': 1},
  'data.pack': {'least': 1, 'most': 255},  # masking counts pairs in 8 bits
  'data.heldout': {'above': 0, 'most': 0.9},
  'data.shards': {'least': 0, 'most': 2**16},
  'data.workers': _PROCESSES,
  'data.loader_workers': _PROCESSES,
  'finetuning.epochs': {'least': 0, 'most': 100_000},
  'finetuning.warmup': _SHARE,
  'finetuning.head_dropout': _SHARE,
  'finetuning.reinit_layers': {'least': 0, 'most': 1024},
  'finetuning.doc_stride': {'least': 1, 'below': 2**16},
  'finetuning.max_query_length': {'least': 1, 'below': 2**16},
  'finetuning.max_answer_length': {'least': 1, 'below': 2**16},
  'finetuning.outputs': {'least': 0, 'most': 2**20},
  'finetuning.max_length': {'least': 0, 'below': 2**16},
  'finetuning.num_choices': {'least': 0, 'most': 2**10},
  'objective.mask_rate': {'above': 0, 'below': 1},
  'objective.mask_mix': {'least': 0, 'most': 1},
  'phases.seq_length': {'least': 8, 'below': 2**16},  # records count in 16 bits
  'phases.steps': _STEPS,
  'phases.batch_size': {'least': 1, 'most': 2**20},
  'phases.accumulate': {'least': 1, 'most': 2**20},
  'phases.max_predictions': {'least': 1, 'below': 2**16},
  'optimizer.learning_rate': {'least': 0, 'most': 1},
  'optimizer.warmup_steps': _STEPS_OR_0,
  'optimizer.b1': _DECAY,
  'optimizer.b2': _DECAY,
  'optimizer.epsilon': _EPSILON,
  'optimizer.weight_decay': {'least': 0, 'most': 1},
  'optimizer.clip_norm': {'above': 0, 'most': 1e30},
  'optimizer.layer_decay': {'above': 0, 'most': 1},
  'mesh.model': {'least': 1, 'most': 2**16},
  'eval.every': _STEPS_OR_0,
  'eval.sequences': {'least': 1, 'most': 2**31 - 1},
  'log.every': _STEPS,
  'checkpoint.every': _STEPS,
  'checkpoint.minutes': {'least': 0, 'most': 1e6},
  'checkpoint.keep': _STEPS,
  'checkpoint.keep_every': _STEPS_OR_0,
}

_FLOATS = ('float32', 'bfloat16')
CHOICES = {
  'rng': ('threefry', 'rbg'),
  'model.activation': tuple(bert_config.ACTIVATIONS),
  'model.norm': bert_config.NORMS,
  'model.initializer': tuple(bert_config.INITIALIZERS),
  'model.attention_init': bert_config.ATTENTION_INITS,
  'model.dtype': _FLOATS,
  'data.layout': sources.LAYOUTS,
  'data.strip_accents': accents.CHOICES,
  'data.negatives': recipe.NEGATIVES,
  'finetuning.select': ('last', 'best'),
  'finetuning.form': ('bert', 'gpt'),
  'finetuning.features': ('none', *feature_model.LAYERS),
  'objective.kind': ('mlm', 'ltr', 'rtl'),
  'objective.mask_unit': masking.UNITS,
  'optimizer.clip_unit': optimizer.CLIP_UNITS,
  'optimizer.decay_from': optimizer.DECAY_FROM,
  'optimizer.reduce_dtype': _FLOATS,
  'compute.attention': ('auto', *attention.IMPLEMENTATIONS),
  'compute.heads': ('auto', 'flat', 'separate'),
  'compute.remat': tuple(bert_config.REMAT),
  'compute.matmul_precision': precision.PRODUCTS,
}

# Texts that are free, and whether they may be empty.
TEXTS = {
  'task': False,
  'init_from': True,
  'data.input': False,
  'data.language': False,
  'data.field': False,
  'data.vocab': True,
  'data.dir': True,
  'data.text': True,
  'data.pair': True,
  'data.label': True,
  'data.choices': True,
  'finetuning.glue': True,
  'optimizer.freeze': True,
  'compute.xla_options': True,
}
# Of characters that no text holds: they would end a line, a path, a print.
_CONTROL = {'Cc', 'Cs', 'Zl', 'Zp'}


def check(c: config_dict.ConfigDict):
  """Raises errors.UserError for values that cannot work, alone or together."""
  _check_fields(c)
  check_model(c)
  _check_phases(c)
  _check_inputs(c.data)
  _check_init(c)
  tuning.get_xla_options(c)
  _check_freeze(c.optimizer.freeze)
  _check_baselines(c)
  _check_dropout('finetuning.head_dropout', c.finetuning.head_dropout)
  if c.task == 'pretraining' and not c.optimizer.learning_rate:
    _fail('optimizer.learning_rate=0 is for fine-tuning, which fills it in')
  if c.optimizer.warmup_steps >= sum(c.phases.steps):
    _fail(
      f'optimizer.warmup_steps={c.optimizer.warmup_steps} leaves none of the '
      f'{sum(c.phases.steps)} steps for the decay'
    )


def check_model(c: config_dict.ConfigDict):
  """Does so for the model alone, which may have been trained in any way."""
  _check_fields(c, 'model.', 'objective.', 'data.vocab_size')
  _check_objective(c.objective)
  for name in ('dropout', 'attention_dropout'):
    _check_dropout(f'model.{name}', c.model[name])
  if c.model.hidden_size % c.model.num_heads:
    _fail(
      f'model.hidden_size={c.model.hidden_size} is not divisible by '
      f'model.num_heads={c.model.num_heads}'
    )


def _check_fields(c, *prefixes):
  """Checks fields one by one: all, or those whose names begin so."""
  default = config_lib.flatten(config_lib.declare_fields())
  for name, value in config_lib.flatten(c).items():
    if name.startswith(prefixes or ''):
      _check_type(name, value, config_lib.EXAMPLES.get(name, default[name]))
      _check_value(name, value)


def _check_type(name, value, like):
  if not config_lib.is_like(value, like):
    _fail(
      f'{name}={value!r} is a {type(value).__name__} where a '
      f'{type(like).__name__} like {like!r} is expected'
    )


def _check_value(name, value):
  """Checks one field by `RANGES`, `CHOICES` and `TEXTS`."""
  if name in CHOICES and value not in CHOICES[name]:
    _fail(f'{name}={value!r} is not one of {", ".join(CHOICES[name])}')
  if name in TEXTS and not (value or TEXTS[name]):
    _fail(f'{name} is empty')
  if name in TEXTS and _CONTROL & set(map(unicodedata.category, value)):
    _fail(f'{name}={value!r} has control characters')
  bounds = RANGES.get(name, {})
  for number in value if isinstance(value, tuple) else (value,):
    for kind, bound in bounds.items():
      if not _BOUNDS[kind][1](number, bound):
        allowed = (f'{_BOUNDS[k][0]} {x}' for k, x in bounds.items())
        _fail(f'{name}={value} must be {" and ".join(allowed)}')


def _check_phases(c):
  phases, most = c.phases, c.model.max_positions
  counts = {name: len(values) for name, values in phases.items()}
  if len(set(counts.values())) != 1 or not counts['steps']:
    _fail(f'phases need one entry per phase in every field, got {counts}')
  if sum(phases.steps) > _STEPS['most']:
    _fail(
      f'phases.steps={phases.steps} add up to {sum(phases.steps)}, which must '
      f'be at most {_STEPS["most"]}'
    )
  # Otherwise init_from has its own, which fine-tuning compares.
  own = c.task == 'pretraining' or not c.init_from
  if own and max(phases.seq_length) > most:
    _fail(
      f'phases.seq_length={phases.seq_length} is longer than '
      f'model.max_positions={most}'
    )
  for batch, parts in zip(phases.batch_size, phases.accumulate, strict=True):
    if batch % parts:
      _fail(
        f'phases.batch_size={batch} is not divisible by '
        f'phases.accumulate={parts}'
      )
  for length, most in zip(
    phases.seq_length, phases.max_predictions, strict=True
  ):
    if most > length:
      _fail(
        f'phases.max_predictions={most} is more than the '
        f'phases.seq_length={length} tokens of a sequence'
      )


def _check_dropout(name, rate):
  kept = dropout.count_kept(rate)
  if kept == 0:
    _fail(
      f'{name}={rate} drops 256 of 256 values; 255 of them, '
      f'{255 / 256:.4f}, is the most'
    )
  if rate and kept == 256:
    _fail(
      f'{name}={rate} drops 0 of 256 values; 1 of them, '
      f'{1 / 256:.4f}, is the least, and 0 is none'
    )


def _check_inputs(data):
  weights, inputs = data.weights, data.input.split(',')
  if not all(inputs):
    _fail(f'data.input={data.input!r} has an empty name between commas')
  if weights and len(weights) != len(inputs):
    _fail(
      f'data.weights={weights} must be one for each of the {len(inputs)} '
      'input(s), or ()'
    )


def _check_init(c):
  pretraining = c.task == 'pretraining'
  model, _ = paths.split_step(c.init_from)
  if pretraining and c.init_from and not (c.data.vocab or c.data.dir):
    _fail(
      f'init_from={c.init_from} needs its vocabulary: data.vocab='
      f'{os.path.join(model, "vocab.txt")} or, of a run, data/vocab.txt '
      'in it, with data.vocab_size'
    )
  if c.resize_positions and not c.init_from:
    _fail('resize_positions=True means nothing without init_from')


def _check_freeze(freeze):
  try:
    re.compile(freeze)
  except re.error as error:
    _fail(f'optimizer.freeze={freeze!r} is not a regular expression ({error})')


def _check_baselines(c):
  """Checks the fields of the paper's baselines against others."""
  form, features = c.finetuning.form, c.finetuning.features
  if c.task == 'pretraining' and c.model.bilstm:
    _fail(f'model.bilstm={c.model.bilstm} means nothing in pre-training')
  if form == 'gpt' and (c.task != 'classification' or c.model.bilstm):
    _fail(
      'finetuning.form=gpt is for classification without model.bilstm, not for '
      f'{c.task} with model.bilstm={c.model.bilstm}'
    )
  if features == 'none':
    return
  if c.task not in ('classification', 'tagging'):
    _fail(
      f'finetuning.features={features} is for classification and tagging, not '
      f'for {c.task}'
    )
  if not c.model.bilstm:
    _fail(
      f'finetuning.features={features} needs model.bilstm, such as 768, to read '
      'them'
    )
  if form == 'gpt' or c.finetuning.reinit_layers:
    _fail(
      f'finetuning.features={features} freezes the model, so finetuning.form '
      'must be bert and finetuning.reinit_layers 0'
    )


def _check_objective(o):
  if o.kind != 'mlm' and o.nsp:
    _fail(
      f'objective.kind={o.kind} needs objective.nsp=False: a language model '
      'reads one way, and predicts the next token only'
    )
  if len(o.mask_mix) != 3 or abs(sum(o.mask_mix) - 1) > 1e-6:
    _fail(f'objective.mask_mix={o.mask_mix} must be three shares that sum to 1')


def _fail(message):
  raise errors.UserError(f'{message}; change the config or --config.FIELD=.')
