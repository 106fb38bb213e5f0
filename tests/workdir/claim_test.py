"""Tests of working directories."""

import json
import os

import pytest

from bert_jax import config, errors
from bert_jax.runtime import files, hub
from bert_jax.workdir.claim import adopt, claim, pin_sources


def train(path, arguments='', trains=True):
  c = config.apply_arguments(config.pretraining('tiny'), arguments)
  with claim(str(path), c):
    if trains:
      (path / 'checkpoints').mkdir(exist_ok=True)


def test_another_config_is_refused_and_the_difference_named(tmp_path):
  train(tmp_path / 'run')
  with pytest.raises(errors.UserError) as caught:
    train(tmp_path / 'run', 'seed=3,learning_rate=0.5')
  assert 'seed was 0, is 3' in str(caught.value)
  assert 'optimizer.learning_rate was 0.0001, is 0.5' in str(caught.value)
  train(tmp_path / 'run')


def test_who_wants_more_steps_is_told_of_init_from(tmp_path):
  train(tmp_path / 'run', 'steps=12')
  with pytest.raises(errors.UserError) as caught:
    train(tmp_path / 'run', 'steps=24')
  assert str(caught.value).endswith(
    f'For more steps, start another run with init_from={tmp_path}/run.'
  )
  with pytest.raises(errors.UserError, match='the old values.$'):
    train(tmp_path / 'run', 'steps=12,seed=3')


def test_a_run_of_another_version_is_for_that_version(tmp_path):
  train(tmp_path / 'run')
  path = str(tmp_path / 'run' / 'config.json')
  files.write_json(path, files.read_json(path) | {'model.rope': 3})
  match = "json: 'model.rope' is not a field of this version; use the one that"
  with pytest.raises(errors.UserError, match=match):
    train(tmp_path / 'run')


def test_a_file_is_no_working_directory(tmp_path):
  (tmp_path / 'x').write_text('')
  with pytest.raises(
    errors.UserError, match='workdir=.*x: File exists; name a'
  ):
    train(tmp_path / 'x')
  with pytest.raises(errors.UserError, match='x/y: Not a directory; name ano'):
    train(tmp_path / 'x' / 'y')


def test_before_training_the_config_may_be_put_right(tmp_path):
  train(tmp_path / 'run', trains=False)
  train(tmp_path / 'run', 'seed=3')
  with pytest.raises(errors.UserError, match='seed was 3, is 0'):
    train(tmp_path / 'run')


def test_checkpoints_without_the_config_of_their_run_are_refused(tmp_path):
  train(tmp_path / 'run')
  (tmp_path / 'run' / 'checkpoints' / '8').mkdir()
  os.remove(tmp_path / 'run' / 'config.json')
  with pytest.raises(errors.UserError, match='run/config.json is missing'):
    train(tmp_path / 'run', 'learning_rate=0.5')
  assert not (tmp_path / 'run' / 'config.json').exists()


def test_a_field_that_the_run_is_older_than_has_its_default(tmp_path):
  train(tmp_path / 'run')
  path = tmp_path / 'run' / 'config.json'
  fields = json.loads(path.read_text())
  del fields['model.mask_value']
  path.write_text(json.dumps(fields))
  train(tmp_path / 'run')
  path.write_text(json.dumps(fields))
  with pytest.raises(errors.UserError, match='mask_value was -10000.0'):
    train(tmp_path / 'run', 'mask_value=-5.0')


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    (
      'log.every=7,keep=9,workers=2',
      'the config has changed, which does not change the result: '
      'checkpoint.keep was 3, is 9; data.workers was -1, is 2; '
      'log.every was 100, is 7\n',
    ),
    (
      'mesh.model=2',
      'the run is no longer bit-identical to an unchanged run: '
      'mesh.model was 1, is 2\n',
    ),
  ],
)
def test_what_does_not_change_the_meaning_may_change_and_is_said(
  tmp_path, capsys, changes, said
):
  train(tmp_path / 'run')
  train(tmp_path / 'run', changes)
  assert capsys.readouterr().out == said


def test_one_writer_at_a_time(tmp_path):
  c = config.pretraining('tiny')
  with claim(str(tmp_path), c):
    with pytest.raises(errors.UserError, match='another process is writing'):
      train(tmp_path)
  train(tmp_path)


def test_a_bucket_belongs_to_the_config_that_saved_in_it(remote):
  def claim_remote(arguments=''):
    c = config.apply_arguments(config.pretraining('tiny'), arguments)
    with claim(remote, c):
      pass

  claim_remote()
  claim_remote('seed=3')  # nothing has been saved
  files.write_text(f'{remote}/checkpoints/1/state/manifest.ocdbt', '')
  claim_remote('seed=4')  # nor has this, whole
  claim_remote('seed=3')
  files.write_text(f'{remote}/checkpoints/1/commit_success.txt', '')
  with pytest.raises(errors.UserError, match='seed was 3, is 0'):
    claim_remote()
  claim_remote('seed=3,keep=9')


def test_a_run_keeps_the_commits_of_models_that_it_began_with(
  tmp_path, monkeypatch
):
  commits = iter('abc')
  monkeypatch.setattr(
    hub, 'fetch_model', lambda x: ('', f'{x}@{next(commits) * 40}')
  )
  c = config.pretraining('tiny')
  c.init_from = 'hf:we/tiny,runs/x'
  c = pin_sources(c, str(tmp_path))
  assert c.init_from == f'hf:we/tiny@{"a" * 40},runs/x'
  (tmp_path / 'checkpoints').mkdir()
  adopt(str(tmp_path), c)
  for given, then in (
    ('hf:we/tiny,runs/x', c.init_from),
    (c.init_from, c.init_from),
    ('hf:we/other', f'hf:we/other@{"b" * 40}'),
  ):
    again = config.pretraining('tiny')
    again.init_from = given
    assert pin_sources(again, str(tmp_path)).init_from == then
