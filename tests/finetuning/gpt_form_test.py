"""Tests of GPT's form of fine-tuning."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning import classes, encode, gpt_form, supervised
from bert_jax.model import classifier, losses, parameters
from tests import models
from tests.finetuning import made, outcome_test

WORDS = gpt_form.extend(models.TOKENIZER)
# Of models.VOCAB: the 5, cat 6, dog 7, ##s 8; then the three new ones.
START, DELIMITER, EXTRACT = 11, 12, 13


def join(texts, pairs, length):
  tokenized = (x and encode.tokenize(WORDS, x) for x in (texts, pairs))
  rows = gpt_form.join(WORDS, *tokenized, length)
  numbers = np.arange(len(texts))
  return rows.make_batch(numbers, int(rows.lengths.max()), 0)


def test_ids_of_a_text_and_of_a_pair():
  batch = join(['the cats', 'dog'], None, 8)
  assert batch['input_ids'].tolist() == [
    [START, 5, 6, 8, EXTRACT],
    [START, 7, EXTRACT, 0, 0],
  ]
  batch = join(['the cats', 'dog'], ['dog', 'the the'], 8)
  assert batch['input_ids'].tolist() == [
    [START, 5, 6, 8, DELIMITER, 7, EXTRACT],
    [START, 7, DELIMITER, 5, 5, EXTRACT, 0],
  ]
  assert batch['input_mask'].tolist() == [[1] * 7, [1] * 6 + [0]]
  assert not batch['segment_ids'].any()


def test_long_rows_keep_all_three_tokens():
  batch = join(['the ' * 9], ['dog ' * 9], 7)
  assert batch['input_ids'].tolist() == [
    [START, 5, 5, DELIMITER, 7, 7, EXTRACT]
  ]


def test_the_tokens_are_new():
  assert WORDS.vocab[11:] == ('[START]', '[DELIMITER]', '[EXTRACT]')
  with pytest.raises(errors.UserError, match=r'has \[DELIMITER\] already'):
    gpt_form.extend(WORDS)
  # Nobody writes them in a text.
  assert max(encode.tokenize(WORDS, ['a [EXTRACT] b'])[0]) < 11


@pytest.mark.slow
def test_half_the_mean_loss_of_the_tokens_is_added():
  bert = dataclasses.replace(made.BERT, causal=True, vocab_size=14)
  module = classifier.GptClassifier(bert, 2, 0.0)
  params = parameters.init(module, jax.random.key(0))
  batch = join(['the cats', 'dog'], None, 8)
  batch |= {'labels': np.array([0, 1]), 'label_weights': np.array([1.0, 0.0])}
  batch = jax.tree.map(jnp.asarray, batch)
  found, _ = classes.TASK.compute_sums(module, params, batch, None)
  _, inputs = module.apply({'params': params}, batch, method='with_tokens')
  x, table, bias, _ = inputs
  logits = x[:1] @ table.T + bias[None, None]
  loss, _ = losses.sum_tokens(
    logits, batch['input_ids'][:1, 1:], jnp.ones((1, 4))
  )
  # The row of weight 0 does not count.
  np.testing.assert_allclose(found['half_lm_loss'], loss / 2, rtol=1e-5)
  assert gpt_form.weigh_tokens(batch).tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]


def test_both_losses_are_minimised_and_counted():
  c = made.make_config('', '', **{
    'finetuning.form': 'gpt', 'finetuning.outputs': 2,
    'objective.kind': 'ltr', 'objective.nsp': False,
    'compute.attention': 'xla', 'compute.heads': 'flat',
  })  # fmt: skip
  objective = supervised.make_objective(classes.TASK, c)
  assert objective.losses == ('cross_entropy', 'half_lm_loss')
  batch = join(['the cats', 'dog'], None, 8)
  batch |= {'label_weights': np.ones(2, np.float32)}
  counts = objective.counts(jax.tree.map(jnp.asarray, batch))
  assert {name: float(x) for name, x in counts.items()} == {
    'cross_entropy': 2, 'accuracy': 2, 'half_lm_loss': 6
  }  # fmt: skip


@pytest.mark.slow
def test_a_run_learns_and_predicts_as_it_was_trained(tmp_path, capsys):
  c = outcome_test.make_config(
    tmp_path, **{'finetuning.form': 'gpt', 'finetuning.epochs': 30.0}
  )
  run = made.train(c, tmp_path)
  out = capsys.readouterr().out
  assert '  words 11 to 13: new embeddings and output biases\n' in out
  assert (
    '  no export: BERT of Hugging Face has no model that reads the ex' in out
  )
  assert made.read_json(run, 'results.json')['metrics']['accuracy'] == 1
  found = outcome_test.check_predict(run, tmp_path / 'texts', tmp_path)
  assert found == ['dog', 'cat']
  losses = [x['half_lm_loss'] for x in made.list_logged(run, 'train')]
  assert losses[-1] < losses[0]
