"""Tests of the state that training begins with."""

import shutil

import jax
import pytest

from bert_jax import errors
from bert_jax.model import parameters
from bert_jax.train import fit, initial_state
from bert_jax.workdir import status as status_lib
from tests import training


def test_parameters_are_counted_without_padding_rows(capsys):
  c = training.small_config()
  made = training.make_task(c).objective(c).init(jax.random.key(0))
  own = parameters.drop_padding_rows(made, training.VOCAB)
  assert own['embeddings']['word']['embedding'].shape[0] == training.VOCAB
  size = sum(x.size for x in jax.tree.leaves(own))
  assert size < sum(x.size for x in jax.tree.leaves(made))
  initial_state._describe(made, training.VOCAB)
  assert f'model: {size:,} parameters on' in capsys.readouterr().out


@pytest.mark.slow
def test_other_data_under_a_run_stops_it(tmp_path):
  c = training.small_config()
  training.fit(c, tmp_path)
  made = training.make_task(c)
  made.facts['unigram_entropy'] = 2.5
  with pytest.raises(errors.UserError, match='was 2.0, is 2.5'):
    fit.fit(c, made, str(tmp_path))


@pytest.mark.slow
def test_checkpoints_that_were_there_are_missed(tmp_path):
  def train(**changes):
    c = training.small_config(**changes)
    with status_lib.Status(str(tmp_path), 6, 1) as status:
      fit.fit(c, training.make_task(c), str(tmp_path), status)

  train()
  shutil.rmtree(tmp_path / 'checkpoints')
  for _ in range(2):
    with pytest.raises(
      errors.UserError, match='lists no checkpoint, though the run'
    ):
      train()
  assert not list((tmp_path / 'checkpoints').iterdir())
  assert training.rows_of(tmp_path, 'train')[-1]['step'] == 6
  train(checkpoint__start_over=True)
  train()
