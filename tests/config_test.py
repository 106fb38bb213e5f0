"""Tests of configs."""

import glob
import importlib.util
import json
import os

import pytest

from bert_jax import config, config_check, errors

CONFIGS = sorted(
  glob.glob(os.path.join(os.path.dirname(__file__), '../configs/*.py'))
)


def load(path, *arguments):
  spec = importlib.util.spec_from_file_location('experiment', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.get_config(*arguments)


@pytest.mark.parametrize('path', CONFIGS, ids=os.path.basename)
def test_every_config_can_work_and_is_documented(path):
  config_check.check(load(path))
  sizes = {
    'table6.py': '3x768x12,',
    'compact.py': 'small,',
    'baselines.py': 'ltr,',
    'glue.py': 'rte,',
  }
  size = sizes.get(os.path.basename(path), '')
  config_check.check(load(path, size + 'smoke'))
  with open(path, encoding='utf-8') as file:
    assert f'--config=configs/{os.path.basename(path)}' in file.read()


def test_every_field_but_one_has_a_short_name_of_its_own():
  names = [
    name.split('.')[-1] for name in config.flatten(config.declare_fields())
  ]
  assert {name for name in names if names.count(name) > 1} == {'every'}


def test_the_papers_recipe():
  for size in ('base', 'large'):
    c = load(next(p for p in CONFIGS if p.endswith(f'{size}.py')))
    assert sum(c.phases.steps) == 1_000_000
    assert c.phases.seq_length == (128, 512)
    assert c.phases.steps == (900_000, 100_000)
    assert c.phases.batch_size == (256, 256)
    assert c.phases.max_predictions == (20, 76)
    assert c.optimizer.to_dict() == {
      'learning_rate': 1e-4,
      'warmup_steps': 10_000,
      'b1': 0.9,
      'b2': 0.999,
      'epsilon': 1e-6,
      'bias_correction': True,
      'weight_decay': 0.01,
      'clip_norm': 1.0,
      'clip_unit': 'batch',
      'decay_from': 'warmup',
      'layer_decay': 1.0,
      'freeze': '',
      'reduce_dtype': 'float32',
    }
    assert (c.model.dropout, c.model.attention_dropout) == (0.1, 0.1)


def test_arguments():
  c = config.apply_arguments(
    config.pretraining('base'), 'batch_size=64,model.dropout=0,nsp=false'
  )
  assert c.phases.batch_size == (64, 64)
  assert c.model.dropout == 0.0 and isinstance(c.model.dropout, float)
  assert c.objective.nsp is False


def test_smoke_does_not_undo_other_arguments():
  for arguments in ('smoke,steps=77', 'steps=77,smoke'):
    c = config.apply_arguments(config.pretraining('base'), arguments)
    assert c.phases.steps == (77, 77) and c.model.hidden_size == 64


@pytest.mark.parametrize(
  'arguments, message',
  [
    ('batchsize=3', 'did you mean batch_size'),
    ('smok', 'neither smoke nor field=value'),
    ('seed=x', "invalid literal for int.*'x'"),
    ('nsp=no', 'is not true or false'),
    ('every=3', 'ambiguous; did you mean checkpoint.every or eval.every'),
    ('weights=2', r"several values; give --config.data.weights='\(1.0, 2.5\)'"),
  ],
)
def test_wrong_arguments(arguments, message):
  with pytest.raises(errors.UserError, match=message):
    config.apply_arguments(config.pretraining('base'), arguments)


def test_an_unknown_size_is_an_error():
  with pytest.raises(errors.UserError, match="'tny' is not one of tiny, mini"):
    config.pretraining('tny')


def test_what_is_written_as_json_comes_back():
  c = load(CONFIGS[0], 'smoke,mask_rate=0.5')
  fields = json.loads(config.to_json(c))
  assert config.unflatten(fields) == c
  del fields['optimizer.b2']
  assert config.unflatten(fields).optimizer.b2 == 0.999


def test_the_defaults_of_what_is_declared_are_the_papers_base():
  assert config.declare_fields() == config.pretraining('base')


def test_reading_a_config_needs_no_size(monkeypatch):
  monkeypatch.setattr(config, 'SIZES', {})
  assert config.unflatten({'model.num_layers': 3}).model.hidden_size == 768


def test_weights_of_inputs_can_be_given_and_come_back():
  c = config.pretraining('base')
  c.update_from_flattened_dict({'data.input': 'a,b', 'data.weights': (1, 2.5)})
  config_check.check(c)
  assert config.unflatten(json.loads(config.to_json(c))) == c


@pytest.mark.parametrize(
  ('field', 'value', 'message'),
  [
    ('model.layers', 2, "'model.layers' is not a field"),
    ('seed', '0', "seed='0' should be like 0"),
    ('seed', True, 'seed=True'),
    ('phases.steps', 5, 'phases.steps=5 should be like'),
    ('phases.steps', [5, None], 'phases.steps'),
    ('objective.nsp', 1, 'objective.nsp=1'),
    ('data.weights', 2.0, r'data.weights=2.0 should be like \(1.0, 2.5\)'),
    ('data.weights', ['a'], 'data.weights'),
  ],
)
def test_json_of_another_kind_is_refused(field, value, message):
  with pytest.raises(errors.UserError, match=message):
    config.unflatten({field: value})
