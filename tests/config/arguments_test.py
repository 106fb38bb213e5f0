"""Tests of `--config=FILE:ARGUMENTS`."""

import pytest

from bert_jax import config, errors


def test_arguments():
  c = config.apply_arguments(
    config.pretraining('base'), 'batch_size=64,model.dropout=0,nsp=false'
  )
  assert c.phases.batch_size == (64, 64)
  assert c.model.dropout == 0.0 and isinstance(c.model.dropout, float)
  assert c.objective.nsp is False


@pytest.mark.parametrize(
  'first, second, expected',
  [
    ('smoke', 'steps=78', {'phases.steps': (39, 39), 'model.hidden_size': 64}),
    ('steps=90', 'eval.every=80', {'eval.every': 80}),
    (
      'profile=hf',
      'epsilon=1e-5',
      {'optimizer.epsilon': 1e-5, 'model.activation': 'gelu'},
    ),
    (
      'size=tiny',
      'profile=paper',
      {'model.hidden_size': 128, 'model.attention_init': 'random'},
    ),
  ],
)
def test_arguments_may_stand_in_any_order(first, second, expected):
  for arguments in (f'{first},{second}', f'{second},{first}'):
    c = config.apply_arguments(config.pretraining('base'), arguments)
    assert {name: c[name] for name in expected} == expected


def test_fields_that_arguments_name_are_known_by_their_paths():
  typed = config.list_typed(
    'smoke,profile=hf,size=tiny,data.general=a,nsp=true'
  )
  sizes = {'num_layers', 'hidden_size', 'num_heads', 'mlp_size'}
  sizes = {f'model.{x}' for x in sizes}
  assert typed == sizes | {'data.general', 'objective.nsp'}


def test_steps_are_those_of_all_phases():
  c = config.apply_arguments(config.pretraining('base'), 'steps=3000')
  assert c.phases.steps == (2700, 300)  # of 900,000 and 100,000
  assert c.optimizer.warmup_steps == 30  # of 10,000
  assert c.log.every == 100
  assert c.eval.every == c.checkpoint.every == 600
  assert c.eval.sequences == 500  # the fewest, more than 0.3 % of 10,000
  c = config.apply_arguments(config.pretraining('base'), 'steps=200_000')
  assert c.eval.sequences == 2000
  c = config.apply_arguments(config.pretraining('base'), 'steps=3e3')
  assert c.phases.steps == (2700, 300)
  c = config.apply_arguments(config.pretraining('base'), 'steps=2')
  assert c.phases.steps == (1, 1)
  c = config.apply_arguments(config.pretraining('base'), 'phases.steps=30')
  assert c.phases.steps == (30, 30)  # as any other field of phases
  c = config.pretraining('base')
  c.phases.steps = (4750, 4750, 4750, 500)
  c.phases.warmups = (400, 0, 0, 100)
  c = config.apply_arguments(c, 'steps=29500')  # twice as many
  assert c.phases.steps == (9500, 9500, 9500, 1000)
  assert c.phases.warmups == (800, 0, 0, 200)
  assert c.optimizer.warmup_steps == 20_000 and c.eval.sequences == 10_000
  c = config.apply_arguments(config.finetuning('base'), 'steps=5,eval.every=9')
  assert c.phases.steps == (5,) and c.eval.every == 9


@pytest.mark.parametrize(
  'arguments, message',
  [
    ('batchsize=3', 'did you mean batch_size'),
    ('smok', 'neither smoke nor field=value'),
    ('profile=bert', 'profile=bert is not one of paper, google, hf'),
    ('size=2x96', "'2x96' is not one of tiny, mini.*such as 3x768x12"),
    ('seed=x', 'seed=x: is not a whole number'),
    ('steps=1', 'steps=1 is too few for 2 phases'),
    ('steps=1.5e0', 'steps=1.5e0: is not a whole number'),
    ('steps=1e999', 'steps=1e999: is not a whole number'),
    ('smoke:steps=10', "separate arguments by a comma, as in 'smoke,steps=10'"),
    ('learning_rate=x', 'learning_rate=x: is not a number'),
    ('zzz=1', r"'zzz' is unknown; --help beside --config lists all.$"),
    ('nsp=no', 'is not true or false'),
    ('every=3', 'ambiguous; did you mean checkpoint.every or eval.every'),
    ('weights=2', r"several values; give --config.data.weights='\(1.0, 2.5\)'"),
  ],
)
def test_wrong_arguments(arguments, message):
  with pytest.raises(errors.UserError, match=message):
    config.apply_arguments(config.pretraining('base'), arguments)
