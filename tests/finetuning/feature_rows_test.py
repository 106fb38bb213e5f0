"""Tests of rows of cached features."""

import pickle

import numpy as np

from bert_jax.finetuning import encode, feature_rows


def make_rows(tmp_path):
  path = str(tmp_path / 'x.npy')
  np.save(path, np.arange(30, dtype=np.float32).reshape(5, 2, 3))
  return feature_rows.FeatureRows(path, np.array([2, 5]))


def test_a_batch_has_the_rows_and_their_mask(tmp_path):
  rows = make_rows(tmp_path)
  batch = encode.make_batch(rows, np.array([1, 0, 1]), 4, pad_id=0)
  assert batch['input_mask'].tolist() == [
    [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]
  ]  # fmt: skip
  assert batch['features'].shape == (3, 4, 2, 3)
  np.testing.assert_array_equal(batch['features'][1, :2], rows.features[:2])
  np.testing.assert_array_equal(batch['features'][0, :3], rows.features[2:])
  assert not batch['features'][batch['input_mask'] == 0].any()
  assert rows.lengths.tolist() == [2, 3]


def test_the_features_are_left_in_their_file(tmp_path):
  rows = make_rows(tmp_path)
  assert isinstance(rows.features, np.memmap)
  data = pickle.dumps(rows)
  assert len(data) < 1000
  np.testing.assert_array_equal(pickle.loads(data).features, rows.features)
