"""Tests of the tasks by name."""

import pytest

from bert_jax import config, errors, tasks


def test_an_unknown_task_is_refused():
  c = config.pretraining('tiny')
  c.task = 'chess'
  with pytest.raises(errors.UserError, match="'chess' is not one of pretr"):
    tasks.get(c)
