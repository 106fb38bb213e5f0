"""What bert_jax.interop.hugging_face reads and refuses."""

import dataclasses
import json
import os
import pathlib

import jax
import numpy as np
import pytest
import safetensors.numpy

from bert_jax import errors
from bert_jax.interop import hugging_face, rename
from bert_jax.model import bert_config
from tests import models


@pytest.fixture
def exported(tmp_path):
  return models.export_to(tmp_path / 'model')


@pytest.mark.parametrize('with_nsp', [True, False])
@pytest.mark.parametrize('activation', list(bert_config.ACTIVATIONS))
def test_what_was_exported_is_read_back(tmp_path, with_nsp, activation):
  config = dataclasses.replace(
    models.CONFIG,
    activation=activation,
    causal=not with_nsp,
    attention_dropout=0.25,
  )
  params = models.make_params(config, with_nsp)
  path = str(tmp_path / 'runs' / 'model')
  hugging_face.export(path, params, config, models.TOKENIZER)
  loaded = hugging_face.read(path)
  models.assert_same(loaded[0], params)
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(loaded[0]))
  assert (loaded.config, loaded.tokenizer) == (config, models.TOKENIZER)


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'hidden_act': 'silu'}, "hidden_act is 'silu', not one of gelu"),
    ({'hidden_act': ['gelu']}, 'hidden_act'),
    ({'model_type': 'roberta'}, "model_type is 'roberta'"),
    ({'model_type': None}, 'model_type is None'),
    ({'layer_norm_eps': None}, 'layer_norm_eps is None'),
    ({'hidden_size': '8'}, "hidden_size is '8', not a whole number"),
    ({'num_attention_heads': 3}, 'multiple of 3 heads'),
    ({'num_hidden_layers': True}, 'num_hidden_layers'),
    ({'layer_norm_eps': float('nan')}, 'layer_norm_eps is nan'),
    ({'hidden_dropout_prob': None}, 'hidden_dropout_prob is None'),
    ({'is_decoder': 1}, 'is_decoder is 1'),
    ({'position_embedding_type': 'relative_key'}, 'absolute'),
    ({'num_hidden_layers': 3}, 'missing: bert.encoder.layer.2'),
  ],
)
def test_a_config_that_is_not_ours_is_refused(exported, values, message):
  models.edit_json(os.path.join(exported, 'config.json'), **values)
  with pytest.raises(errors.UserError, match=message):
    hugging_face.read(exported)


@pytest.mark.parametrize(
  'values', [{}, {'architectures': ['BertModel']}, {'architectures': None}]
)
def test_a_config_from_before_2020_is_read(exported, values):
  old = dict.fromkeys(('model_type', 'layer_norm_eps', 'architectures'), ...)
  models.edit_json(os.path.join(exported, 'config.json'), **{**old, **values})
  loaded = hugging_face.read(exported)
  models.assert_same(loaded[0], models.make_params())
  assert loaded[1] == models.CONFIG  # whose epsilon is 1e-12


@pytest.mark.parametrize('classes', [['RobertaForMaskedLM'], 'BertModel'])
def test_without_a_type_the_class_must_be_one_of_bert(exported, classes):
  path = os.path.join(exported, 'config.json')
  models.edit_json(path, model_type=..., architectures=classes)
  with pytest.raises(errors.UserError, match='architectures is .* only BERT'):
    hugging_face.read(exported)


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('config.json', None, 'cannot read .*config.json'),
    ('config.json', b'{"model_type"', 'is not JSON'),
    ('config.json', b'\xff\xfe', 'is not JSON'),
    ('config.json', b'[' * 100_000, 'is not JSON'),
    ('config.json', b'[]', 'holds a list'),
    ('model.safetensors', None, 'does not exist'),
    ('model.safetensors', b'', 'cannot read .*model.safetensors'),
    ('model.safetensors', b'\xff' * 100, 'cannot read .*model.safetensors'),
    ('tokenizer_config.json', b'{"do_lower_case": 1}', 'do_lower_case is 1'),
    ('tokenizer_config.json', b'{"strip_accents": 1}', 'strip_accents is 1'),
    ('tokenizer.json', b'7', 'holds a int'),
    ('vocab.txt', b'the\n', 'lacks'),
  ],
)
def test_a_broken_folder_is_one_clear_error(exported, name, content, message):
  path = os.path.join(exported, name)
  os.remove(path)
  if content is not None:
    pathlib.Path(path).write_bytes(content)
  with pytest.raises(errors.UserError, match=message) as error:
    hugging_face.read(exported)
  assert '\n' not in str(error.value)


def test_the_pooler_of_a_dropped_nsp_head_is_read(exported):
  path = os.path.join(exported, 'model.safetensors')
  tensors = safetensors.numpy.load_file(path)
  for name in ('weight', 'bias'):
    del tensors[f'cls.seq_relationship.{name}']
  safetensors.numpy.save_file(tensors, path)
  params, *_ = hugging_face.read(exported)
  kept = rename.keep_parts(models.make_params(), {'mlm', 'pooler'})
  models.assert_same(params, kept)


def test_words_without_a_row_are_left_out_and_reported(exported):
  with open(os.path.join(exported, 'vocab.txt'), 'a', encoding='utf-8') as f:
    f.write('extra\nwords\n')
  _, _, tokenizer, report, *_ = hugging_face.read(exported)
  assert tokenizer.vocab == tuple(models.VOCAB)
  assert report.left_over == ['vocab.txt: extra', 'vocab.txt: words']


def test_special_tokens_need_a_row(exported):
  words = [w for w in models.VOCAB if w != '[MASK]']
  with open(os.path.join(exported, 'vocab.txt'), 'w', encoding='utf-8') as f:
    f.writelines(f'{word}\n' for word in [*words, 'extra', '[MASK]'])
  with pytest.raises(errors.UserError, match='entries, the model only'):
    hugging_face.read(exported)


@pytest.mark.parametrize(
  ('name', 'left_over', 'labels'),
  [('bert-xsmall-dummy', [], 0), ('camphr_ner_bert', ['Κ', 'Λ', 'Μ'], 9)],
)
def test_real_folders_are_read(name, left_over, labels):
  data = os.environ.get('BERT_JAX_TEST_DATA', '')
  folder = os.path.join(data, 'weights', name)
  if not os.path.isdir(folder):
    pytest.skip(f'BERT_JAX_TEST_DATA has no weights/{name}')
  params, config, tokenizer, report, _, _, head = hugging_face.read(folder)
  word = params['embeddings']['word']['embedding']
  assert word.shape == (config.vocab_size, config.hidden_size)
  assert tokenizer.size <= config.vocab_size and 'nsp' not in params
  found = {x.removeprefix('vocab.txt: ') for x in report.left_over}
  assert found >= {*left_over}
  assert len(head.labels if head else ()) == labels


@pytest.mark.parametrize(
  ('settings', 'normalizer', 'strips'),
  [
    ({'do_lower_case': True}, None, True),  # null: as lower case
    ({'do_lower_case': False}, None, False),
    ({'do_lower_case': True, 'strip_accents': None}, None, True),
    ({'do_lower_case': True, 'strip_accents': False}, None, False),
    ({'do_lower_case': False, 'strip_accents': True}, None, True),
    ({'do_lower_case': True}, {'strip_accents': False}, False),
    ({'do_lower_case': True}, {'strip_accents': None}, True),
    # transformers puts the settings in the place of the normalizer's.
    (
      {'do_lower_case': True, 'strip_accents': None},
      {'strip_accents': False},
      True,
    ),
  ],
)
def test_accents_are_as_the_folder_says(exported, settings, normalizer, strips):
  for name, value in (
    ('tokenizer_config.json', settings),
    ('tokenizer.json', {'normalizer': normalizer}),
  ):
    with open(os.path.join(exported, name), 'w', encoding='utf-8') as f:
      json.dump(value, f)
  tokenizer = hugging_face.read(exported).tokenizer
  assert tokenizer.strip_accents == strips
  assert tokenizer.ids(['é']) == [[10 if strips else 9]]
