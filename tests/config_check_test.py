"""Tests of what a config may hold."""

import functools
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from bert_jax import config, config_check, errors
from bert_jax.config.declaration import Choice, Range, Text
from bert_jax.data import recipe
from bert_jax.parallel import device_mesh
from bert_jax.pretraining import pretrain
from bert_jax.trainer import fit, programs, task, tuning


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
    # The last layer is needed everywhere but for masked tokens.
    (
      LAST | {'objective.kind': 'ltr', 'objective.nsp': False},
      'last_layer=predicted is for pre-',
    ),
    (LAST | {'task': 'classification'}, 'last_layer=predicted is for pre-'),
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


@pytest.mark.parametrize(
  'changes', [LAST, *({'model.dropout': x} for x in (0.0, 1 / 256, 255 / 256))]
)
def test_values_that_work(changes):
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


def bounds(name):
  """Returns {kind: bound} of a number's range."""
  found = config.FIELDS[name].allowed._asdict()
  return {kind: bound for kind, bound in found.items() if bound is not None}


def tiny(name, value):
  """Returns the config of a model that is traced soon, with one other field."""
  c = config.declare_fields()
  c.model.update(num_layers=1, hidden_size=8, num_heads=2, mlp_size=8)
  c.data.vocab_size = 16
  phases = {'seq_length': 8, 'steps': 4, 'batch_size': 4, 'accumulate': 1}
  phases['max_predictions'] = 2
  c.phases.update({field: (number,) for field, number in phases.items()})
  c.optimizer.warmup_steps = 1
  with c.ignore_type():
    c.update_from_flattened_dict({name: value})
  return c


def check_refused(name, value):
  with pytest.raises(errors.UserError) as caught:
    config_check.check(tiny(name, value))
  said = str(caught.value)
  assert f'{name}=' in said and '\n' not in said


def like(name, number):
  """Returns a number as a field holds it, alone or in a tuple."""
  return (number,) if isinstance(FIELDS[name], tuple) else number


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


def values(name):
  """Returns a strategy for values of a field, most of them allowed."""
  old, allowed = FIELDS[name], config.FIELDS[name].allowed
  if isinstance(old, bool):
    return st.booleans()
  if isinstance(old, str):
    is_choice = isinstance(allowed, Choice)
    return st.sampled_from(allowed) if is_choice else st.text(max_size=5)
  one = config.FIELDS[name].like
  one = one[0] if isinstance(one, tuple) else one
  ends = st.sampled_from([type(one)(bound) for bound in bounds(name).values()])
  if isinstance(one, int):
    inside = st.integers(0, 9) | st.integers()
  else:
    inside = st.floats(0, 1) | st.floats(width=32)
  found = ends | inside
  if not isinstance(old, tuple):
    return found
  size = 3 if name == 'objective.mask_mix' else 1
  return st.tuples(*[found] * size) | st.lists(found, max_size=3).map(tuple)


@hypothesis.settings(
  max_examples=30,
  deadline=None,
  derandomize=True,
  suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(
  st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: st.tuples(st.just(name), values(name))
  )
)
def test_a_field_is_refused_in_one_line_or_the_step_can_be_traced(drawn):
  c = tiny(*drawn)
  try:
    config_check.check(c)
    hypothesis.assume(c.model.num_layers < 4)  # the time to trace grows with it
    recipe.make_recipe(c)
    used = ('rng', 'seed', 'model', 'objective', 'phases', 'optimizer')
    used += ('compute', 'mesh', 'data.vocab_size', 'data.pack')
    trace(
      tuple((k, v) for k, v in config.flatten(c).items() if k.startswith(used))
    )
  except errors.UserError as error:
    assert '\n' not in str(error)


@functools.cache
def trace(fields):
  """Traces the updates of every phase of a config."""
  c = config.declare_fields()
  c.update_from_flattened_dict(dict(fields))
  fit.check_devices(c)
  mesh = device_mesh.make_mesh(c.mesh.model)
  for phase in task.list_phases(c):
    objective = pretrain.make_objective(c)
    objective = tuning.tune(objective, mesh, phase.seq_length)
    for program in programs.list_phase(c, objective, mesh, phase):
      if program.name == programs.TRAIN:
        program.jitted.trace(*program.arguments)


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
