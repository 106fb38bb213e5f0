"""Runs that go on from another run's checkpoint."""

import json
import pathlib
import shutil

import pytest

from bert_jax import errors, main
from bert_jax.pretraining import continued
from bert_jax.workdir import checkpoint_reader, claim, log
from tests.pretraining.pretrain_test import make_config


def make(directory, steps, decay=0, **changes):
  """Returns a config of phases of length 32 with a schedule of three parts."""
  count = len(steps)
  return make_config(
    data__dir=directory,
    model__num_layers=1,
    model__hidden_size=8,
    model__mlp_size=12,
    model__attention_dropout=0.1,
    phases__seq_length=(32,) * count,
    phases__batch_size=(16,) * count,
    phases__accumulate=(1,) * count,
    phases__max_predictions=(5,) * count,
    phases__steps=steps,
    optimizer__schedule='wsd',
    optimizer__decay_steps=decay,
    log__every=1,
    checkpoint__every=4,
    **changes,
  )


def read_end(workdir):
  """Returns the parameters' fingerprints at the end, and the rows of training."""
  _, facts = checkpoint_reader.read(f'{workdir}/checkpoints')
  rows = log.read(f'{workdir}/metrics.jsonl')
  kept = 'step', 'loss', 'learning_rate'
  return facts['fingerprints'], {
    x['step']: [x[name] for name in kept] for x in rows if x['kind'] == 'train'
  }


@pytest.fixture(scope='module')
def parent(directory, tmp_path_factory):
  workdir = str(tmp_path_factory.mktemp('parent') / 'run')
  main.run(make(directory, (8,)), workdir)
  return workdir


def test_a_decay_in_a_run_of_its_own_is_that_of_one_run(
  directory, parent, tmp_path
):
  one, two = str(tmp_path / 'one'), str(tmp_path / 'two')
  main.run(make(directory, (4, 4), 4), one)
  c = make(directory, (4,), 4, continue_from=f'{parent}@4')
  main.run(c, two)
  (whole, rows), (marks, later) = read_end(one), read_end(two)
  assert marks == whole
  assert min(later) > 4 and later.items() <= rows.items()
  assert later[8] != read_end(parent)[1][8]
  _, facts = checkpoint_reader.read(f'{two}/checkpoints')
  _, theirs = checkpoint_reader.read(f'{parent}/checkpoints', 4)
  assert facts['continue_from'] == {
    'source': f'{parent}@4',
    'step': 4,
    'fingerprint': theirs['fingerprint'],
  }


def test_a_run_that_has_begun_needs_the_other_no_more(
  directory, parent, tmp_path
):
  moved = shutil.copytree(parent, tmp_path / 'parent')
  rates = {'phases__mask_rates': (0.17,)}
  c = make(directory, (4,), 4, continue_from=str(moved), **rates)
  taken = continued.take_run(c, str(tmp_path / 'run'))
  assert taken.continue_from == f'{moved}@8'
  assert taken.phases.steps == (8, 4)
  assert taken.phases.mask_rates == (0.15, 0.17)
  (tmp_path / 'run' / 'checkpoints').mkdir(parents=True)
  claim.adopt(str(tmp_path / 'run'), taken)
  shutil.rmtree(moved)
  again = continued.take_run(c, str(tmp_path / 'run'))
  assert json.loads(again.to_json()) == json.loads(taken.to_json())
  other = make(directory, (5,), 4, continue_from=str(moved))
  assert continued.take_run(other, str(tmp_path / 'run')).phases.steps == (5,)


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'model__num_heads': 4}, 'model.num_heads was 2, is 4; give its values'),
    ({'optimizer__b2': 0.9}, 'optimizer.b2 was 0.999, is 0.9'),
    ({'seed': 3}, 'seed was 0, is 3'),
    (
      {'continue_from': '{}@5'},
      'has checkpoints of the steps 4, 8; name a run',
    ),
    ({'continue_from': 'nothing'}, 'of the steps none; name a run'),
  ],
)
def test_what_cannot_be_continued_is_refused(
  directory, parent, tmp_path, changes, words
):
  changes = {'continue_from': '{}', **changes}
  changes['continue_from'] = changes['continue_from'].format(parent)
  c = make(directory, (4,), **changes)
  with pytest.raises(errors.UserError, match=words):
    continued.take_run(c, str(tmp_path))


def test_wavelengths_do_not_silently_become_short_again(
  directory, parent, tmp_path
):
  moved = shutil.copytree(parent, tmp_path / 'parent')
  saved = json.loads((moved / 'config.json').read_text())
  saved['phases.rope_thetas'] = [160_000.0]
  (moved / 'config.json').write_text(json.dumps(saved))
  c = make(directory, (4,), continue_from=str(moved))
  for given in (), (10_000.0,):
    c.phases.rope_thetas = given
    with pytest.raises(
      errors.UserError, match='of 160000 at step 8, and would'
    ):
      continued.take_run(c, str(tmp_path / 'run'))
  c.phases.rope_thetas = (160_000.0,)
  c = continued.take_run(c, str(tmp_path / 'run'))
  assert c.phases.rope_thetas == (160_000.0, 160_000.0)


def test_another_vocabulary_of_the_same_size_is_refused(
  directory, parent, tmp_path
):
  words = (pathlib.Path(directory) / 'vocab.txt').read_text().split('\n')
  words[-3], words[-2] = words[-2], words[-3]
  (tmp_path / 'v.txt').write_text('\n'.join(words))
  c = make(directory, (4,), continue_from=parent)
  c.data.dir, c.data.vocab = '', str(tmp_path / 'v.txt')
  with pytest.raises(errors.UserError, match='is not the vocabulary of '):
    continued.take_run(c, str(tmp_path))
