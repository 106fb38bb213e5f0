"""What is written of ModernBERT's body, and read back or refused."""

import dataclasses
import json
import os

import pytest
import safetensors.numpy

from bert_jax import errors
from bert_jax.interop import hugging_face, rename
from tests import models

SHAPES = {
  'model.embeddings.tok_embeddings.weight': (11, 8),
  'model.embeddings.norm.weight': (8,),
  'model.layers.0.attn.Wqkv.weight': (24, 8),
  'model.layers.0.attn.Wo.weight': (8, 8),
  'model.layers.0.mlp_norm.weight': (8,),
  'model.layers.0.mlp.Wi.weight': (24, 8),
  'model.layers.0.mlp.Wo.weight': (8, 12),
  'model.layers.1.attn_norm.weight': (8,),
  'model.layers.1.attn.Wqkv.weight': (24, 8),
  'model.layers.1.attn.Wo.weight': (8, 8),
  'model.layers.1.mlp_norm.weight': (8,),
  'model.layers.1.mlp.Wi.weight': (24, 8),
  'model.layers.1.mlp.Wo.weight': (8, 12),
  'model.final_norm.weight': (8,),
  'head.dense.weight': (8, 8),
  'head.norm.weight': (8,),
  'decoder.bias': (11,),
}
OLD = {  # what only versions before 5 write
  'global_rope_theta': 160_000.0,
  'local_rope_theta': 10_000.0,
  'global_attn_every_n_layers': 3,
}
FULL, SLIDING = 'full_attention', 'sliding_attention'
NEW = {  # what only version 5 writes
  'layer_types': [FULL, SLIDING],
  'rope_parameters': {
    FULL: {'rope_type': 'default', 'rope_theta': 160_000.0},
    SLIDING: {'rope_type': 'default', 'rope_theta': 10_000.0},
  },
}


@pytest.fixture
def exported(tmp_path):
  return models.export_to(tmp_path / 'model', models.MODERN)


def edit(exported, **values):
  models.edit_json(os.path.join(exported, 'config.json'), **values)


def test_config_json_is_golden(exported):
  with open(os.path.join(exported, 'config.json'), encoding='utf-8') as f:
    assert json.load(f) == {
      'architectures': ['ModernBertForMaskedLM'],
      'model_type': 'modernbert',
      'vocab_size': 11,
      'hidden_size': 8,
      'num_hidden_layers': 2,
      'num_attention_heads': 2,
      'intermediate_size': 12,
      'max_position_embeddings': 7,
      'norm_eps': 1e-5,
      'initializer_range': 0.02,
      'initializer_cutoff_factor': 2.0,
      'local_attention': 6,
      **OLD,
      **NEW,
      'hidden_activation': 'gelu',
      'classifier_activation': 'gelu',
      'classifier_pooling': 'cls',
      'classifier_bias': False,
      'norm_bias': False,
      'attention_bias': False,
      'mlp_bias': False,
      'decoder_bias': True,
      'tie_word_embeddings': True,
      'attention_dropout': 0.0,
      'embedding_dropout': 0.0,
      'mlp_dropout': 0.0,
      'classifier_dropout': 0.0,
      'pad_token_id': 0,
      'bos_token_id': 2,
      'cls_token_id': 2,
      'eos_token_id': 3,
      'sep_token_id': 3,
      'torch_dtype': 'float32',
    }
  with open(os.path.join(exported, 'tokenizer_config.json'), 'rb') as f:
    inputs = json.load(f)['model_input_names']
  assert inputs == ['input_ids', 'attention_mask']


def test_tensors_have_the_names_shapes_and_order_of_transformers(exported):
  path = os.path.join(exported, 'model.safetensors')
  tensors = safetensors.numpy.load_file(path)
  assert {name: x.shape for name, x in tensors.items()} == SHAPES
  ours = models.make_params(models.MODERN, False)
  layer = ours['encoder']['layer_1']
  # Row 14 is of the keys (8 to 15), output 6, which is head 1, place 2.
  there = tensors['model.layers.1.attn.Wqkv.weight'][14, 5]
  assert there == layer['attention']['qkv']['kernel'][5, 1, 1, 2]
  there = tensors['model.layers.1.attn.Wo.weight'][3, 6]
  assert there == layer['attention']['out']['kernel'][1, 2, 3]
  there = tensors['model.layers.1.mlp.Wi.weight'][12 + 7, 3]  # the gate
  assert there == layer['mlp_in']['kernel'][3, 1, 7]


@pytest.mark.parametrize('lacking', [(), OLD, NEW])
def test_it_is_read_back_in_the_forms_of_old_and_new_versions(
  exported, lacking
):
  edit(exported, **dict.fromkeys(lacking, ...))
  loaded = hugging_face.read(exported)
  models.assert_same(loaded.params, models.make_params(models.MODERN, False))
  assert (loaded.config, loaded.tokenizer) == (models.MODERN, models.TOKENIZER)
  assert loaded.report == ([], [])


def test_layer_types_say_more_than_the_number_before_them(exported):
  edit(exported, layer_types=[FULL, FULL])
  assert hugging_face.read(exported).config.global_every == 1


def test_classes_without_heads_and_tied_copies_are_understood(exported):
  params = models.make_params(models.MODERN, False)
  bare = rename.keep_parts(params, ())
  hugging_face.export(exported, bare, models.MODERN, models.TOKENIZER)
  path = os.path.join(exported, 'model.safetensors')
  assert 'layers.0.attn.Wo.weight' in safetensors.numpy.load_file(path)
  models.assert_same(hugging_face.read(exported).params, bare)
  tensors = rename.to_theirs(params, models.MODERN, 'hf')
  word = tensors['model.embeddings.tok_embeddings.weight']
  tied = tensors | {'decoder.weight': word.copy()}
  models.assert_same(rename.from_hf(tied, models.MODERN)[0], params)
  with pytest.raises(errors.UserError, match='decoder.weight differs'):
    rename.from_hf(tensors | {'decoder.weight': word + 1}, models.MODERN)


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'norm_bias': True}, 'norm_bias is True, not false'),
    ({'decoder_bias': False}, 'decoder_bias is False, not true'),
    (
      {'hidden_activation': 'silu'},
      "hidden_activation is 'silu', not one of gelu",
    ),
    ({'tie_word_embeddings': False}, 'tie_word_embeddings is False'),
    ({'rope_scaling': {'rope_type': 'yarn'}}, 'rope_scaling is .*, not null'),
    (
      {'rope_parameters': {FULL: {'rope_type': 'yarn', 'rope_theta': 2.0}}},
      'rope_parameters is .*yarn.*, not rope_type=default',
    ),
    ({'rope_parameters': [1]}, 'rope_parameters is'),
    # The NaN of exports of others: both mean something else in some version.
    (
      {'local_rope_theta': None, 'rope_parameters': ...},
      'local_rope_theta is None, not a number from 1 to 1e',
    ),
    ({'global_rope_theta': -1, 'rope_parameters': ...}, 'theta is -1, not'),
    ({'layer_types': [SLIDING, FULL]}, 'layer_types is .*, not full_attention'),
    ({'layer_types': 3}, 'layer_types is 3'),
    ({'classifier_pooling': 'max'}, "is 'max', not 'cls' or 'mean'"),
    ({'local_attention': -1}, 'local_attention is -1, not a whole number'),
  ],
)
def test_what_cannot_be_computed_here_is_refused(exported, values, message):
  edit(exported, **values)
  with pytest.raises(errors.UserError, match=message) as error:
    hugging_face.read(exported)
  assert '\n' not in str(error.value)


def test_mixes_have_no_export():
  def find(**changes):
    config = dataclasses.replace(models.MODERN, **changes)
    return hugging_face.find_problem(config)

  assert find() is None
  assert 'ModernBERT of Hugging Face has no model with' in find(causal=True)
  assert find(norm='post') and find(activation='relu')
