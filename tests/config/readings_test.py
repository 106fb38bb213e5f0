"""Tests of reading what was written."""

import json

import pytest

from bert_jax import config, config_check, errors


def test_what_is_written_as_json_comes_back():
  c = config.apply_arguments(config.pretraining('tiny'), 'smoke,mask_rate=0.5')
  c.update_from_flattened_dict({'data.input': 'a,b', 'data.weights': (1, 2.5)})
  config_check.check(c)
  fields = json.loads(config.to_json(c))
  assert config.unflatten(fields) == c
  del fields['optimizer.b2']
  assert config.unflatten(fields).optimizer.b2 == 0.999


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
