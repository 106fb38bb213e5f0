"""Tests of what a sweep knows about its runs from their files."""

import json
import os

import pytest

from bert_jax import config as config_lib
from bert_jax import errors
from bert_jax.sweep import grid, states
from tests.finetuning import made


def write(folder, name, value):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / name).write_text(json.dumps(value))


def test_a_run_is_done_when_it_says_so(tmp_path):
  run = tmp_path / 'run'
  assert states.look(str(run)) == states.State(None, 0, 0, None, {})
  running = {'state': 'running', 'step': 3, 'steps': 9, 'loss': 0.5}
  write(run, 'status.json', running | {'held_out': {'f1': 0.25}})
  write(run, 'results.json', {'metrics': {'f1': 1}})  # its export is not there
  assert states.look(str(run)) == states.State(None, 3, 9, 0.5, {'f1': 0.25})
  write(run, 'status.json', {'state': 'done', 'step': 9, 'steps': 9})
  assert states.look(str(run)).results == {'metrics': {'f1': 1}}
  (run / 'results.json').write_text('{')
  with pytest.raises(errors.UserError, match='delete it to have it written ag'):
    states.look(str(run))
  os.remove(run / 'results.json')
  assert states.look(str(run)).results is None


def check(tmp_path, text, **changes):
  c = config_lib.finetuning()
  c.update_from_flattened_dict(changes)
  states.check_config(str(tmp_path / 'sweep'), c, grid.parse(text, c))


def test_the_grid_may_change_but_nothing_else(tmp_path):
  check(tmp_path, 'seed=0,1', seed=7)
  check(tmp_path, 'seed=0,1,2 learning_rate=1e-5,2e-5', seed=8)
  check(tmp_path, 'seed=0', **{'log.every': 3})  # of no effect on results
  with pytest.raises(
    errors.UserError, match=r'another config \(finetuning.epochs was 0.0, is 2'
  ):
    check(tmp_path, 'seed=0', **{'finetuning.epochs': 2.0})


def test_a_run_of_another_config_is_refused(tmp_path):
  check(tmp_path, 'seed=0,1')
  run = tmp_path / 'sweep' / 'seed=1'
  (run / 'checkpoints' / '5').mkdir(parents=True)
  c = config_lib.finetuning()
  c.seed, c.phases.steps, c.data.vocab_size = 1, (70,), 99  # both are filled in
  (run / 'config.json').write_text(config_lib.to_json(c))
  check(tmp_path, 'seed=0,1')
  c.data.label = 'stars'
  (run / 'config.json').write_text(config_lib.to_json(c))
  with pytest.raises(errors.UserError, match="seed=1 belongs.*was 'stars', is"):
    check(tmp_path, 'seed=0,1')
  os.remove(run / 'config.json')
  with pytest.raises(errors.UserError, match='seed=1.config.json is missing'):
    check(tmp_path, 'seed=0,1')


def test_inputs_are_checked_before_a_sweep_claims_its_folder(tmp_path):
  sweep = tmp_path / 'sweep'
  texts = made.write_texts(tmp_path / 'texts')
  c = made.make_config(made.write_source(tmp_path / 'source'), texts)

  def check(**changes):
    runs = grid.parse('seed=0,1', c)
    with c.ignore_type():
      c.update_from_flattened_dict(changes)
    states.check_inputs(str(sweep), c, runs)

  with pytest.raises(errors.UserError, match=r'data.input=.*gleu'):
    check(**{'data.input': str(tmp_path / 'gleu')})
  with pytest.raises(errors.UserError, match='reinit_layers=9 is more than'):
    check(**{'data.input': texts, 'finetuning.reinit_layers': 9})
  assert not sweep.exists()
  check(**{'finetuning.reinit_layers': 0})
  states.check_config(str(sweep), c, grid.parse('seed=0,1', c))
  check(**{'data.input': 'deleted'})  # the sweep has begun
