"""Tests of trained models from Python, as docs/analysis.md uses them."""

import pathlib
import re

import numpy as np
import pytest

import bert_jax
from bert_jax import errors
from bert_jax.inference import hidden_states, source

_PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'analysis.md'


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  text = _PAGE.read_text('utf-8').partition('## From Python')[2]
  made = {}
  exec(re.search('```python\n(.*?)```', text, re.S)[1], made)
  [[words]] = made['guesses']
  assert len(words) == 3 and words[0][1] >= words[1][1]
  assert made['scores'].shape == (2,) and (made['scores'] < 0).all()
  assert [x.ndim for x in made['states']] == [2, 2]
  model = made['model']
  again = bert_jax.load('runs/smoke/export')
  # In a batch of another shape, sums are rounded in another order.
  np.testing.assert_allclose(
    again.encode(['a text'])[0], made['states'][0], rtol=0, atol=1e-5
  )
  [own] = hidden_states.extract(*source.read('runs/smoke')[:3], ['a text'])
  np.testing.assert_array_equal(own.hidden, again.encode(['a text'])[0])
  with pytest.raises(errors.UserError, match='has no head that predicts'):
    model.predict(['a text'])
  with pytest.raises(errors.UserError, match='put it in a list'):
    model.encode('a text')
