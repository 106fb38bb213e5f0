import json

import pytest

from bert_jax import errors
from tests.data import preparation


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'heldout': 0.0}, 'heldout=0.0 must be a share'),
    ({'short_seq_prob': 1.5}, 'short_seq_prob=1.5 must be'),
    ({'language': 'korean'}, "language='korean' is no code of ISO 639; give"),
    ({'language': 'KO'}, "such as 'ko' for Korean"),
    ({'language': ''}, "language='' is no code"),
    ({'passes': 0}, 'passes=0 must be at least 1'),
    ({'pack': 0}, 'pack=0 must be at least 1'),
    ({'weights': (1.0, 2.0)}, 'are 2, but there are 1 inputs'),
    ({'weights': (0.0,)}, 'must be above 0'),
    ({'weights': (float('nan'),)}, 'must be above 0'),
    ({'passes': 70_000}, 'are 70000 passes over a document'),
    ({'weights': (1000.0,), 'passes': 66}, 'are 66000 passes over a document'),
    ({'lengths': ()}, 'must be from 8'),
    ({'lengths': (7,)}, 'must be from 8'),
    ({'lengths': (70_000,)}, 'must be from 8'),
  ],
)
def test_wrong_values_are_named(changes, message):
  with pytest.raises(errors.UserError, match=message):
    preparation.make_recipe('a.txt', **changes).check()


def test_a_recipe_equals_what_is_read_back():
  recipe = preparation.make_recipe('a.txt', weights=(1.5,))
  recipe.check()
  assert json.loads(json.dumps(recipe.to_dict())) == recipe.to_dict()


@pytest.mark.parametrize('language', ['ko', 'yue', 'zh-hans', 'be-tarask'])
def test_codes_of_languages_are_taken(language):
  preparation.make_recipe('a.txt', language=language).check()
