"""Tests of the tasks by name."""

import dataclasses

import pytest

from bert_jax import config, errors, main, tasks


def test_the_default_task_is_pretraining():
  c = config.pretraining('tiny')
  objective = tasks.get(c).make_objective(c)
  assert objective.losses == ('mlm_loss', 'nsp_loss')


def test_an_unknown_task_is_refused():
  c = config.pretraining('tiny')
  c.task = 'chess'
  with pytest.raises(errors.UserError, match="'chess' is not one of pretr"):
    tasks.get(c)


def test_a_run_goes_by_the_config_that_its_task_takes_from_a_model(
  monkeypatch, tmp_path, capsys
):
  def take_model(given, workdir):
    assert workdir == str(tmp_path)
    made = given.copy_and_resolve_references()
    made.seed = 7
    return made

  def check(taken, workdir):
    del workdir
    raise errors.UserError(f'seed {taken.seed}')

  told = dataclasses.replace(
    tasks.TASKS['pretraining'], take_model=take_model, check=check
  )
  monkeypatch.setitem(tasks.TASKS, 'pretraining', told)
  with pytest.raises(errors.UserError, match='seed 7'):
    main.run(config.pretraining('tiny'), str(tmp_path))
  assert capsys.readouterr().out == ''  # the config is shown later
