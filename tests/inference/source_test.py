"""Which kind of model a path names; convert_test reads each."""

import os

import pytest
import tokenizers

from bert_jax import errors
from bert_jax.inference import source
from tests import models
from tests.inference import trained_run_test
from tests.weight_files import tf_files


def test_a_folder_with_both_kinds_of_files_is_hugging_faces(tmp_path):
  path = models.export_to(tmp_path / 'both')
  tf_files.write_model(tmp_path / 'google', models.make_params())
  index = 'bert_model.ckpt.index'
  os.rename(tmp_path / 'google' / index, tmp_path / 'both' / index)
  assert source.detect_kind(path) == 'hf'
  assert source.detect_kind(os.path.join(path, index)) == 'google'
  os.remove(os.path.join(path, 'model.safetensors'))
  assert source.detect_kind(path) == 'google'


def test_weights_beside_a_config_are_hugging_faces_whatever_it_says(tmp_path):
  path = models.export_to(tmp_path / 'old')
  models.edit_json(tmp_path / 'old' / 'config.json', model_type=...)
  assert source.detect_kind(path) == 'hf'
  os.remove(os.path.join(path, 'model.safetensors'))
  assert source.detect_kind(path) == 'run'


def test_words_that_were_added_to_a_tokenizer_are_said_once(tmp_path, capsys):
  path = models.export_to(tmp_path / 'theirs')
  name = os.path.join(path, 'tokenizer.json')
  theirs = tokenizers.Tokenizer.from_file(name)
  theirs.add_tokens(['heparin', 'zoster'])
  theirs.save(name)
  for _ in range(2):
    source.read(path)
  found = capsys.readouterr().out
  assert found.count('WARNING: 2 words') == 1
  assert f'{path} adds to its tokenizer (heparin, zoster)' in found


def test_what_is_no_model_is_refused(tmp_path):
  (tmp_path / 'file').touch()
  for name in ('file', 'absent'):
    with pytest.raises(errors.UserError, match=f'{name} is neither a folder'):
      source.detect_kind(str(tmp_path / name))


@pytest.mark.parametrize(
  'name, there',
  [
    ('bert-base-x', 'google-bert/bert-base-x'),
    ('some/BERT_1.5', 'some/BERT_1.5'),
  ],
)
def test_a_name_that_may_be_on_the_hub_is_proposed(
  name, there, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.UserError, match=f'Did you mean hf:{there}, on'):
    source.detect_kind(name)
  (tmp_path / 'runs').mkdir()
  for path in ('runs/mine', './mine', 'a/b/c', str(tmp_path / 'mine')):
    with pytest.raises(errors.UserError, match='name one of them.$'):
      source.detect_kind(path)


def test_a_name_may_end_in_the_step_of_a_checkpoint(tmp_path):
  run = trained_run_test.make_run(tmp_path / 'run')
  assert source.read(run).step == 2
  found = source.read(f'{run}@1')
  assert found.step == 1 and found.origin.startswith('step 1, ')
  models.assert_same(found.params, trained_run_test.params(1))
  with pytest.raises(errors.UserError, match='of step 7; choose one of 1, 2'):
    source.read(f'{run}@7')
  with pytest.raises(errors.UserError, match='theirs is not .*step=3 means'):
    source.read(f'{models.export_to(tmp_path / "theirs")}@3')
