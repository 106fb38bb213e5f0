"""What bert_jax.interop.hugging_face writes, reads and refuses."""

import dataclasses
import json
import os
import pathlib

import jax
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import tokenizers

from bert_jax import errors
from bert_jax.interop import hugging_face
from bert_jax.model import classifier
from bert_jax.tokenization.tokenizer import Tokenizer
from tests import models
from tests.weight_files import fake_torch


@pytest.fixture
def exported(tmp_path):
  return models.export_to(tmp_path / 'model')


def test_config_json_is_golden_and_weights_are_for_torch(exported):
  path = os.path.join(exported, 'model.safetensors')
  with safetensors.safe_open(path, framework='numpy') as f:
    assert f.metadata() == {'format': 'pt'}
  with open(os.path.join(exported, 'config.json'), encoding='utf-8') as f:
    assert json.load(f) == {
      'architectures': ['BertForPreTraining'],
      'model_type': 'bert',
      'vocab_size': 11,
      'hidden_size': 8,
      'num_hidden_layers': 2,
      'num_attention_heads': 2,
      'intermediate_size': 12,
      'max_position_embeddings': 7,
      'type_vocab_size': 3,
      'hidden_dropout_prob': 0.1,
      'attention_probs_dropout_prob': 0.1,
      'layer_norm_eps': 1e-12,
      'initializer_range': 0.02,
      'hidden_act': 'gelu_new',
      'pad_token_id': 0,
      'is_decoder': False,
      'tie_word_embeddings': True,
      'position_embedding_type': 'absolute',
      'classifier_dropout': None,
      'torch_dtype': 'float32',
    }


@pytest.mark.parametrize('strip_accents', [True, False])
@pytest.mark.parametrize('lowercase', [True, False])
def test_tokenizer_json_gives_our_ids(tmp_path, lowercase, strip_accents):
  ours = Tokenizer(tuple(models.VOCAB), lowercase, strip_accents)
  path = str(tmp_path / 'model')
  hugging_face.export(path, models.make_params(), models.CONFIG, ours)
  theirs = tokenizers.Tokenizer.from_file(os.path.join(path, 'tokenizer.json'))
  for text in (
    'the Cats',
    '[MASK]é É e\u0301.',
    'e' + 's' * 149,
    '[mask] [SEP] dogs\x85 e',
  ):
    assert theirs.encode(text).ids == ours.encode(text)['input_ids']
  pair = theirs.encode('the cat', 'dogs')
  assert pair.ids == [2, 5, 6, 3, 7, 8, 3]
  assert pair.type_ids == [0, 0, 0, 0, 1, 1, 1]
  assert hugging_face.read(path).tokenizer == ours
  with open(os.path.join(path, 'tokenizer_config.json'), encoding='utf-8') as f:
    settings = json.load(f)
  assert settings['model_max_length'] == 7
  assert settings['strip_accents'] == strip_accents


def test_why_there_is_no_export_is_said():
  def find(head=None, **changes):
    config = dataclasses.replace(models.CONFIG, **changes)
    return hugging_face.find_problem(config, head)

  assert 'from right to left' in find(causal=True, reverse=True)
  head = classifier.Head(np.zeros((8, 2)), np.zeros(2), ('a', 'b'), 7, ())
  assert find(head) is None
  assert 'which sees no text' in find(head, causal=True)
  assert find(head._replace(task='tagging'), causal=True) is None
  assert 'a BiLSTM' in find(head._replace(bilstm={}))


@pytest.mark.parametrize(
  ('path', 'changes', 'message'),
  [
    ('x', {'norm': 'pre'}, 'no model with norm=pre; fill_mask'),
    ('x', {'vocab_size': 9}, '11 entries.*only 9'),
  ],
)
def test_what_cannot_be_exported_is_refused(
  tmp_path, monkeypatch, path, changes, message
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'file').touch()
  config = dataclasses.replace(models.CONFIG, **changes)
  with pytest.raises(errors.UserError, match=message):
    hugging_face.export(
      path, models.make_params(config), config, models.TOKENIZER
    )
  assert os.listdir(tmp_path) == ['file']


@pytest.mark.parametrize(
  ('with_nsp', 'activation'), [(True, 'gelu'), (False, 'relu')]
)
def test_what_was_exported_is_read_back_and_replaced(
  tmp_path, with_nsp, activation
):
  config = dataclasses.replace(
    models.CONFIG,
    activation=activation,
    causal=not with_nsp,
    attention_dropout=0.25,
  )
  path = str(tmp_path / 'runs' / 'model')
  for seed in (1, 2):
    params = models.make_params(config, with_nsp, seed)
    hugging_face.export(path, params, config, models.TOKENIZER)
  loaded = hugging_face.read(path)
  models.assert_same(loaded[0], params)
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(loaded[0]))
  assert (loaded.config, loaded.tokenizer) == (config, models.TOKENIZER)
  assert len({file.stat().st_mode for file in os.scandir(path)}) == 1


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'hidden_act': 'silu'}, "hidden_act is 'silu', not one of gelu"),
    ({'model_type': 'roberta'}, "model_type is 'roberta'"),
    ({'hidden_size': '8'}, "hidden_size is '8', not a whole number"),
    ({'layer_norm_eps': float('nan')}, 'layer_norm_eps is nan'),
    ({'position_embedding_type': 'relative_key'}, 'absolute'),
    ({'num_hidden_layers': 3}, 'missing: bert.encoder.layer.2'),
    ({'num_attention_heads': 3}, 'not a multiple of 3 heads'),
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


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('config.json', None, 'cannot read .*config.json'),
    ('model.safetensors', None, 'neither model.safetensors nor pyto'),
    ('model.safetensors', b'', 'cannot read .*model.safetensors'),
    ('tokenizer_config.json', b'{"do_lower_case": 1}', 'do_lower_case is 1'),
    (
      'tokenizer_config.json',
      b'{"tokenizer_class": "BertJapaneseTokenizer"}',
      "tokenizer_class is 'BertJapaneseTokenizer'",
    ),
    ('tokenizer.json', b'7', 'cannot be read by tokenizers'),
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


@pytest.mark.parametrize(
  ('name', 'settings'),
  [
    ('tokenizer_config.json', {'tokenize_chinese_chars': False}),
    (
      'tokenizer.json',
      {'normalizer': {**models.NORMALIZER, 'handle_chinese_chars': False}},
    ),
  ],
)
def test_chinese_characters_must_be_words_if_there_are_any(
  exported, name, settings
):
  ours = os.path.join(exported, 'tokenizer_config.json')
  models.edit_json(ours, tokenize_chinese_chars=...)
  models.edit_json(os.path.join(exported, name), **settings)
  hugging_face.read(exported)
  path = pathlib.Path(exported, 'vocab.txt')
  path.write_text(path.read_text('utf-8').replace('the\n', '世\n'), 'utf-8')
  with pytest.raises(errors.UserError, match='Chinese characters together'):
    hugging_face.read(exported)


@pytest.mark.parametrize(
  ('settings', 'normalizer', 'strips'),
  [
    ({'do_lower_case': True}, None, True),  # null: as lower case
    ({'do_lower_case': True, 'strip_accents': False}, None, False),
    ({'do_lower_case': False, 'strip_accents': True}, None, True),
    ({'do_lower_case': True}, {'strip_accents': False}, False),
    # transformers puts the settings in the place of the normalizer's.
    (
      {'do_lower_case': True, 'strip_accents': None},
      {'strip_accents': False},
      True,
    ),
  ],
)
def test_accents_are_as_the_folder_says(exported, settings, normalizer, strips):
  path = os.path.join(exported, 'tokenizer.json')
  if normalizer is None:
    os.remove(path)
  else:
    models.edit_json(path, normalizer=models.NORMALIZER | normalizer)
  path = os.path.join(exported, 'tokenizer_config.json')
  pathlib.Path(path).write_text(json.dumps(settings))
  tokenizer = hugging_face.read(exported).tokenizer
  assert tokenizer.strip_accents == strips
  assert tokenizer.ids(['é']) == [[10 if strips else 9]]


def test_what_wrappers_put_before_names_is_left_out(exported, monkeypatch):
  fake_torch.install(monkeypatch)
  path = os.path.join(exported, 'model.safetensors')
  tensors = safetensors.numpy.load_file(path)
  os.remove(path)
  tensors = {f'module._orig_mod.{name}': x for name, x in tensors.items()}
  fake_torch.save(os.path.join(exported, 'pytorch_model.bin'), tensors)
  found = hugging_face.read(exported)
  models.assert_same(found.params, models.make_params())
  assert found.report.left_over == []
