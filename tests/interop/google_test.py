"""Google's folders."""

import os
import shutil

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.interop import google, rename
from bert_jax.weight_files import tf_checkpoint
from tests import models
from tests.weight_files import tf_files


@pytest.fixture
def folder(tmp_path):
  return tf_files.write_model(tmp_path / 'google', models.make_params())


def test_a_folder_of_google_is_read(folder):
  params, config, tokenizer, report, *_ = google.read(folder)
  models.assert_same(params, models.make_params())
  assert config == models.CONFIG
  assert tokenizer.vocab == models.TOKENIZER.vocab
  assert report == ([], [])


def test_a_prefix_is_as_good_as_its_folder(folder):
  prefix = os.path.join(folder, 'bert_model.ckpt')
  for path in (folder, prefix, f'{prefix}.index', f'{folder}/'):
    assert google.find(path) == prefix
  with pytest.raises(errors.UserError, match='nothing holds 0 checkpoints: no'):
    google.find(os.path.join(folder, 'nothing'))
  shutil.copy(f'{prefix}.index', os.path.join(folder, 'model.ckpt-10.index'))
  with pytest.raises(errors.UserError, match='2 checkpoints: bert_model.ckpt'):
    google.read(folder)
  models.assert_same(google.read(prefix).params, models.make_params())


def rewrite(folder, change):
  """Writes the variables again as `change` returns them."""
  prefix = os.path.join(folder, 'bert_model.ckpt')
  entries = tf_checkpoint.read_index(prefix)
  tensors = {name: tf_checkpoint.read(x) for name, x in entries.items()}
  tf_files.write_checkpoint(prefix, change(tensors))


def test_slots_are_left_over_and_heads_may_be_missing(folder):
  def change(tensors):
    kept = {k: x for k, x in tensors.items() if not k.startswith('cls/pred')}
    bias = kept['cls/seq_relationship/output_bias']
    return kept | {
      'cls/seq_relationship/output_bias/adam_m': bias,
      'cls/seq_relationship/output_bias/adam_v': bias,
      'global_step': np.int64(3),
      'output_weights': bias,
    }

  rewrite(folder, change)
  params, _, _, report, *_ = google.read(folder)
  assert rename.list_parts(params) == ['encoder', 'pooler', 'nsp']
  models.assert_same(params['nsp'], models.make_params()['nsp'])
  assert report.missing == [
    'cls/predictions/output_bias',
    'cls/predictions/transform/LayerNorm/beta',
    'cls/predictions/transform/LayerNorm/gamma',
    'cls/predictions/transform/dense/bias',
    'cls/predictions/transform/dense/kernel',
  ]
  assert report.left_over == [
    'cls/seq_relationship/output_bias/adam_m',
    'cls/seq_relationship/output_bias/adam_v',
    'global_step',
    'output_weights',
  ]
  slots = [name for name in report.left_over if google.is_slot(name)]
  assert slots == report.left_over[:3]


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'num_hidden_layers': 3}, 'missing: bert/encoder/layer_2/attention/out'),
    ({'num_hidden_layers': 1}, None),
    ({'intermediate_size': 10**9}, r'12,? ?8?\).*1000000000'),
  ],
)
def test_a_config_that_does_not_fit_is_refused(folder, values, message):
  models.edit_json(os.path.join(folder, 'bert_config.json'), **values)
  if message is None:  # all that is asked for is there
    left_over = google.read(folder).report.left_over
    assert len(left_over) == 16 and 'layer_1' in left_over[0]
    return
  with pytest.raises(errors.UserError, match=message) as error:
    google.read(folder)
  assert '\n' not in str(error.value)
