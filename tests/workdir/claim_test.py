"""Tests of working directories."""

import json
import os

import pytest

from bert_jax import config, errors
from bert_jax.parallel import agreement
from bert_jax.runtime import files, hub
from bert_jax.workdir import claim


def train(path, arguments='', trains=True):
  c = config.apply_arguments(config.pretraining('tiny'), arguments)
  with claim.claim(str(path), c):
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
  with claim.claim(str(tmp_path), c):
    with pytest.raises(errors.UserError, match='another process is writing'):
      train(tmp_path)
  train(tmp_path)


def test_a_bucket_belongs_to_the_config_that_saved_in_it(remote):
  def claim_remote(arguments=''):
    c = config.apply_arguments(config.pretraining('tiny'), arguments)
    with claim.claim(remote, c):
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
  c = claim.pin_sources(c, str(tmp_path))
  assert c.init_from == f'hf:we/tiny@{"a" * 40},runs/x'
  (tmp_path / 'checkpoints').mkdir()
  claim.adopt(str(tmp_path), c)
  for given, then in (
    ('hf:we/tiny,runs/x', c.init_from),
    (c.init_from, c.init_from),
    ('hf:we/other', f'hf:we/other@{"b" * 40}'),
  ):
    again = config.pretraining('tiny')
    again.init_from = given
    assert claim.pin_sources(again, str(tmp_path)).init_from == then


CLIP, BEST = (
  {'optimizer.clip_unit': 'micro_batch'},
  {'finetuning.select': 'best'},
)


@pytest.mark.parametrize(
  'field, value, old, expected',
  [
    ('data.workers', 2, {}, claim.SAME_RESULT),
    ('eval.every', 5, {}, claim.SAME_RESULT),
    ('eval.every', 5, BEST, claim.ANOTHER),  # it chooses the model
    ('mesh.model', 2, {}, claim.SAME_MEANING),
    ('phases.accumulate', (2, 2), {}, claim.SAME_MEANING),
    ('phases.accumulate', (2, 2), CLIP, claim.ANOTHER),
    ('phases.batch_size', (8, 8), {}, claim.ANOTHER),
    ('seed', 1, {}, claim.ANOTHER),
  ],
)
def test_what_a_change_does_to_a_run(field, value, old, expected):
  c = config.declare_fields()
  c.update_from_flattened_dict({field: value} | old)
  found = claim.find_differences(old, c)
  assert [kind for kind, fields in found.items() if fields] == [expected]
  assert list(found[expected]) == [field]
  # A field of another version is part of a run.
  found = claim.find_differences({'model.rope': 3}, config.declare_fields())
  assert list(found[claim.ANOTHER]) == ['model.rope']


@pytest.fixture
def told(monkeypatch):
  """Lets this process take itself for one of two; returns what hosts say."""
  found = ['[""]', '[""]']

  def gather(own):
    found[claim.jax.process_index()] = own
    return list(found)

  monkeypatch.setattr(claim.jax, 'process_count', lambda: 2)
  monkeypatch.setattr(
    claim.multihost_utils, 'broadcast_one_to_all', lambda x: x
  )
  monkeypatch.setattr(agreement, 'gather_texts', gather)
  return found


@pytest.fixture
def second(told, monkeypatch):
  """Lets this process take itself for the second."""
  monkeypatch.setattr(claim.jax, 'process_index', lambda: 1)


def test_the_check_leaves_nothing_behind(tmp_path, told):
  claim.check_shared(str(tmp_path / 'run'))
  assert os.listdir(tmp_path) == ['run'] and not os.listdir(tmp_path / 'run')


@pytest.mark.parametrize('left', [None, b'12345678'])  # by another run
def test_a_host_that_does_not_see_it_is_named(tmp_path, second, left):
  if left:
    (tmp_path / '.shared').write_bytes(left)
  with pytest.raises(errors.UserError, match='on host 1: .* does not have'):
    claim.check_shared(str(tmp_path))


def test_the_others_hear_of_a_directory_that_cannot_be_made(
  tmp_path, told, request
):
  (tmp_path / 'file').touch()
  directory = str(tmp_path / 'file' / 'run')
  said = f'on host 0: .*Not a directory: .{directory}'
  with pytest.raises(OSError, match=said):
    claim.check_shared(directory)
  request.getfixturevalue('second')
  with pytest.raises(OSError, match=said):
    claim.check_shared(directory)


def test_a_run_that_has_not_begun_keeps_one_tokenizer(tmp_path):
  names = {'a': 'tokenizer.json', 'b': 'vocab.txt'}
  for data, name in names.items():
    (tmp_path / data).mkdir()
    for file in (name, 'manifest.json'):
      (tmp_path / data / file).write_text(data)
  run = tmp_path / 'run'
  run.mkdir()
  for data, name in names.items():
    claim.keep(str(run), str(tmp_path / data))
    assert sorted(os.listdir(run)) == ['manifest.json', name]
  (run / 'checkpoints' / '1').mkdir(parents=True)
  assert claim.has_begun(str(run))
  claim.keep(str(run), str(tmp_path / 'a'))
  assert not (run / 'tokenizer.json').exists()
  assert (run / 'vocab.txt').read_text() == 'b'
  assert (run / 'manifest.json').read_text() == 'b'
