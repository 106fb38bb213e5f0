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


def test_smoke_does_not_undo_other_arguments():
  for arguments in ('smoke,steps=77', 'steps=77,smoke'):
    c = config.apply_arguments(config.pretraining('base'), arguments)
    assert c.phases.steps == (77, 77) and c.model.hidden_size == 64


@pytest.mark.parametrize(
  'arguments, message',
  [
    ('batchsize=3', 'did you mean batch_size'),
    ('smok', 'neither smoke nor field=value'),
    ('profile=bert', 'profile=bert is not one of paper, google, hf'),
    ('size=2x96', "'2x96' is not one of tiny, mini.*such as 3x768x12"),
    ('seed=x', "invalid literal for int.*'x'"),
    ('nsp=no', 'is not true or false'),
    ('every=3', 'ambiguous; did you mean checkpoint.every or eval.every'),
    ('weights=2', r"several values; give --config.data.weights='\(1.0, 2.5\)'"),
  ],
)
def test_wrong_arguments(arguments, message):
  with pytest.raises(errors.UserError, match=message):
    config.apply_arguments(config.pretraining('base'), arguments)
