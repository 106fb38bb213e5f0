"""Replayed steps: their rows and weights, and what is refused."""

import functools
import json
import os
import shutil

import jax
import numpy as np
import pytest

from bert_jax import errors, replay
from bert_jax.config import to_json, unflatten
from bert_jax.data import prepare
from bert_jax.pretraining import pretrain
from tests import models
from tests.data import preparation
from tests.pretraining import pretrain_test
from tests.workdir import checkpoints

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
  return jax.jit(pretrain.make_task(c, c.data.dir).objective.init)


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


def read_rows(lines) -> dict:
  """Returns {row: (part of the loss, mean losses, text)}."""
  found = {}
  for line in lines[2:]:
    numbers, _, text = line.partition('  [CLS]')
    row, part, *means = numbers.split()
    found[int(row)] = float(part), [*map(float, means)], text
  return found


def test_rows_add_up_to_the_loss_and_have_the_text_of_their_tokens(
  directories, tmp_path
):
  changes = {'data__pack': 3, 'objective__mask_unit': 'word'}
  title, *_ = lines = replay.describe(
    make_run(tmp_path / 'run', directories, **changes), 5
  )
  rows = read_rows(lines)
  assert sorted(rows) == list(range(16))
  parts = [part for part, *_ in rows.values()]
  assert parts == sorted(parts, reverse=True)
  assert title.startswith('step 5, with the weights of step 4: loss ')
  assert sum(parts) == pytest.approx(float(title.split()[-1]), abs=2e-3)
  for _, means, text in rows.values():
    assert len(means) == 2 and min(means) > 0
    assert '[MASK]' not in text and '[SEP]' in text and '*' in text


def test_rows_that_are_not_finite_come_first(made, monkeypatch):
  measure = replay.measure

  def spoil(*given):
    losses, means = measure(*given)
    losses[7] = np.nan
    return losses, means

  monkeypatch.setattr(replay, 'measure', spoil)
  lines = replay.describe(made, 5)
  assert lines[2].split()[:2] == ['7', 'nan']


@pytest.mark.parametrize('number, used', [(3, 2), (4, 2), (40, 4)])
def test_the_weights_are_the_newest_that_have_not_seen_the_step(
  made, number, used, monkeypatch
):
  monkeypatch.setattr(replay, 'measure', lambda *_: (np.zeros(8), []))
  monkeypatch.setattr(replay, 'mark_rows', lambda *_: [''] * 8)
  [title, *_] = replay.describe(made, number)
  assert f'with the weights of step {used}:' in title
  for wrong, words in ((2, 'checkpoint of step 1 or bef'), (41, 's 1 to 40')):
    with pytest.raises(errors.UserError, match=words):
      replay.describe(made, wrong)


def list_files(workdir):
  return {x: x.is_file() and x.read_bytes() for x in workdir.rglob('*')}


def test_how_the_run_used_its_devices_does_not_matter_nor_is_it_changed(
  workdir,
):
  before = replay.describe(str(workdir), 5)
  other = {'attention': 'fused', 'heads': 'separate', 'xla_options': 'a=b'}
  edit_config(
    workdir, mesh__model=2, **{f'compute__{k}': x for k, x in other.items()}
  )
  files = list_files(workdir)
  assert replay.describe(str(workdir), 5) == before
  assert list_files(workdir) == files


def test_missing_or_other_data_is_refused(workdir, directories, tmp_path):
  edit_config(workdir, data__dir=str(tmp_path / 'gone'))
  with pytest.raises(errors.UserError, match='gone'):
    replay.describe(str(workdir), 5)
  path = preparation.write_corpus(tmp_path / 'other.txt', seed=1)
  vocab = os.path.join(directories[1], 'vocab.txt')
  recipe = preparation.make_recipe(path, vocab=vocab)
  prepare.prepare(recipe, str(tmp_path / 'other'), prepare.local_runner(1))
  edit_config(workdir, data__dir=str(tmp_path / 'other'))
  with pytest.raises(errors.UserError, match='other data than the run was'):
    replay.describe(str(workdir), 5)


def test_what_is_no_run_or_of_another_model_is_refused(workdir, tmp_path):
  with pytest.raises(errors.UserError, match='cannot read .*config.json'):
    replay.describe(str(tmp_path), 5)
  edit_config(workdir, model__mlp_size=16)
  with pytest.raises(errors.UserError, match='does not belong to the check'):
    replay.describe(str(workdir), 5)
  edit_config(workdir, task='other')
  with pytest.raises(errors.UserError, match='only steps of pre-training'):
    replay.describe(str(workdir), 5)
