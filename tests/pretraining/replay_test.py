"""Replayed steps: their rows, weights and predictions, and what is refused."""

import functools
import hashlib
import json
import os
import shutil

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.config import to_json, unflatten
from bert_jax.data import prepare
from bert_jax.pretraining import pretrain, replay, replay_rows
from tests import models
from tests.data import preparation
from tests.pretraining import pretrain_test
from tests.workdir import checkpoints

CASES = {
  'mlm': {},
  'packed': {'data__pack': 3, 'objective__mask_unit': 'word'},
  'ltr': {'objective__kind': 'ltr', 'objective__nsp': False},
  'rtl': {'objective__kind': 'rtl', 'objective__nsp': False},
}
TINY = {
  'model__num_layers': 1,
  'model__hidden_size': 8,
  'model__mlp_size': 12,
  'model__max_positions': 64,
}
SAVED = (2, 4)  # of 30 steps of length 32, then 10 of length 64


def make_params(c, seed):
  params = jax.device_get(_jit_init(to_json(c))(jax.random.key(seed)))
  start = pretrain.make_task(c, c.data.dir).start
  return start(params)[0] if start else params


@functools.cache
def _jit_init(fields):
  c = unflatten(json.loads(fields))
  return jax.jit(pretrain.make_task(c, c.data.dir).objective(c).init)


def make_run(workdir, directories, **changes):
  """Makes a run as it looks after some steps, without training."""
  c = pretrain_test.make_config(**{**TINY, **changes})
  c.data.dir = directories[c.data.pack]
  facts = pretrain.make_task(c, c.data.dir).facts
  params = {step: make_params(c, step) for step in SAVED}
  return checkpoints.write_run(workdir, c, facts, params)


@pytest.fixture(scope='module')
def made(tmp_path_factory, directories):
  return make_run(tmp_path_factory.mktemp('made') / 'run', directories)


@pytest.fixture
def workdir(made, tmp_path):
  return shutil.copytree(made, tmp_path / 'run')


def edit_config(workdir, **values):
  fields = {name.replace('__', '.'): x for name, x in values.items()}
  models.edit_json(workdir / 'config.json', **fields)


@pytest.mark.slow
@pytest.mark.parametrize(
  'name, number', [*((name, 5) for name in CASES), ('packed', 33)]
)
def test_a_rows_predictions_have_its_loss(directories, tmp_path, name, number):
  found = replay.rebuild(
    make_run(tmp_path / 'run', directories, **CASES[name]), number
  )
  assert found.batch['input_ids'].shape == {5: (16, 32), 33: (8, 64)}[number]
  measured = replay_rows.measure(found, lambda n: None)
  for row in (0, 3):
    words = replay_rows.predict(found, row)
    assert len(words) == measured.counts['mlm_loss'][row] > 0
    losses = [-np.log(word['probability']) for word in words]
    assert sum(losses) == pytest.approx(
      measured.sums['mlm_loss'][row], rel=1e-4
    )


@pytest.mark.parametrize('changes', CASES.values(), ids=CASES)
def test_the_text_is_that_of_the_record(directories, tmp_path, changes):
  found = replay.rebuild(make_run(tmp_path / 'run', directories, **changes), 5)
  vocab, special = found.tokenizer.vocab, {'[CLS]', '[SEP]'}
  for row in range(16):
    ids, masked = replay_rows.restore_tokens(found, row)
    tokens = [vocab[i] for i in ids]
    assert '[MASK]' not in tokens and special <= {*tokens}
    words = replay_rows.predict(found, row)
    assert [tokens[word['position']] for word in words] == [
      w['truth'] for w in words
    ]
    if 'objective__kind' in changes:
      assert not masked.any() and words[0]['given'] is None
    else:
      assert np.flatnonzero(masked).tolist() == [w['position'] for w in words]
      shown = found.batch['input_ids'][row]
      assert [w['given'] for w in words] == [
        vocab[shown[w['position']]] for w in words
      ]


@pytest.mark.parametrize(
  'number, used, between',
  [(2, 0, 1), (3, 2, 0), (4, 2, 1), (5, 4, 0), (40, 4, 35)],
)
def test_the_weights_are_the_newest_that_have_not_seen_the_step(
  made, number, used, between
):
  found = replay.rebuild(made, number)
  assert found.params_step == used
  assert number - 1 - found.params_step == between
  origin = 'the oldest checkpoint is of step 2'  # or the initial weights
  if used:
    origin = f'checkpoint of step {used}, fingerprint='
  assert origin in found.origin
  models.assert_same(found.params, make_params(found.config, used))


def test_a_damaged_checkpoint_gives_way_to_the_one_before(workdir, capsys):
  shutil.rmtree(workdir / 'checkpoints' / '4' / 'state')
  assert replay.rebuild(str(workdir), 9).params_step == 2
  assert 'checkpoint 4 is bad' in capsys.readouterr().out
  shutil.rmtree(workdir / 'checkpoints' / '2' / 'state')
  with pytest.raises(errors.UserError, match='no checkpoint read.*is sound'):
    replay.rebuild(str(workdir), 9)


def test_how_the_run_used_its_devices_does_not_matter(workdir):
  before = replay.rebuild(str(workdir), 5).config
  other = {'attention': 'fused', 'heads': 'separate', 'xla_options': 'a=b'}
  edit_config(
    workdir, mesh__model=2, **{f'compute__{k}': x for k, x in other.items()}
  )
  assert replay.rebuild(str(workdir), 5).config.to_dict() == before.to_dict()


def test_the_log_of_the_step_is_found(workdir):
  rows = [
    {'kind': 'train', 'step': 4, 'loss': 4.0},
    {'kind': 'spike', 'step': 5, 'loss': 9.0, 'median': 4.0},
    {'kind': 'train', 'step': 8, 'loss': 5.0},
    {'kind': 'skipped', 'step': 7, 'grad_norm': 'nan'},
  ]
  (workdir / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  found = replay.rebuild(str(workdir), 5).logged
  assert found == {'spike': rows[1], 'train': rows[2]}
  assert replay.rebuild(str(workdir), 7).logged['skipped'] == rows[3]


def digest(workdir):
  """Returns {path: (time, hash)} of all files and folders."""
  return {
    path: (
      path.stat().st_mtime_ns,
      path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    for path in [workdir, *workdir.rglob('*')]
  }


def test_the_run_and_its_data_are_not_changed(workdir):
  shutil.copytree(
    json.loads((workdir / 'config.json').read_text())['data.dir'],
    workdir / 'data',
  )
  edit_config(workdir, data__dir='')
  before = digest(workdir)
  found = replay.rebuild(str(workdir), 5)
  replay_rows.measure(found, lambda n: None)
  replay_rows.predict(found, 0)
  assert digest(workdir) == before


def test_a_step_that_the_run_does_not_have_is_refused(workdir):
  for number in (0, 41):
    with pytest.raises(errors.UserError, match='which has steps 1 to 40'):
      replay.rebuild(str(workdir), number)
  edit_config(workdir, log__every=10)
  row = {'kind': 'train', 'step': 10, 'loss': 4.0}
  (workdir / 'metrics.jsonl').write_text(json.dumps(row))
  assert replay.rebuild(str(workdir), 20).number == 20
  with pytest.raises(errors.UserError, match='its log ends at step 10'):
    replay.rebuild(str(workdir), 21)


def test_missing_or_other_data_is_refused(workdir, directories, tmp_path):
  edit_config(workdir, data__dir=str(tmp_path / 'gone'))
  with pytest.raises(errors.UserError, match='in .*gone .data.dir in .*back'):
    replay.rebuild(str(workdir), 5)
  path = preparation.write_corpus(tmp_path / 'other.txt', seed=1)
  vocab = os.path.join(directories[1], 'vocab.txt')
  recipe = preparation.make_recipe(path, vocab=vocab)
  prepare.prepare(recipe, str(tmp_path / 'other'), prepare.local_runner(1))
  edit_config(workdir, data__dir=str(tmp_path / 'other'))
  with pytest.raises(errors.UserError, match='other data than the run was'):
    replay.rebuild(str(workdir), 5)


def test_without_a_checkpoint_the_data_is_compared_with_the_log(workdir):
  for step in SAVED:
    shutil.rmtree(workdir / 'checkpoints' / str(step))
  facts = {'kind': 'run', 'step': 0, 'data_sha256': '0'}
  (workdir / 'metrics.jsonl').write_text(json.dumps(facts))
  with pytest.raises(errors.UserError, match='data_sha256 was .0.'):
    replay.rebuild(str(workdir), 5)


def test_what_is_no_run_or_of_another_model_is_refused(workdir, tmp_path):
  with pytest.raises(errors.UserError, match='cannot read .*config.json'):
    replay.rebuild(str(tmp_path), 5)
  edit_config(workdir, model__mlp_size=16)
  with pytest.raises(errors.UserError, match='does not belong to the check'):
    replay.rebuild(str(workdir), 5)
  edit_config(workdir, task='other')
  with pytest.raises(errors.UserError, match='only steps of pre-training'):
    replay.rebuild(str(workdir), 5)
  edit_config(workdir, model__mlp_size=12, task='pretraining')
  shutil.rmtree(workdir / 'checkpoints')
  with pytest.raises(errors.UserError, match='does not exist; train first'):
    replay.rebuild(str(workdir), 5)
