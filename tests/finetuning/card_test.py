"""Tests of the model card of a fine-tuned model."""

from bert_jax import config as config_lib
from bert_jax.finetuning import card

RESULTS = {
  'counts': {'train': 48, 'dev': 10},
  'metrics': {'pearson': 0.5},
  'intervals': {'pearson': [0.25, 0.75]},
  'baseline': {'pearson': 0.0},
  'other': {},
  'problem': None,
}


def test_the_constant_is_what_the_scores_are_compared_with():
  c = config_lib.finetuning()
  numbers = card.make_card(c, (), RESULTS, 1000)
  assert '`constant` always predicts the mean of the training' in numbers
  assert 'commonest' not in numbers
  classes = card.make_card(c, ('cat', 'dog'), RESULTS, 1000)
  assert '`constant` always predicts what is commonest in training' in classes


def test_the_card_warns_of_a_score_that_a_constant_has():
  c, problem = config_lib.finetuning(), 'no better than always the same'
  shown = card.make_card(c, (), RESULTS | {'problem': problem}, 1000)
  assert f'**Warning: {problem}.**' in shown


def test_a_field_with_a_bar_stays_one_cell():
  c = config_lib.finetuning()
  c.optimizer.freeze = '^(embeddings|encoder/layer_0)/'
  line = r'| optimizer.freeze | `"^(embeddings\|encoder/layer_0)/"` |'
  assert line in card.make_card(c, (), RESULTS, 1000).splitlines()
