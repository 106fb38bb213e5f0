"""Checks a config: each field by its declaration, and rules between fields."""

import re

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import FIELDS, check_fields, readings
from bert_jax.data import recipe
from bert_jax.ops import dropout_rate


def check(c: config_dict.ConfigDict):
  """Raises errors.UserError for values that cannot work, alone or together."""
  check_fields(c)
  check_model(c)
  _check_phases(c)
  recipe.check_inputs(c.data)
  if c.resize_positions and not c.init_from:
    _fail('resize_positions=True means nothing without init_from')
  readings.get_xla_options(c)
  _check_freeze(c.optimizer.freeze)
  _check_baselines(c)
  _check_last_layer(c)
  _check_dropout('finetuning.head_dropout', c.finetuning.head_dropout)
  if c.finetuning.metrics and c.task != 'classification':
    _fail(f'finetuning.metrics is for classification, not for {c.task}')
  if c.task == 'pretraining' and not c.optimizer.learning_rate:
    _fail('optimizer.learning_rate=0 is for fine-tuning, which fills it in')
  if not c.phases.warmups and c.optimizer.warmup_steps >= sum(c.phases.steps):
    _fail(
      f'optimizer.warmup_steps={c.optimizer.warmup_steps} leaves none of the '
      f'{sum(c.phases.steps)} steps for the decay'
    )


def check_model(c: config_dict.ConfigDict):
  """Checks the fields of a model alone, however it was trained."""
  check_fields(c, 'model.', 'objective.', 'data.vocab_size', 'phases.')
  _check_objective(c.objective)
  for name in ('dropout', 'attention_dropout'):
    _check_dropout(f'model.{name}', c.model[name])
  if c.model.hidden_size % c.model.num_heads:
    _fail(
      f'model.hidden_size={c.model.hidden_size} is not divisible by '
      f'model.num_heads={c.model.num_heads}'
    )


def _check_phases(c):
  phases, most = c.phases, c.model.max_positions
  counts = {
    name: len(values)
    for name, values in phases.items()
    if values or name not in ('learning_rates', 'warmups')
  }
  if len(set(counts.values())) != 1 or not counts['steps']:
    _fail(f'phases need one entry per phase in every field, got {counts}')
  if bool(phases.learning_rates) != bool(phases.warmups):
    _fail(
      f'phases.learning_rates={phases.learning_rates} and '
      f'phases.warmups={phases.warmups} need each other'
    )
  if phases.learning_rates:
    _check_decays(phases)
  most_steps = FIELDS['phases.steps'].allowed.most
  if sum(phases.steps) > most_steps:
    _fail(
      f'phases.steps={phases.steps} add up to {sum(phases.steps)}, which must '
      f'be at most {most_steps}'
    )
  # Otherwise init_from sets the positions, and `transfer` checks the length.
  own = not c.init_from or c.resize_positions
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


def _check_decays(phases):
  rates = phases.learning_rates
  if not rates[0]:
    _fail(f'phases.learning_rates={rates} must not begin with 0')
  if any(w and not rate for rate, w in zip(rates, phases.warmups, strict=True)):
    _fail(
      f'phases.warmups={phases.warmups} must be 0 where '
      f'phases.learning_rates={rates} is 0'
    )
  for rate, warmup, steps in readings.list_decays(phases):
    if warmup >= steps:
      _fail(
        f'phases.warmups={phases.warmups}, phases.steps={phases.steps}: of '
        f'{steps} updates with the rate {rate:g}, {warmup} for the warm-up leave '
        'none for the decay'
      )


def _check_dropout(name, rate):
  kept = dropout_rate.count_kept(rate)
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


def _check_freeze(freeze):
  try:
    re.compile(freeze)
  except re.error as error:
    _fail(f'optimizer.freeze={freeze!r} is not a regular expression ({error})')


def _check_baselines(c):
  """Checks the fields of several labels, and of the paper's baselines."""
  form, features = c.finetuning.form, c.finetuning.features
  if c.task == 'pretraining' and c.model.bilstm:
    _fail(f'model.bilstm={c.model.bilstm} means nothing in pre-training')
  f = c.finetuning
  others = form == 'gpt' or f.glue or f.regression or f.metrics
  if f.multi_label and (others or c.task != 'classification'):
    _fail(
      'finetuning.multi_label=True is for task=classification, without '
      'finetuning.glue, regression, metrics and form=gpt'
    )
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


def _check_last_layer(c):
  masked = c.task == 'pretraining' and c.objective.kind == 'mlm'
  if c.compute.last_layer == 'predicted' and not (
    masked and not c.compute.scan_layers
  ):
    _fail(
      'compute.last_layer=predicted is for pre-training with masked tokens and '
      'without compute.scan_layers; auto computes the last layer everywhere else'
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
  raise errors.UserError(
    f'{message}; change the config file or give --config.FIELD=VALUE.'
  )
