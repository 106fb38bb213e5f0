"""Tests of what a run leaves and of its model card."""

import pytest

from bert_jax import tasks
from bert_jax.config import recipes
from bert_jax.finetuning import outcome

RESULTS = {
  'counts': {'train': 48, 'dev': 10},
  'metrics': {'pearson': 0.5},
  'intervals': {'pearson': [0.25, 0.75]},
  'baseline': {'pearson': 0.0},
  'other': {},
  'problem': None,
  'select': 'last',
}


def make_card(c, labels, results, parameters) -> str:
  this = tasks.SUPERVISED[c.task]
  return outcome.make_card(this, c, labels, results, parameters)


BEST = {'select': 'best', 'step': 1500, 'steps': 3000}


@pytest.mark.parametrize(
  'labels, results, there, absent',
  [
    ((), {}, 'of numbers, the mean of training. Int', 'optimistic'),
    (('cat', 'dog'), {}, 'The constant is the commonest class of', 'optimistic'),
    (('cat', 'dog'), {}, '`cat`, `dog`', 'WARNING'),
    ([f'c{i}' for i in range(300)], {}, 'one of 300 classes', 'c299'),
    ((), {'problem': 'no better'}, '\n* WARNING: no better\n', 'optimistic'),
    ((), BEST, 'step 1,500 of 3,000, the best on dev, so', 'WARNING'),
    ((), {}, '* dev pearson 0.5000 [0.2500, 0.7500], a constant gets 0.0', '* of'),
  ],
)  # fmt: skip
def test_the_card_says_what_the_scores_mean(labels, results, there, absent):
  c = recipes.finetuning()
  c.optimizer.freeze = '^(embeddings|encoder/layer_0)/'
  shown = make_card(c, labels, RESULTS | results, 1000)
  assert there in shown and absent not in shown
  # A field with a bar stays one cell.
  assert r'`"^(embeddings\|encoder/layer_0)/"` |' in shown


def test_the_card_has_no_path_and_no_field_of_pre_training():
  c = recipes.finetuning()
  c.init_from = '/home/ann/model'
  c.data.input = 'train=/home/ann/ko.tsv,dev=/home/ann/ko dev.tsv'
  shown = make_card(c, ('cat', 'dog'), RESULTS, 1000)
  assert '# BERT fine-tuned on train=ko.tsv,dev=ko dev.tsv\n' in shown
  assert '| init_from | `"model"` |' in shown and 'ann' not in shown
  for name in ('language', 'passes', 'dir', 'objective.', 'max_predictions'):
    assert f'{name}' not in shown.split('## Recipe')[1]
  for name in ('data.label', 'data.lowercase', 'phases.batch_size'):
    assert f'| {name} |' in shown


def test_the_card_says_when_there_is_no_answer():
  c, tuned = recipes.finetuning(), 'where that scores more than 1.500 above'
  c.task = 'spans'
  for threshold in (None, 1.5):
    results = RESULTS | {'threshold': threshold}
    shown = make_card(c, ('start', 'end'), results, 1000)
    assert (tuned in shown) == (threshold is not None)
