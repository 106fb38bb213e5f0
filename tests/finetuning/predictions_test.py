"""Tests of a fine-tuned model's outputs for rows of different lengths."""

import jax
import numpy as np

from bert_jax.finetuning import encode, predictions
from bert_jax.model import classifier
from tests import models
from tests.finetuning import made


def make_model():
  """Returns (rows of different lengths, a model of three classes, params)."""
  texts = ['the ' * n + 'cat' for n in (12, 0, 5, 1, 9)]
  encoded = made.encode_rows(texts, None, 16)
  module = classifier.Classifier(made.BERT, 3, 0.0)
  head = classifier.Head(
    np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3),
    np.zeros(3, np.float32),
    ('a', 'b', 'c'),
    16,
    (),
  )
  return encoded, module, head.add_to(models.make_params(made.BERT))


def test_logits_are_in_order_and_do_not_depend_on_the_rows_beside():
  encoded, module, params = make_model()
  found = predictions.compute_logits(
    params, module, encoded, 0, 'testing', batch_size=2
  )
  assert found.shape == (5, 3) and found.dtype == np.float32
  for i in range(5):
    row = encode.make_batch(encoded, np.array([i]), encoded.lengths[i], 0)
    alone = jax.jit(module.apply)({'params': params}, row)
    np.testing.assert_allclose(found[i], alone[0], atol=2e-6)
  assert len(np.unique(found.round(4), axis=0)) == 5


def test_classes_are_the_likeliest_and_in_order():
  encoded, module, params = make_model()
  network = params, module, encoded, 0, 'testing'
  # Without this, all rows are of one class.
  bias = -predictions.compute_logits(*network).mean(0)
  params['classifier'] = {**params['classifier'], 'bias': bias}
  chosen, likely = predictions.choose_classes(*network, batch_size=2)
  logits = predictions.compute_logits(*network, batch_size=2)
  expected = predictions.to_probabilities(logits)
  np.testing.assert_array_equal(chosen, expected.argmax(-1))
  np.testing.assert_array_equal(likely, expected.max(-1))
  assert len(np.unique(chosen)) > 1 and len(np.unique(likely)) == 5


def test_probabilities_are_a_softmax():
  logits = np.array([[0, np.log(3)], [1000, 0]], np.float32)
  found = predictions.to_probabilities(logits)
  np.testing.assert_allclose(found, [[0.25, 0.75], [1, 0]], atol=1e-7)
