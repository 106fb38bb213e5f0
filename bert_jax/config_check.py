"""What the fields of an experiment may hold, alone and together."""

import os

from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax import errors
from bert_jax.corpus import sources
from bert_jax.data import accents, masking
from bert_jax.model import attention, bert_config, precision
from bert_jax.ops import dropout
from bert_jax.runtime import workers
from bert_jax.train import optimizer

_POSITIVE = (
  'log.every',
  'mesh.model',
  'checkpoint.every',
  'checkpoint.keep',
  'data.pack',
  'eval.sequences',
  'model.num_layers',
  'model.hidden_size',
  'model.num_heads',
  'model.mlp_size',
  'optimizer.learning_rate',
  'optimizer.clip_norm',
  'optimizer.epsilon',
)
_NOT_NEGATIVE = (
  'checkpoint.keep_every',
  'data.max_documents',
  'data.min_chars',
  'data.shards',
  'eval.every',
  'optimizer.warmup_steps',
  'optimizer.weight_decay',
  'profile_steps',
)


def check(c: config_dict.ConfigDict):
  """Raises errors.UserError for values that cannot work together."""
  _check_choices(c)
  _check_counts(c)
  _check_weights(c.data)
  if c.data.pack > 255:  # masking counts the pairs of a row in 8 bits
    _fail(f'data.pack={c.data.pack} must be at most 255')
  _check_phases(c)
  _check_init(c)
  if c.model.hidden_size % c.model.num_heads:
    _fail(
      f'model.hidden_size={c.model.hidden_size} is not divisible by '
      f'model.num_heads={c.model.num_heads}'
    )
  _check_objective(c.objective)
  for name in ('model.dropout', 'model.attention_dropout', 'data.heldout'):
    value = config_lib.flatten(c)[name]
    if not 0 <= value < 1:
      _fail(f'{name}={value} must be at least 0 and below 1')
  _check_dropout(c.model)
  if not c.model.mask_value <= -1000:  # far below any score
    _fail(f'model.mask_value={c.model.mask_value} must be at most -1000')
  if c.optimizer.warmup_steps >= sum(c.phases.steps):
    _fail(
      f'optimizer.warmup_steps={c.optimizer.warmup_steps} leaves none of the '
      f'{sum(c.phases.steps)} steps for the decay'
    )


def _check_choices(c):
  m, o = c.model, c.objective
  allowed = {
    'rng': (c.rng, ('threefry', 'rbg')),
    'model.activation': (m.activation, tuple(bert_config.ACTIVATIONS)),
    'model.norm': (m.norm, bert_config.NORMS),
    'model.initializer': (m.initializer, tuple(bert_config.INITIALIZERS)),
    'model.dtype': (m.dtype, ('float32', 'bfloat16')),
    'compute.attention': (
      c.compute.attention,
      ('auto', *attention.IMPLEMENTATIONS),
    ),
    'compute.heads': (c.compute.heads, ('auto', 'flat', 'separate')),
    'compute.remat': (c.compute.remat, tuple(bert_config.REMAT)),
    'compute.matmul_precision': (
      c.compute.matmul_precision,
      precision.PRODUCTS,
    ),
    'objective.kind': (o.kind, ('mlm', 'ltr')),
    'objective.mask_unit': (o.mask_unit, masking.UNITS),
    'data.strip_accents': (c.data.strip_accents, accents.CHOICES),
    'data.layout': (c.data.layout, sources.LAYOUTS),
    'optimizer.clip_unit': (c.optimizer.clip_unit, optimizer.CLIP_UNITS),
    'optimizer.decay_from': (c.optimizer.decay_from, optimizer.DECAY_FROM),
    'optimizer.reduce_dtype': (
      c.optimizer.reduce_dtype,
      ('float32', 'bfloat16'),
    ),
  }
  for name, (value, values) in allowed.items():
    if value not in values:
      _fail(f'{name}={value!r} is not one of {", ".join(values)}')


def _check_counts(c):
  counts = {name: len(values) for name, values in c.phases.items()}
  if len(set(counts.values())) != 1 or not counts['steps']:
    _fail(f'phases need one entry per phase in every field, got {counts}')
  for name, values in c.phases.items():
    if min(values) < 1:
      _fail(f'phases.{name}={values} must be positive')
  fields = config_lib.flatten(c)
  for name in _POSITIVE:
    if not fields[name] > 0:
      _fail(f'{name}={fields[name]} must be positive')
  for name in _NOT_NEGATIVE:
    if not fields[name] >= 0:
      _fail(f'{name}={fields[name]} must not be negative')
  for name in ('data.workers', 'data.loader_workers'):
    if fields[name] < workers.ONE_PER_CORE:
      _fail(f'{name}={fields[name]} must be 0, more, or -1 for one per core')


def _check_dropout(model):
  for name in ('dropout', 'attention_dropout'):
    rate = model[name]
    kept = dropout.count_kept(rate)
    if kept == 0:
      _fail(
        f'model.{name}={rate} drops 256 of 256 values; 255 of them, '
        f'{255 / 256:.4f}, is the most'
      )
    if rate and kept == 256:
      _fail(
        f'model.{name}={rate} drops 0 of 256 values; 1 of them, '
        f'{1 / 256:.4f}, is the least, and 0 is none'
      )


def _check_weights(data):
  weights, inputs = data.weights, data.input.split(',')
  if not config_lib.is_like(weights, config_lib.EXAMPLES['data.weights']):
    _fail(f'data.weights={weights} must be numbers like (1.0, 2.5)')
  if weights and len(weights) != len(inputs):
    _fail(
      f'data.weights={weights} must be one for each of the {len(inputs)} '
      'input(s), or ()'
    )
  if any(not weight > 0 for weight in weights):
    _fail(f'data.weights={weights} must be positive')


def _check_phases(c):
  phases, most = c.phases, c.model.max_positions
  if max(phases.seq_length) > most:
    _fail(
      f'phases.seq_length={phases.seq_length} is longer than '
      f'model.max_positions={most}'
    )
  if min(phases.seq_length) < 8:
    _fail(f'phases.seq_length={phases.seq_length} must be at least 8')
  for batch, parts in zip(phases.batch_size, phases.accumulate, strict=True):
    if batch % parts:
      _fail(
        f'phases.batch_size={batch} is not divisible by '
        f'phases.accumulate={parts}'
      )


def _check_init(c):
  if c.init_from and not (c.data.vocab or c.data.dir):
    _fail(
      f'init_from={c.init_from} needs its vocabulary: data.vocab='
      f'{os.path.join(c.init_from, "vocab.txt")} or, of a run, data/vocab.txt '
      'in it, with data.vocab_size'
    )
  if c.resize_positions and not c.init_from:
    _fail('resize_positions=True means nothing without init_from')


def _check_objective(o):
  if o.kind == 'ltr' and o.nsp:
    _fail(
      'objective.kind=ltr needs objective.nsp=False: under the causal mask '
      '[CLS] sees no text'
    )
  if len(o.mask_mix) != 3 or abs(sum(o.mask_mix) - 1) > 1e-6:
    _fail(f'objective.mask_mix={o.mask_mix} must be three shares that sum to 1')
  if min(o.mask_mix) < 0 or not 0 < o.mask_rate < 1:
    _fail('objective.mask_rate and mask_mix must be shares between 0 and 1')


def _fail(message):
  raise errors.UserError(f'{message}; change the config or --config.FIELD=.')
