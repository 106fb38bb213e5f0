"""Tests of what is filled in before a run starts."""

import json

import pytest

from bert_jax import config_check, errors, tasks
from bert_jax.config import (
  apply_arguments,
  flatten,
  model_config,
  recipes,
)
from bert_jax.finetuning import (
  batches,
  completion,
  starting,
)
from bert_jax.workdir import claim
from tests.finetuning import made


def complete(tmp_path, **changes):
  c = made.configure(tmp_path, **changes)
  return made.prepare(c, str(tmp_path / 'run'))[0]


def test_sizes_come_from_the_model_and_steps_from_the_data(tmp_path):
  c = complete(tmp_path, **{'finetuning.epochs': 3.5})
  bert = model_config(c)
  assert (bert.num_layers, bert.hidden_size, bert.mlp_size) == (2, 8, 12)
  assert (bert.vocab_size, bert.max_positions) == (11, 16)
  assert c.model.dropout == 0.1  # the recipe's, not the source's 0
  assert c.finetuning.outputs == 2
  assert c.phases.steps == (21,)  # 3.5 * 48 / 8
  assert c.optimizer.warmup_steps == 2
  assert not c.finetuning.by_length  # 21 updates do not earn it back
  # the the the the cat ##s, [CLS] and [SEP]
  assert c.phases.seq_length == (8,)
  config_check.check(c)


def test_predictions_take_as_many_tokens_as_were_asked_for(tmp_path):
  c = made.configure(tmp_path, **{'phases.seq_length': (12,)})
  c, data = made.prepare(c, str(tmp_path / 'run'))
  assert c.phases.seq_length == (8,)  # that of the longest row
  assert tasks.get(c).make_task(c, data).facts['max_length'] == 12


def test_the_length_is_at_most_what_was_asked_for_or_the_model_takes(tmp_path):
  c = complete(tmp_path, **{'phases.seq_length': (8,)})
  assert c.phases.seq_length == (8,)
  rows = [f'{"cat " * 40},a', 'dog,b']
  long = made.write_csv(tmp_path / 'long', train=rows, dev=['dog,b'])
  c = complete(tmp_path, **{'data.input': long})
  assert c.phases.seq_length == (16,)
  with pytest.raises(
    errors.UserError,
    match='length=17 is more than the 16 pos.*set seq_length=16',
  ):
    complete(tmp_path, **{'phases.seq_length': (17,)})


def test_a_run_that_has_begun_keeps_what_it_began_with(tmp_path):
  c = made.make_config('gone', 'gone too', **{'finetuning.epochs': 0.0})
  run = tmp_path / 'run'
  (run / 'checkpoints' / '5').mkdir(parents=True)
  saved = flatten(c) | {
    'phases.steps': [33],
    'model.num_layers': 7,
    'model.dropout': 0.3,
    'model.bilstm': 5,
    'finetuning.outputs': 5,
    'optimizer.learning_rate': 0.25,
    'finetuning.epochs': 7.0,
    'seed': 4,
  }
  del saved['finetuning.head_bias']  # which an earlier version did not have
  (run / 'config.json').write_text(json.dumps(saved))
  found = starting.take_model(c, str(run))
  assert found.finetuning.head_bias == 'zeros'
  assert found.phases.steps == (33,)
  assert (found.model.num_layers, found.finetuning.outputs) == (7, 5)
  # What the user gives is compared with the saved config later.
  assert (found.model.dropout, found.model.bilstm, found.seed) == (0.1, 0, 0)
  assert found.optimizer.learning_rate == 1e-2
  assert found.finetuning.epochs == 7


@pytest.mark.parametrize(
  'field, value, compared',
  [
    ('phases.seq_length', (12,), 'finetuning.max_length'),
    ('finetuning.epochs', 4.0, 'finetuning.epochs'),
    ('finetuning.head_bias', 'zeros', 'finetuning.head_bias'),
    ('finetuning.by_length', False, 'finetuning.by_length'),
  ],
)
def test_a_run_that_has_begun_does_not_drop_a_field_that_is_given(
  tmp_path, monkeypatch, field, value, compared
):
  monkeypatch.setattr(batches, 'pays', lambda *_: True)
  c, run = made.configure(tmp_path), str(tmp_path / 'run')
  claim.adopt(run, made.prepare(c, run)[0])
  (tmp_path / 'run' / 'checkpoints' / '5').mkdir(parents=True)
  assert claim.find_changes(run, starting.take_model(c, run)) == {}
  c.update_from_flattened_dict({field: value})
  found = claim.find_changes(run, starting.take_model(c, run))
  assert list(found) == [compared]


def test_the_rate_and_the_epochs_follow_from_the_model_and_the_rows(tmp_path):
  auto = {'optimizer.learning_rate': 0.0, 'finetuning.epochs': 0.0}
  c = complete(tmp_path, **auto)
  rate, epochs = completion.choose(c, 48)
  assert rate == 3e-4 and epochs > 50  # a hidden size of 8, 48 rows
  assert c.optimizer.learning_rate == rate
  assert c.finetuning.epochs == epochs
  assert c.phases.steps == (int(epochs * 48 / 8),)
  config_check.check(c)
  given = complete(tmp_path, **auto | {'optimizer.learning_rate': 1e-5})
  assert given.optimizer.learning_rate == 1e-5
  assert given.finetuning.epochs == epochs


@pytest.mark.parametrize('epochs, every', [(3.0, 6), (20.0, 12)])
def test_dev_is_scored_each_epoch_but_ten_times_at_most(
  tmp_path, epochs, every
):
  fields = {'finetuning.epochs': epochs}
  assert complete(tmp_path, **fields).eval.every == every  # 6 updates an epoch
  assert complete(tmp_path, **fields, **{'eval.every': 4}).eval.every == 4


def write_one_way(tmp_path, reverse):
  if reverse:
    return made.write_reversed(tmp_path / 'rtl')[0]
  return made.write_model(tmp_path / 'ltr', causal=True)[0]


@pytest.mark.parametrize('reverse, kind', [(False, 'ltr'), (True, 'rtl')])
def test_a_model_that_reads_one_way_goes_on_doing_so(tmp_path, reverse, kind):
  c = complete(tmp_path, init_from=write_one_way(tmp_path, reverse))
  assert c.objective.kind == kind and not c.objective.nsp
  bert = model_config(c)
  assert bert.causal and bert.reverse == reverse
  config_check.check(c)


def test_gpts_form_adds_three_words_and_needs_a_left_to_right_model(tmp_path):
  form = {'finetuning.form': 'gpt'}
  c = complete(tmp_path, init_from=write_one_way(tmp_path, False), **form)
  assert c.data.vocab_size == 11 + 3
  assert starting.read_tokenizer(c).vocab[-1] == '[EXTRACT]'
  with pytest.raises(errors.UserError, match='reads from left to right; pre-t'):
    complete(tmp_path, init_from=write_one_way(tmp_path, True), **form)
  with pytest.raises(errors.UserError, match='reads from left to right; pre-t'):
    complete(tmp_path, **form)


def test_labels_that_are_all_the_same_are_refused(tmp_path):
  rows = ['cat,1', 'dog,1']
  texts = made.write_csv(tmp_path / 'same', train=rows, dev=rows)
  with pytest.raises(errors.UserError, match="only the label '1'; there is"):
    complete(tmp_path, **{'data.input': texts})


@pytest.mark.parametrize(
  'changes, message',
  [
    (
      {'data.dir': 'x'},
      'data.dir=x means nothing here, since the data of fine',
    ),
    ({'data.vocab': 'v'}, 'data.vocab=v means nothing here, since init'),
    ({'resize_positions': True}, 'resize_positions=True means nothing here'),
    (
      {'task': 'spans', 'finetuning.head_bias': 'labels'},
      'head_bias=labels means nothing',
    ),
    ({'phases.steps': (1, 1)}, 'phases have 2 entries; fine-tuning has one'),
    ({'finetuning.reinit_layers': 3}, '=3 is more than the 2 layers'),
  ],
)
def test_fields_without_an_effect_are_refused(tmp_path, changes, message):
  with pytest.raises(errors.UserError, match=message):
    complete(tmp_path, **changes)


def make_sized(size, task='classification', arguments='', **fields):
  c = recipes.finetuning(size)
  c.task = task
  c.finetuning.update(fields)
  return apply_arguments(c, arguments)


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
    assert completion.choose(make_sized(size, task, **fields), rows) == expected


def test_the_smaller_a_model_the_higher_its_rate():
  rates = [
    completion.choose(make_sized(size), 10**6)[0]
    for size in ('tiny', 'mini', 'small', 'base')
  ]
  assert rates == sorted(rates, reverse=True) and len(set(rates)) == 3
  assert 2e-4 <= rates[0] == rates[1] <= 4e-4
  assert rates[2] >= 3.9 * rates[3]
  tags = completion.choose(make_sized('tiny', 'tagging'), 10**6)[0]
  assert 8e-4 <= tags <= 2e-3


def test_a_small_model_makes_hundreds_of_updates_of_few_rows():
  for rows in (10, 240, 2490):
    _, epochs = completion.choose(make_sized('tiny'), rows)
    assert epochs * rows / 32 >= 300
  assert completion.choose(make_sized('tiny'), 67_000)[1] == 3


@pytest.mark.parametrize('name', ['paper', 'google', 'hf'])
def test_a_profile_keeps_the_papers_at_any_size(name):
  c = make_sized('tiny', arguments=f'profile={name}', glue='rte')
  assert (c.optimizer.learning_rate, c.finetuning.epochs) == (2e-5, 3)
  c = make_sized('tiny', 'tagging', f'learning_rate=0.5,profile={name}')
  assert (c.optimizer.learning_rate, c.finetuning.epochs) == (0.5, 3)


def test_the_plan_says_what_was_chosen_and_the_advice_goes_further():
  c = make_sized('tiny')
  c.phases.steps = (22,)
  c.optimizer.learning_rate, c.finetuning.epochs = 3e-5, 3.0
  rate, epochs = completion.choose(c, 240)
  found = completion.describe(c, 240)
  assert found.startswith('22 updates, which is few: 3 epochs of 240 rows in ')
  assert f'learning rate 3e-05 (not {epochs:g} epochs at {rate:g}' in found
  assert completion.advise(c, 240) == (
    f'after 22 updates at 3e-05, try finetuning.epochs={epochs:g} or '
    f'optimizer.learning_rate={rate:g}'
  )
