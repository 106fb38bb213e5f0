"""Tests of the declared fields."""

from bert_jax import config


def test_every_field_but_one_has_a_short_name_of_its_own():
  names = [
    name.split('.')[-1] for name in config.flatten(config.declare_fields())
  ]
  assert {name for name in names if names.count(name) > 1} == {'every'}


def test_the_defaults_of_what_is_declared_are_the_papers_base():
  assert config.declare_fields() == config.pretraining('base')
