"""A run that several tests look at."""

import pytest

from tests.finetuning import made


@pytest.fixture(scope='session')
def finetuned(tmp_path_factory):
  """Returns the working directory of a finished run."""
  return made.run(tmp_path_factory.mktemp('finetuned'))
