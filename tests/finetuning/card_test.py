"""Tests of the model card of a fine-tuned model."""

from bert_jax import config as config_lib
from bert_jax import tasks
from bert_jax.finetuning import card

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
  return card.make_card(this, c, labels, results, parameters)


def test_the_constant_is_what_the_scores_are_compared_with():
  c = config_lib.finetuning()
  numbers = make_card(c, (), RESULTS, 1000)
  assert '`constant` always predicts the mean of the training' in numbers
  assert 'commonest' not in numbers
  classes = make_card(c, ('cat', 'dog'), RESULTS, 1000)
  assert '`constant` always predicts the commonest of training' in classes


def test_the_card_warns_of_a_score_that_a_constant_has():
  c, problem = config_lib.finetuning(), 'no better than always the same'
  shown = make_card(c, (), RESULTS | {'problem': problem}, 1000)
  assert f'**Warning: {problem}.**' in shown


def test_the_card_says_how_transformers_finds_that_there_is_no_answer():
  c = config_lib.finetuning()
  c.task = 'spans'
  answers = make_card(c, ('start', 'end'), RESULTS, 1000)
  assert 'threshold' not in answers
  c.finetuning.unanswerable = True
  found = make_card(c, ('start', 'end'), RESULTS, 1000)
  code = found.split('```python\n')[2].split('```')[0]
  compile(code, 'card', 'exec')
  assert "> spans['threshold']" in code


def test_hundreds_of_classes_are_counted_not_named():
  c = config_lib.finetuning()
  shown = make_card(c, [f'c{i}' for i in range(300)], RESULTS, 1000)
  assert 'It predicts one of 300 classes, which `config.json`' in shown
  assert 'c299' not in shown
  assert '`cat`, `dog`' in make_card(c, ('cat', 'dog'), RESULTS, 1000)


def test_the_card_says_if_dev_chose_the_parameters():
  c = config_lib.finetuning()
  assert 'scored best' not in make_card(c, (), RESULTS, 1000)
  best = RESULTS | {'select': 'best', 'step': 1500, 'steps': 3000}
  shown = make_card(c, (), best, 1000)
  assert 'those of step 1,500 of 3,000, which scored best on dev' in shown


def test_a_field_with_a_bar_stays_one_cell():
  c = config_lib.finetuning()
  c.optimizer.freeze = '^(embeddings|encoder/layer_0)/'
  line = r'| optimizer.freeze | `"^(embeddings\|encoder/layer_0)/"` |'
  assert line in make_card(c, (), RESULTS, 1000).splitlines()
