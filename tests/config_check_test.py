"""Tests of what a config may hold."""

import math

import pytest

from bert_jax import config, config_check, errors
from bert_jax.config.declaration import Choice, Range, Text


@pytest.mark.parametrize(
  'field, value, message',
  [
    ('model.activation', 'swish', 'not one of gelu, gelu_tanh, relu'),
    ('phases.steps', (5,), 'one entry per phase'),
    ('phases.warmups', (5, 5), 'need each other'),
    ('phases.seq_length', (128, 600), 'model.max_positions=512'),
    ('phases.accumulate', (1, 3), r'not divisible by phases.accumulate=\(1, 3'),
    ('model.num_heads', 7, 'not divisible by model.num_heads=7'),
    ('objective.kind', 'ltr', 'needs objective.nsp=False'),
    ('model.bilstm', 768, 'means nothing in pre-training'),
    ('finetuning.form', 'gpt', 'is for classification'),
    ('finetuning.metrics', 'f1', 'is for classification, not for pretraining'),
    ('finetuning.features', 'last', 'is for classification and tagging'),
    ('objective.mask_mix', (0.8, 0.1, 0.2), 'sum to 1'),
    ('model.dropout', 0.999, 'drops 256 of 256 values; 1 of them'),
    ('model.dropout', 0.001, 'drops 0 of 256 values; 1 of them'),
    ('optimizer.warmup_steps', 2_000_000, 'leaves none'),
    ('data.pack', 256, 'data.pack=256 must be at least 1 and at most 255'),
    ('data.weights', (1.0, 2.0), 'are 2, but there are 1 inputs'),
    ('optimizer.freeze', '(', 'is not a regular expression'),
    (
      'phases.max_predictions',
      (20, 5000),
      r'predictions=\(20, 5000\) is more than',
    ),
    ('phases.steps', (2**31 - 1, 1), 'add up to 2147483648'),
    ('data.dir', 'a\nb', 'has control characters'),
    ('data.language', 'korean', "data.language='korean' is not a code of ISO"),
    ('compute.xla_options', 'fast', 'give NAME=VALUE'),
    ('objective.mask_mix', (0.5, 0.5), 'must be three shares'),
  ],
)
def test_values_that_cannot_work(field, value, message):
  c = config.pretraining('base')
  c.update_from_flattened_dict({field: value})
  with pytest.raises(errors.UserError, match=message):
    config_check.check(c)


def decays(rates, warmups):
  return {'phases.learning_rates': rates, 'phases.warmups': warmups}


MODERN = {'model.body': 'modern', **config.recipes.BODIES['modern']}
HELD = decays((1e-3, 2e-3), (0, 5)) | {'phases.steps': (80, 30)}
HELD['optimizer.schedule'] = 'wsd'
LAST = {'compute.last_layer': 'predicted'}
FROZEN = {'task': 'classification', 'finetuning.features': 'last'}
SEVERAL = {'finetuning.multi_label': True}
READ = FROZEN | {'model.bilstm': 8}


@pytest.mark.parametrize(
  'changes, message',
  [
    # A decay continues only after one, and without warmup.
    (decays((0.0, 1e-3), (0, 5)), 'must not begin with 0'),
    (decays((1e-3, 0.0), (5, 5)), 'must be 0 where'),
    (decays((1e-3, 1e-3), (5, 200_000)), 'leave none for'),
    (decays((1e-3, 0.0), (1_000_000, 0)), 'leave none for'),
    # Each body has its own fields, and what is masked by phase no other rates.
    ({'model.window': 64}, 'model.body=classic needs model.window=128, not 64'),
    (
      {'phases.rope_thetas': (1e4, 1e5)},
      'body=classic needs phases.rope_thetas',
    ),
    (
      MODERN | {'model.norm': 'post'},
      'body=modern needs model.norm=pre, not post',
    ),
    (MODERN | {'objective.nsp': True}, 'needs objective.nsp=False, not True'),
    (MODERN | {'model.activation': 'relu'}, 'needs model.activation=gelu'),
    (MODERN | {'objective.kind': 'ltr'}, 'needs objective.kind=mlm'),
    (MODERN | {'model.num_heads': 256}, 'heads of 3 units are odd'),
    (MODERN | {'phases.rope_thetas': (1e4,)}, 'one entry per phase in every'),
    (
      {'phases.mask_rates': (0.3, 0.15)},
      r'max_predictions=\(20, 76\) cuts off some of phases.mask_rates=\(0.3, 0.15',
    ),
    (
      MODERN | {'phases.rope_thetas': (1e4, 1e5), 'model.rope_theta': 2e4},
      'model.rope_theta=20000 means nothing with phases.rope_thetas',
    ),
    ({'phases.mask_rates': (0.3,)}, 'one entry per phase in every'),
    (
      {'phases.mask_rates': (0.3, 0.1), 'objective.initial_mask_rate': 0.4},
      'without objective.initial_mask_rate',
    ),
    # What is held may decay: 30 steps less a warm-up of 5.
    ({'optimizer.decay_steps': 5}, 'needs optimizer.schedule=wsd'),
    (HELD | {'optimizer.decay_steps': 26}, 'is at most 25, the steps after'),
    # The last layer is needed everywhere but for masked tokens.
    (
      LAST | {'objective.kind': 'ltr', 'objective.nsp': False},
      'last_layer=predicted is for pre-',
    ),
    (LAST | {'task': 'classification'}, 'last_layer=predicted is for pre-'),
    (
      {'data.rows': 'full_sentences'},
      'data.rows=full_sentences needs objective.nsp=False; True needs data.row',
    ),
    (
      {'data.rows': 'doc_sentences', 'objective.nsp': False, 'data.pack': 2},
      'data.pack=2 is for pairs',
    ),
    # Features are read by a BiLSTM, and freeze the model.
    (FROZEN, 'needs model.bilstm, such as 768, to read them'),
    (READ | {'finetuning.form': 'gpt'}, 'without model.bilstm'),
    # Several labels are not for numbers, GLUE and the other tasks.
    (SEVERAL, 'multi_label=True is for task=classification'),
    (
      SEVERAL | {'task': 'classification', 'finetuning.regression': True},
      'without finetuning.glue, regression, metrics and form=gpt',
    ),
    (READ | {'finetuning.reinit_layers': 1}, 'reinit_layers 0'),
    ({'task': 'spans'}, 'phases have 2 entries; fine-tuning has one'),
    (
      {f'phases.{x}': () for x in config.declare_fields().phases},
      'phases need one entry per phase',
    ),
  ],
)
def test_values_that_cannot_work_together(changes, message):
  c = config.pretraining('base')
  c.update_from_flattened_dict(changes)
  with pytest.raises(errors.UserError, match=message):
    config_check.check(c)


def test_values_that_work():
  for changes in (
    LAST,
    MODERN
    | {'phases.rope_thetas': (1e4, 1e5), 'phases.mask_rates': (0.15, 0.1)},
    MODERN | {'model.attention_init': 'neighbours', 'init_from': 'a run'},
    HELD | {'optimizer.decay_steps': 25},
    *({'model.dropout': x} for x in (0, 1 / 256, 255 / 256)),
  ):
    c = config.pretraining('base')
    c.update_from_flattened_dict(changes)
    config_check.check(c)


FIELDS = config.flatten(config.declare_fields())
NUMBERS = [
  name for name, value in FIELDS.items() if not isinstance(value, bool | str)
]


def test_every_number_has_a_range_and_every_text_is_free_or_a_choice():
  for name, value in FIELDS.items():
    kinds = Range if name in NUMBERS else Choice | Text
    assert isinstance(config.FIELDS[name].allowed, kinds) or value in (0, 1)


def check_refused(name, value):
  c = config.declare_fields()
  with c.ignore_type():
    c.update_from_flattened_dict({name: value})
  with pytest.raises(errors.UserError) as caught:
    config_check.check(c)
  said = str(caught.value)
  assert f'{name}=' in said and '\n' not in said


def like(name, number):
  """Returns a number as a field holds it, alone or in a tuple."""
  return (number,) if isinstance(FIELDS[name], tuple) else number


def bounds(name):
  """Returns {kind: bound} of a number's range."""
  allowed = config.FIELDS[name].allowed._asdict()
  return {kind: bound for kind, bound in allowed.items() if bound is not None}


@pytest.mark.parametrize('name', NUMBERS)
def test_numbers_beyond_the_range_of_a_field_are_refused(name):
  for kind, bound in bounds(name).items():
    beyond = bound
    if kind in ('least', 'most'):
      away = -1 if kind == 'least' else 1
      beyond = bound + away
      if beyond == bound:  # a large float
        beyond = math.nextafter(bound, away * math.inf)
    check_refused(name, like(name, beyond))
  for number in (-(10**39), 10**39, math.nan, math.inf):
    check_refused(name, like(name, number))


@pytest.mark.parametrize('name', FIELDS)
def test_values_of_another_type_are_refused(name):
  old = FIELDS[name]
  others = {bool: True, int: 3, float: 0.5, str: 'x', tuple: ((),)}
  # A ConfigDict makes 1.0 of 1 and of True.
  same = (bool, int, float) if isinstance(old, float) else (type(old),)
  wrong = [value for kind, value in others.items() if kind not in same]
  for value in (None, b'x', 1j, (None,), ('x',), *wrong):
    check_refused(name, value)


def test_positions_are_resized_only_of_a_source():
  c = config.pretraining('tiny')
  c.resize_positions = True
  with pytest.raises(errors.UserError, match='means nothing without init_from'):
    config_check.check(c)
  c.init_from = 'there'
  config_check.check(c)
  c.model.max_positions = 8
  with pytest.raises(errors.UserError, match='longer than model.max_positions'):
    config_check.check(c)
  c.resize_positions = False  # then its positions are those of the source
  config_check.check(c)
