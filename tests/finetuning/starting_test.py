"""Tests of what fine-tuning starts from, and of what is filled in before."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from bert_jax import config_check, errors, main, param_names
from bert_jax.config import apply_arguments, flatten, model_config, recipes
from bert_jax.finetuning import batches, starting
from bert_jax.inference import source
from bert_jax.interop import hugging_face
from bert_jax.model import classifier
from bert_jax.workdir import checkpoint_reader, claim, paths
from tests import models
from tests.finetuning import made


def make_config(**changes):
  c = made.make_config('', '', **changes)
  c.model.num_layers = 12
  return c


def test_a_model_is_taken_over_except_for_its_heads(tmp_path):
  path = made.write_source(tmp_path / 'source')
  c = make_config(init_from=path, **{'data.vocab_size': 11})
  c.model.num_layers = 2
  new = models.make_params(made.BERT, seed=3)
  new = {name: new[name] for name in ('embeddings', 'encoder', 'pooler')}
  new['classifier'] = {'bias': np.ones(2, np.float32)}
  found, facts = starting.make_start(c, ('a', 'b'), None)(new)
  theirs = param_names.flatten(models.make_params(made.BERT))
  for name, x in param_names.flatten(found).items():
    expected = 1 if name == 'classifier/bias' else theirs[name]
    np.testing.assert_array_equal(x, np.broadcast_to(expected, x.shape))
  assert facts['path'] == path
  c.data.vocab_size = 12
  with pytest.raises(errors.UserError, match='other words than the 12 when'):
    starting.make_start(c, ('a', 'b'), None)(new)


@pytest.mark.parametrize('length, said', [(6, 0), (7, 1)])
def test_rows_longer_than_those_of_the_source_are_said(
  tmp_path, capsys, length, said
):
  path, about = str(tmp_path / 'source'), (made.BERT, models.TOKENIZER)
  params = models.make_params(made.BERT)
  hugging_face.export(path, params, *about, trained_length=6)
  start(path, 8, **{'phases.seq_length': (length,)})
  out = capsys.readouterr().out
  assert out.count(f'=7, but {path} was trained on rows of 6 tokens') == said


def write_head(path, labels=('a', 'b')):
  """Exports a classifier, whose kernel has 8 rows as after a BiLSTM of 4."""
  kernel = np.full((8, 2), 5, np.float32)
  head = classifier.Head(kernel, np.ones(2, np.float32), labels, 8, ('text',))
  params = models.make_params(made.BERT)
  hugging_face.export(
    str(path), params, made.BERT, models.TOKENIZER, None, head
  )
  return str(path)


BIAS = np.array([-0.25, -1.5], np.float32)


def start(path, rows, **changes):
  """Returns the classifier that a run starts from; a new one has [rows, 2]."""
  changes = {'data.vocab_size': 11, 'model.num_layers': 2} | changes
  c = make_config(init_from=path)
  c.update_from_flattened_dict(changes)
  new = models.make_params(made.BERT)
  new['classifier'] = {'kernel': np.zeros((rows, 2), np.float32)}
  return starting.make_start(c, ('a', 'b'), BIAS)(new)[0]['classifier']


@pytest.mark.parametrize(
  ('changes', 'rows', 'field'),
  [
    ({}, 8, ''),  # of the same kind, for the same labels
    ({'model.bilstm': 4}, 8, 'model.bilstm=0'),
    ({'model.bilstm': 3}, 6, 'model.bilstm=0'),
    ({'finetuning.form': 'gpt', 'data.vocab_size': 14}, 8, 'form=bert'),
    ({'task': 'tagging'}, 8, 'classification'),
    ({'model.pooling': 'mean'}, 8, 'model.pooling=cls'),
  ],
)
def test_a_head_is_taken_over_or_left_out_and_this_is_said(
  tmp_path, capsys, changes, rows, field
):
  path = write_head(tmp_path / 'source')
  found = start(path, rows, **changes)
  np.testing.assert_array_equal(found['kernel'], 0 if changes else 5)
  np.testing.assert_array_equal(found['bias'], BIAS if changes else 1)
  out = capsys.readouterr().out
  left_out = f'the head of {path} is left out, which is for classification'
  assert (left_out in out) == bool(changes) and field in out
  assert ('classifier: new, the source has none' in out) == bool(changes)


def test_random_weights_have_no_source_but_need_a_vocabulary():
  with pytest.raises(errors.UserError, match='init_from is empty; name a tra'):
    starting.read_tokenizer(make_config())
  assert starting.make_start(make_config(), ('a', 'b'), None) is None
  kernel = np.zeros((8, 2), np.float32)
  new = {'x': kernel, 'classifier': {'kernel': kernel, 'bias': kernel[0]}}
  made = starting.make_start(make_config(), ('a', 'b'), BIAS)(new)
  assert made == (
    {'x': kernel, 'classifier': {'kernel': kernel, 'bias': BIAS}},
    {},
  )


def make_frozen(source, data, features, **changes):
  frozen = {'finetuning.features': features, 'model.bilstm': 6}
  return made.make_config(source, data, **frozen, **changes)


def test_models_that_differ_are_not_joined(tmp_path):
  a, *_ = made.write_model(tmp_path / 'a')
  b, *_ = made.write_model(tmp_path / 'b', num_layers=3)
  c, *_ = made.write_model(tmp_path / 'c', causal=True)
  words = dataclasses.replace(models.TOKENIZER, lowercase=False)
  d, *_ = made.write_model(tmp_path / 'd', words)
  for joined, message in (
    ((a, b), 'num_layers'),
    ((a, d), 'vocabulary'),
    ((a, c), 'kind'),
    ((c, c), 'kind'),
    ((a, a, a), 'their number'),
  ):
    config = make_frozen(','.join(joined), '', 'last')
    with pytest.raises(
      errors.UserError, match=f'two models, .*, not in {message}'
    ):
      starting.read_models(config)


@pytest.mark.slow
def test_a_run_trains_a_head_on_two_models_that_it_does_not_change(
  tmp_path, capsys
):
  ltr, *_ = made.write_model(tmp_path / 'ltr', causal=True)
  rtl, *_ = made.write_reversed(tmp_path / 'rtl', seed=1)
  texts = made.write_texts(tmp_path / 'texts')
  c = make_frozen(f'{ltr},{rtl}', texts, 'weighted_sum_all')
  run = made.train(c, tmp_path)
  out = capsys.readouterr().out
  assert out.count('  no export: only a head was trained') == 1
  trained = [x['cross_entropy'] for x in made.list_logged(run, 'train')]
  assert trained[-1] < trained[0]
  params, _ = checkpoint_reader.read(paths.checkpoints(run))
  for path, part in ((ltr, params), (rtl, params['beside'])):
    theirs = param_names.flatten(source.read(path).params)
    for name, x in param_names.flatten(part).items():
      if name.startswith(('embeddings/', 'encoder/')):
        np.testing.assert_array_equal(x[: len(theirs[name])], theirs[name])
  with pytest.raises(errors.UserError, match='only a head.*are in predictions'):
    made.predict(run, f'{texts}/test.csv', tmp_path / 'out.csv')
  # The models are in the checkpoints.
  shutil.rmtree(ltr)
  main.run(c, run)
  assert 'resumed at step' in capsys.readouterr().out


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
  assert c.finetuning.max_length == 16  # which `predict` takes
  assert not c.finetuning.by_length  # 21 updates do not earn it back
  # the the the the cat ##s, [CLS] and [SEP]
  assert c.phases.seq_length == (8,)
  config_check.check(c)


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
  rate, epochs = starting.choose(c, 48)
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


@pytest.mark.parametrize(
  'bert, changes, message',
  [
    (made.MODERN, {'model.bilstm': 4}, 'bilstm=4 is not for .*body=modern'),
    (made.BERT, {'model.pooling': 'mean'}, 'mean is not for .*body=classic'),
  ],
)
def test_what_the_head_of_a_body_has_no_place_for_is_refused(
  tmp_path, monkeypatch, bert, changes, message
):
  monkeypatch.setattr(made, 'BERT', bert)
  c = made.configure(tmp_path, **changes)
  with pytest.raises(errors.UserError, match=message):
    starting.take_model(c, str(tmp_path / 'run'))


def test_gpts_form_adds_three_words_and_needs_a_left_to_right_model(tmp_path):
  form = {'finetuning.form': 'gpt'}
  c = complete(tmp_path, init_from=write_one_way(tmp_path, False), **form)
  assert c.data.vocab_size == 11 + 3
  assert starting.read_tokenizer(c).vocab[-1] == '[EXTRACT]'
  with pytest.raises(errors.UserError, match='reads from left to right; pre-t'):
    complete(tmp_path, init_from=write_one_way(tmp_path, True), **form)
  with pytest.raises(errors.UserError, match='reads from left to right; pre-t'):
    complete(tmp_path, **form)


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
    (
      {
        'finetuning.features': 'last',
        'model.bilstm': 4,
        'optimizer.freeze': '^heads/',
      },
      'optimizer.freeze=.*features freezes the whole model',
    ),
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
    assert starting.choose(make_sized(size, task, **fields), rows) == expected


def test_the_smaller_a_model_the_higher_its_rate():
  rates = [
    starting.choose(make_sized(size), 10**6)[0]
    for size in ('tiny', 'mini', 'small', 'base')
  ]
  assert rates == sorted(rates, reverse=True) and len(set(rates)) == 3
  assert 2e-4 <= rates[0] == rates[1] <= 4e-4
  assert rates[2] >= 3.9 * rates[3]
  tags = starting.choose(make_sized('tiny', 'tagging'), 10**6)[0]
  assert 8e-4 <= tags <= 2e-3


def test_a_model_with_too_few_layers_is_refused(tmp_path):
  source, *_ = made.write_model(tmp_path / 'm')
  texts = made.write_texts(tmp_path / 'texts')
  c = make_frozen(source, texts, 'concat_last_4')
  with pytest.raises(errors.UserError, match='needs 4 layers, the model has 2'):
    made.prepare(c, str(tmp_path / 'run'))
  c.init_from, c.data.vocab = '', models.write_data(tmp_path / 'v')
  with pytest.raises(errors.UserError, match='needs init_from: the model, or'):
    made.prepare(c, str(tmp_path / 'run'))


def test_the_plan_says_what_was_chosen_and_the_advice_goes_further():
  c = make_sized('tiny')
  c.phases.steps = (22,)
  c.optimizer.learning_rate, c.finetuning.epochs = 3e-5, 3.0
  rate, epochs = starting.choose(c, 240)
  found = starting.describe_plan(c, 240)
  assert found.startswith('22 updates: 3 times 240 rows in batches of 32, ')
  assert (
    f'rate 3e-05 (the default for a hidden size of 128 is {epochs:g}' in found
  )
  assert starting.advise(c, 240) == (
    f'after 22 updates at 3e-05, try finetuning.epochs={epochs:g} or '
    f'optimizer.learning_rate={rate:g}'
  )
  c.optimizer.learning_rate, c.finetuning.epochs = rate, epochs
  assert starting.describe_plan(c, 240).endswith('of 128 is this)')
