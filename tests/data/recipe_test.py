"""Tests of how a config becomes a recipe."""

import dataclasses

import pytest

from bert_jax import config, errors
from bert_jax.data.recipe import make_recipe, weigh_by_size
from tests.data import preparation


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'heldout': 0.0}, 'data.heldout=0.0 must be above 0'),
    ({'language': 'KO'}, "such as 'ko' for Korean"),
    ({'language': 'en,KO'}, 'a code of ISO 639'),
    ({'language': 'en,ko'}, 'language=en,ko are 2, but there are 1 inputs'),
    ({'weights': (1.0, 2.0)}, 'are 2, but there are 1 inputs'),
    ({'general': 'a.txt'}, 'must be one input, and none of data.input'),
    ({'general': 'b.txt,c.txt'}, 'must be one input'),
    ({'general': 'b', 'weights': (1.0, 2.0)}, 'are 2, but there are 1 inputs'),
    ({'passes': 1000, 'weights': (66.0,)}, 'are 66000 passes over a document'),
    ({'lengths': ()}, 'no length of rows is given'),
    (
      {'rows': 'doc_sentences', 'pack': 3},
      'data.pack=3 is for pairs, and data.rows=doc_sentences makes none; leave '
      'it at 1',
    ),
    (
      {'rows': 'full_sentences', 'short_seq_prob': 0.0},
      'short_seq_prob=0.0 is for pairs',
    ),
    (
      {'rows': 'full_sentences', 'negatives': 'uniform'},
      'negatives=uniform is for pairs, .* leave it at input',
    ),
    ({'lengths': (7,)}, 'phases.seq_length=.7,. must be at least 8'),
  ],
)
def test_wrong_values_are_named(changes, message):
  with pytest.raises(errors.UserError, match=message):
    preparation.make_recipe('a.txt', **changes)


def test_every_field_of_a_config_reaches_the_recipe():
  c = config.declare_fields()
  c.data.update(input='a,b', weights=(1, 2.5), pack=3, vocab_size=120)
  c.phases.seq_length = (64, 32, 64)
  made = make_recipe(c).to_dict()
  assert (made.pop('inputs'), made.pop('lengths')) == (['a', 'b'], [32, 64])
  assert (made.pop('weights'), made.pop('strip_accents')) == ([1.0, 2.5], None)
  assert made.pop('seed') == c.seed
  assert made == {name: c.data[name] for name in made} and made['pack'] == 3


def test_sizes_count_by_their_power_and_all_text_as_often_as_before():
  recipe = preparation.make_recipe('a', inputs=('a', 'b'), passes=5)
  assert weigh_by_size(recipe, [1, 8]) is recipe
  assert 'size_power' not in recipe.to_dict()
  some = dataclasses.replace(recipe, size_power=1 / 3)
  # The cube root of 8 is 2, so that 9 bytes are shared as 1 to 2.
  weights = weigh_by_size(some, [1, 8]).weights
  assert weights == pytest.approx((3, 6 / 8))
  some = dataclasses.replace(some, weights=(2.0, 1.0))
  weights = weigh_by_size(some, [1, 8]).weights
  assert weights == pytest.approx((6, 6 / 8))


def test_general_text_gets_its_share_behind_the_weights():
  recipe = preparation.make_recipe(
    'a', inputs=('a', 'b'), weights=(1.0, 2.0), general='c', general_share=0.25
  )
  assert recipe.inputs == ('a', 'b', 'c')
  # 10 + 2 x 10 bytes are three quarters, 10 of 100 one.
  assert weigh_by_size(recipe, [10, 10, 100]).weights == (1.0, 2.0, 0.1)
  assert weigh_by_size(recipe, [10**9, 0, 1]).weights[2] == 1000
  often = dataclasses.replace(recipe, passes=100)
  with pytest.raises(errors.UserError, match='are 100000 passes over a doc'):
    weigh_by_size(often, [10**9, 0, 1])
  assert preparation.make_recipe('a').general_share == 0.0
