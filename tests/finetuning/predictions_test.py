"""Tests of a fine-tuned model's predictions for rows of different lengths."""

import functools
import types

import jax
import numpy as np

from bert_jax.finetuning import classes, encode, predictions, supervised
from bert_jax.model import classifier
from tests import models
from tests.finetuning import made

DATA = supervised.Data({}, ('a', 'b', 'c'), 0, {})


def make_model(bias=(0, 0, 0)):
  """Returns (rows of different lengths, (params, a model of three classes))."""
  texts = ['the ' * n + 'cat' for n in (12, 0, 5, 1, 9)]
  encoded = made.encode_rows(texts, None, 16)
  module = classifier.Classifier(made.BERT, 3, 0.0)
  head = classifier.Head(
    np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3),
    np.array(bias, np.float32),
    ('a', 'b', 'c'),
    16,
    (),
  )
  params = head.add_to(models.make_params(made.BERT))
  return encode.Rows(encoded, None), (params, module)


def predict(split, network, keep=predictions.fill, batch_size=2):
  make = functools.partial(classes.TASK.make_batch, DATA)
  compute = classes.TASK.compute_sums
  return predictions.predict(
    network, split, make, compute, keep, 'testing', batch_size
  )


def test_logits_are_in_order_and_do_not_depend_on_the_rows_beside():
  split, (params, module) = make_model()
  found = predict(split, (params, module))['logits']
  assert found.shape == (5, 3) and found.dtype == np.float32
  for i in range(5):
    rows = np.array([i])
    row = split.encoded.make_batch(rows, split.lengths[i], 0)
    alone = jax.jit(module.apply)({'params': params}, row)
    np.testing.assert_allclose(found[i], alone[0], atol=2e-6)
  assert len(np.unique(found.round(4), axis=0)) == 5


def test_classes_are_the_likeliest_and_in_order():
  split, network = make_model()
  # Without this, all rows are of one class.
  bias = -predict(split, network)['logits'].mean(0)
  split, network = make_model(bias)
  kept = predict(split, network, predictions.keep_likeliest)
  expected = predictions.to_probabilities(predict(split, network)['logits'])
  np.testing.assert_array_equal(kept['chosen'], expected.argmax(-1))
  np.testing.assert_array_equal(kept['probability'], expected.max(-1))
  assert len(np.unique(kept['chosen'])) > 1
  assert len(np.unique(kept['probability'])) == 5


def test_probabilities_are_a_softmax():
  logits = np.array([[0, np.log(3)], [1000, 0]], np.float32)
  found = predictions.to_probabilities(logits)
  np.testing.assert_allclose(found, [[0.25, 0.75], [1, 0]], atol=1e-7)


def test_the_rows_that_fill_up_a_batch_are_left_out():
  split, found = types.SimpleNamespace(size=3), {'x': np.array([5, 6, 6])}
  kept = predictions.fill(split, None, np.array([2, 0]), found)
  assert kept['x'].tolist() == [6, 0, 5]
