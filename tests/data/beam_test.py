"""Preparation with Apache Beam."""

import pytest

from bert_jax import errors
from bert_jax.data import beam, prepare
from tests.data.preparation import BEAM, digest, make_recipe


def test_beam_writes_the_same_bytes(corpus, prepared, tmp_path):
  pytest.importorskip('apache_beam')
  output = str(tmp_path / 'beam')
  prepare.prepare(make_recipe(corpus), output, BEAM)
  assert digest(output) == digest(prepared[0])


def test_what_beam_refuses_is_an_error():
  pytest.importorskip('apache_beam')
  with pytest.raises(errors.UserError, match='Unexpected pipeline runner: Foo'):
    list(beam.run(str, [('a',)], ['--runner=Foo']))
