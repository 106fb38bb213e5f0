"""What bert_jax.inference.trained_run reads of a run, and the convert command on it."""

import os
import shutil

import pytest

from bert_jax import errors
from bert_jax.config import apply_arguments, model_config, recipes
from bert_jax.corpus import text_files
from bert_jax.inference import source, trained_run
from bert_jax.workdir import checkpoint_reader, claim
from tests import models
from tests.workdir import checkpoints

CHANGES = 'vocab_size=11,hidden_size=8,mlp_size=12,num_layers=2,num_heads=2'


def make_config():
  c = recipes.pretraining('tiny')
  return apply_arguments(c, CHANGES + ',max_positions=512')


def make_run(workdir):
  """Makes a run as it looks after steps 1 and 2, without training."""
  vocab = models.write_data(workdir / 'data')
  recipe = {'lowercase': True, 'strip_accents': True}
  facts = {'data': {'recipe': recipe}}
  facts['vocab_sha256'] = text_files.compute_sha256(vocab)
  both = {step: params(step) for step in (1, 2)}
  return checkpoints.write_run(workdir, make_config(), facts, both)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  return make_run(tmp_path_factory.mktemp('run'))


@pytest.fixture
def workdir(made, tmp_path):
  return shutil.copytree(made, tmp_path / 'run')


def params(step):
  bert = model_config(make_config())
  return models.make_params(bert, seed=step)


def test_the_newest_checkpoint_or_that_of_a_step_is_read(made):
  for step, chosen in ((2, None), (1, 1)):
    found = trained_run.read(made, chosen)
    models.assert_same(found.params, params(step))
    assert found.config == model_config(make_config())
    assert found.step == step
    assert found.tokenizer == models.TOKENIZER


@pytest.mark.parametrize('strips', [True, False])
def test_accents_are_as_the_data_was_prepared(made, monkeypatch, strips):
  read_checkpoint = checkpoint_reader.read

  def with_recipe(*args):
    state, facts = read_checkpoint(*args)
    facts['task']['data']['recipe']['strip_accents'] = strips
    return state, facts

  monkeypatch.setattr(checkpoint_reader, 'read', with_recipe)
  tokenizer = trained_run.read(made).tokenizer
  assert tokenizer.strip_accents == strips
  assert tokenizer.ids(['é']) == [[10 if strips else 9]]


def test_a_run_keeps_the_vocabulary_of_data_elsewhere(workdir, tmp_path):
  shared = tmp_path / 'shared'
  os.rename(workdir / 'data', shared)
  (shared / 'manifest.json').write_text('{}')
  models.edit_json(workdir / 'config.json', **{'data.dir': str(shared)})
  claim.keep(str(workdir), str(shared))
  # A run that has begun is not changed by what would not fit it.
  (shared / 'vocab.txt').write_text('another')
  claim.keep(str(workdir), str(shared))
  shutil.rmtree(shared)
  assert trained_run.read(str(workdir)).tokenizer.vocab == tuple(models.VOCAB)
  assert (workdir / 'manifest.json').read_text() == '{}'


@pytest.mark.parametrize('where', ['', 'data', 'export'])
def test_nothing_outside_of_a_run_is_read(workdir, tmp_path, where):
  shared = tmp_path / 'shared'
  os.rename(workdir / 'data', shared)
  for outside in (str(shared), 'http://127.0.0.1:9/data', 'memory://data'):
    models.edit_json(workdir / 'config.json', **{'data.dir': outside})
    with pytest.raises(errors.UserError) as caught:
      trained_run.read(str(workdir))
    assert f'from {outside}: what is outside of a run is not read' in str(
      caught.value
    )
  own = workdir / where / 'vocab.txt'
  own.parent.mkdir(exist_ok=True)
  own.symlink_to(shared / 'vocab.txt')
  with pytest.raises(errors.UserError, match='leads out of the folder'):
    trained_run.read(str(workdir))
  own.unlink()
  shutil.copy(shared / 'vocab.txt', own)  # as the line says
  assert trained_run.read(str(workdir)).tokenizer.vocab == tuple(models.VOCAB)


def test_a_link_for_a_config_and_another_vocabulary_are_refused(
  workdir, tmp_path
):
  path = workdir / 'data' / 'vocab.txt'
  path.write_text(path.read_text('utf-8').replace('cat', 'cow'), 'utf-8')
  with pytest.raises(
    errors.UserError, match='no vocab.txt or tokenizer.json with which it was'
  ):
    trained_run.read(str(workdir))
  os.rename(workdir / 'config.json', tmp_path / 'c')
  (workdir / 'config.json').symlink_to(tmp_path / 'c')
  with pytest.raises(errors.UserError, match='leads out of the folder'):
    source.read(str(workdir))


@pytest.mark.parametrize(
  ('field', 'value', 'message'),
  [
    ('model.mlp_size', 16, r'mlp_in/bias: \(12,\) there, \(16,\) by the con'),
    # 2 x 4 and 4 x 2 are the same shape there.
    ('model.num_heads', 4, 'attention/out/kernel'),
    ('objective.nsp', False, r'first nsp/bias: \(2,\) there, None by'),
    ('model.num_heads', 3, 'config.json: .*not divisible by'),
    ('model.width', 8, "config.json: 'model.width' is not a field"),
  ],
)
def test_a_config_of_another_training_is_refused(
  workdir, field, value, message
):
  models.edit_json(workdir / 'config.json', **{field: value})
  with pytest.raises(errors.UserError, match=message):
    trained_run.read(str(workdir))
