"""Tests of the declared fields."""

import subprocess
import sys

import pytest

from bert_jax import config
from bert_jax.model import bert_config, classifier


def test_every_field_but_one_has_a_short_name_of_its_own():
  names = [
    name.split('.')[-1] for name in config.flatten(config.declare_fields())
  ]
  assert {name for name in names if names.count(name) > 1} == {'every'}


def test_the_defaults_of_what_is_declared_are_the_papers_base():
  assert config.declare_fields() == config.pretraining('base')


@pytest.mark.parametrize(
  'name, implemented',
  [
    ('model.activation', bert_config.ACTIVATIONS),
    ('model.norm', bert_config.NORMS),
    ('model.initializer', bert_config.INITIALIZERS),
    ('model.attention_init', bert_config.ATTENTION_INITS),
    ('compute.remat', bert_config.REMAT),
    (
      'finetuning.features',
      {'none', *classifier.LAYERS} - {'sum_last_4', 'all'},
    ),
  ],
)
def test_what_a_field_allows_is_what_there_is(name, implemented):
  assert set(config.FIELDS[name].allowed) == {*implemented}


def test_every_meaning_fits_a_sentence_of_help():
  for name, field in config.FIELDS.items():
    for text in (field.meaning, field.in_runs or 'nothing'):
      assert text and not text.endswith('.') and '  ' not in text, name


def test_preparing_needs_no_jax_and_its_workers_no_config():
  program = (
    'import sys\n'
    'from bert_jax.data import prepare, vocab\n'
    "assert not {'jax', 'bert_jax.config'} & {*sys.modules}\n"
    'from bert_jax import config\n'
    "assert 'jax' not in sys.modules\n"
  )
  subprocess.run([sys.executable, '-c', program], check=True)
