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
from bert_jax.interop import hugging_face, rename
from bert_jax.model import bert_config, classifier
from bert_jax.runtime import disk
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


@pytest.mark.parametrize(
  ('changes', 'parts', 'architecture', 'hidden_act', 'is_decoder'),
  [
    ({'activation': 'relu'}, ['mlm'], 'BertForMaskedLM', 'relu', False),
    ({'causal': True}, ['mlm'], 'BertLMHeadModel', 'gelu_new', True),
  ],
)
def test_config_json_names_class_and_activation(
  changes, parts, architecture, hidden_act, is_decoder
):
  config = dataclasses.replace(models.CONFIG, **changes)
  value = hugging_face.describe_model(config, parts, pad_id=0)
  assert value['architectures'] == [architecture]
  assert value['hidden_act'] == hidden_act
  assert value['is_decoder'] == is_decoder


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


def test_google_vocabulary_gives_our_ids_of_many_scripts(tmp_path):
  data = os.environ.get('BERT_JAX_TEST_DATA')
  if not data:
    pytest.skip('BERT_JAX_TEST_DATA is not set')
  vocab = os.path.join(data, 'vocab/bert-base-multilingual-cased/vocab.txt')
  ours = Tokenizer.load(vocab, lowercase=False)
  config = dataclasses.replace(models.CONFIG, vocab_size=ours.size)
  hugging_face.export(
    str(tmp_path / 'model'), models.make_params(config), config, ours
  )
  theirs = tokenizers.Tokenizer.from_file(
    str(tmp_path / 'model' / 'tokenizer.json')
  )
  with open(os.path.join(data, 'multilingual/blns.txt'), encoding='utf-8') as f:
    for line in f:
      assert theirs.encode(line).ids == ours.encode(line)['input_ids'], line


def test_all_files_of_an_export_have_the_same_mode(exported):
  modes = {file.stat().st_mode for file in os.scandir(exported)}
  assert len(modes) == 1


def test_a_new_export_replaces_the_old(exported, tmp_path):
  new = models.make_params(seed=5)
  hugging_face.export(exported, new, models.CONFIG, models.TOKENIZER)
  models.assert_same(hugging_face.read(exported).params, new)
  assert os.listdir(tmp_path) == ['model']


def fail_to_sync(path):
  raise OSError(28, 'No space left on device')


def fail_to_rename(source, target, rename=os.rename):
  if source.endswith('.new'):
    raise OSError(5, 'Input/output error')
  rename(source, target)


def fail_to_save(tensors, path, metadata):
  raise safetensors.SafetensorError('I/O error: No space left on device')


@pytest.mark.parametrize(
  ('module', 'name', 'failing', 'message'),
  [
    (
      hugging_face.safetensors.numpy,
      'save_file',
      fail_to_save,
      'cannot write .*No space left',
    ),
    (disk, 'sync', fail_to_sync, 'No space left'),
    (os, 'rename', fail_to_rename, 'Input/output'),
  ],
)
def test_a_failed_export_leaves_the_old(
  exported, tmp_path, monkeypatch, module, name, failing, message
):
  monkeypatch.setattr(module, name, failing)
  new = models.make_params(seed=5)
  with pytest.raises(errors.UserError, match=message):
    hugging_face.export(exported, new, models.CONFIG, models.TOKENIZER)
  models.assert_same(hugging_face.read(exported).params, models.make_params())
  assert os.listdir(tmp_path) == ['model']


def test_what_a_kill_left_is_taken_back(exported, tmp_path, monkeypatch):
  # As after a kill between the two renames, with a second kill to come.
  os.rename(exported, tmp_path / '.model.old')
  (tmp_path / '.model.new').mkdir()
  (tmp_path / '.model.new' / 'config.json').write_text('{')

  def fail(*args):
    raise KeyboardInterrupt

  with monkeypatch.context() as m:
    m.setattr(hugging_face, '_write', fail)
    with pytest.raises(KeyboardInterrupt):
      hugging_face.export(
        exported,
        models.make_params(seed=5),
        models.CONFIG,
        models.TOKENIZER,
      )
  models.assert_same(hugging_face.read(exported).params, models.make_params())
  assert os.listdir(tmp_path) == ['model']


def test_a_folder_with_other_files_is_not_replaced(tmp_path):
  (tmp_path / 'thesis.tex').write_text('years of work')
  with pytest.raises(errors.UserError, match='thesis.tex'):
    models.export_to(tmp_path)
  assert (tmp_path / 'thesis.tex').read_text() == 'years of work'


def test_why_there_is_no_export_is_said():
  def find(head=None, **changes):
    config = dataclasses.replace(models.CONFIG, **changes)
    return hugging_face.find_problem(config, head)

  assert find() is None and find(causal=True) is None
  assert 'no model with norm=pre' in find(norm='pre')
  assert 'from right to left' in find(causal=True, reverse=True)
  head = classifier.Head(np.zeros((8, 2)), np.zeros(2), ('a', 'b'), 7, ())
  assert find(head) is None
  assert 'which sees no text' in find(head, causal=True)
  assert find(head._replace(task='tagging'), causal=True) is None
  assert 'a BiLSTM' in find(head._replace(bilstm={}))
  assert 'extract token' in find(head._replace(form='gpt'), causal=True)


@pytest.mark.parametrize(
  ('path', 'changes', 'message'),
  [
    ('x', {'norm': 'pre'}, 'no model with norm=pre; fill_mask'),
    ('x', {'vocab_size': 9}, '11 entries.*only 9'),
    ('s3://bucket/model', {}, 'not an address to write to'),
    ('file', {}, 'is a file'),
    ('file/model', {}, 'cannot write'),
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
    ({'layer_norm_eps': float('nan')}, 'layer_norm_eps is nan'),
    ({'is_decoder': 1}, 'is_decoder is 1'),
    ({'position_embedding_type': 'relative_key'}, 'absolute'),
    ({'num_hidden_layers': 3}, 'missing: bert.encoder.layer.2'),
    ({'num_hidden_layers': 1 << 24}, 'not 1000 or less'),
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
    ('config.json', b'[]', 'holds a list'),
    ('model.safetensors', None, 'does not exist'),
    ('model.safetensors', b'', 'cannot read .*model.safetensors'),
    ('model.safetensors', b'\xff' * 100, 'cannot read .*model.safetensors'),
    ('tokenizer_config.json', b'{"do_lower_case": 1}', 'do_lower_case is 1'),
    ('tokenizer_config.json', b'{"strip_accents": 1}', 'strip_accents is 1'),
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
  os.remove(os.path.join(exported, 'tokenizer.json'))
  with open(os.path.join(exported, 'vocab.txt'), 'a', encoding='utf-8') as f:
    f.write('extra\nwords\n')
  _, _, tokenizer, report, *_ = hugging_face.read(exported)
  assert tokenizer.vocab == tuple(models.VOCAB)
  assert report.left_over == ['vocab.txt: extra', 'vocab.txt: words']


def test_added_words_without_a_row_are_reported(exported):
  path = os.path.join(exported, 'tokenizer.json')
  theirs = tokenizers.Tokenizer.from_file(path)
  theirs.add_tokens(['heparin', 'cat'])
  theirs.save(path)
  read = hugging_face.read(exported)
  assert read.report.left_over == ['added without an embedding: heparin']
  assert [x.word for x in read.tokenizer.added] == ['cat']


def test_special_tokens_need_a_row(exported):
  words = [w for w in models.VOCAB if w != '[MASK]']
  os.remove(os.path.join(exported, 'tokenizer.json'))
  with open(os.path.join(exported, 'vocab.txt'), 'w', encoding='utf-8') as f:
    f.writelines(f'{word}\n' for word in [*words, 'extra', '[MASK]'])
  with pytest.raises(errors.UserError, match='entries, the model only'):
    hugging_face.read(exported)


@pytest.mark.parametrize(
  ('name', 'left_over', 'labels'),
  [('bert-xsmall-dummy', [], 0), ('camphr_ner_bert', ['Κ', 'Λ', 'Μ'], 9)],
)
def test_real_folders_are_read(name, left_over, labels):
  pytest.importorskip('torch')
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


@pytest.mark.parametrize(
  'wrapped', ['module.', '_orig_mod.', 'module._orig_mod.', '_orig_mod.module.']
)
@pytest.mark.parametrize('file', ['model.safetensors', 'pytorch_model.bin'])
def test_what_wrappers_put_before_names_is_left_out(
  exported, monkeypatch, file, wrapped
):
  fake_torch.install(monkeypatch)
  path = os.path.join(exported, 'model.safetensors')
  tensors = safetensors.numpy.load_file(path)
  os.remove(path)
  tensors = {f'{wrapped}{name}': x for name, x in tensors.items()}
  if file.endswith('.bin'):
    fake_torch.save(os.path.join(exported, file), tensors)
  else:
    safetensors.numpy.save_file(tensors, path)
  found = hugging_face.read(exported)
  models.assert_same(found.params, models.make_params())
  assert found.report.left_over == []


def test_tensors_with_and_without_a_wrapper_are_refused(exported):
  path = os.path.join(exported, 'model.safetensors')
  tensors = safetensors.numpy.load_file(path)
  name, x = next(iter(tensors.items()))
  safetensors.numpy.save_file(tensors | {f'module.{name}': x}, path)
  with pytest.raises(errors.UserError, match='are there twice'):
    hugging_face.read(exported)
