"""Tests of the learning rate and the epochs that a run does not give."""

import pytest

from bert_jax import config
from bert_jax.finetuning import completion


def make(size, task='classification', arguments='', **fields):
  c = config.finetuning(size)
  c.task = task
  c.finetuning.update(fields)
  return config.apply_arguments(c, arguments)


@pytest.mark.parametrize('size', ['base', 'large', '3x768x12'])
@pytest.mark.parametrize(
  'task, fields, expected',
  [
    ('classification', {'glue': 'rte'}, (2e-5, 3)),
    ('classification', {}, (3e-5, 3)),
    ('tagging', {}, (5e-5, 3)),
    ('choice', {}, (2e-5, 3)),
    ('spans', {}, (5e-5, 3)),
    ('spans', {'unanswerable': True}, (5e-5, 2)),
  ],
)
def test_from_the_size_of_base_on_they_are_the_papers(
  size, task, fields, expected
):
  for rows in (20, 400_000):
    assert completion.choose(make(size, task, **fields), rows) == expected


def test_the_smaller_a_model_the_higher_its_rate():
  rates = [
    completion.choose(make(size), 10**6)[0]
    for size in ('tiny', 'mini', 'small', 'base')
  ]
  assert rates == sorted(rates, reverse=True) and len(set(rates)) == 4
  # At 128, 1e-3 learnt 240 rows that 3e-5, the rate of 768, did not.
  assert 1e-4 <= rates[0] <= 2e-3


def test_a_small_model_makes_hundreds_of_updates_of_few_rows():
  for rows in (10, 240, 2490):
    _, epochs = completion.choose(make('tiny'), rows)
    assert epochs * rows / 32 >= 300
  assert completion.choose(make('tiny'), 67_000)[1] == 3


@pytest.mark.parametrize('name', ['paper', 'google', 'hf'])
def test_a_profile_keeps_the_papers_at_any_size(name):
  c = make('tiny', arguments=f'profile={name}', glue='rte')
  assert (c.optimizer.learning_rate, c.finetuning.epochs) == (2e-5, 3)
  c = make('tiny', 'tagging', f'learning_rate=0.5,profile={name}')
  assert (c.optimizer.learning_rate, c.finetuning.epochs) == (0.5, 3)
  before = config.pretraining('tiny').optimizer.learning_rate
  c = config.apply_arguments(config.pretraining('tiny'), f'profile={name}')
  assert c.optimizer.learning_rate == before


def test_the_plan_says_what_was_chosen_and_what_was_not():
  c = make('tiny')
  c.phases.steps = (22,)
  c.optimizer.learning_rate, c.finetuning.epochs = 3e-5, 3.0
  rate, epochs = completion.choose(c, 240)
  assert completion.describe(c, 240) == (
    '22 updates, which is few: 3 epochs of 240 rows in batches of 32, learning rate 3e-05 '
    f'(not {epochs:g} epochs at {rate:g}, the default for a hidden size of 128)'
  )
  c.optimizer.learning_rate, c.finetuning.epochs = rate, epochs
  assert completion.describe(c, 240).endswith('(for a hidden size of 128)')


def test_the_advice_names_the_rate_and_the_updates_and_goes_further():
  c = make('tiny')
  c.phases.steps = (22,)
  c.optimizer.learning_rate, c.finetuning.epochs = 3e-5, 3.0
  rate, epochs = completion.choose(c, 240)
  assert completion.advise(c, 240) == (
    f'after 22 updates at 3e-05, try finetuning.epochs={epochs:g} or '
    f'optimizer.learning_rate={rate:g}'
  )
  c = make('base', glue='rte')
  c.phases.steps = (22,)
  c.optimizer.learning_rate, c.finetuning.epochs = 2e-5, 3.0
  assert completion.advise(c, 240).endswith(
    'epochs=9 or optimizer.learning_rate=5e-05'
  )
