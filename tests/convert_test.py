"""Names, shapes and files of bert_jax.convert; no torch is needed."""

import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import tokenizers

from bert_jax import convert, errors, heads, model
from bert_jax import tokenizer as tokenizer_lib

# Sizes that differ, so that mix-ups fail: K = 4.
CONFIG = model.BertConfig(
  vocab_size=11,
  hidden_size=8,
  num_layers=2,
  num_heads=2,
  mlp_size=12,
  max_positions=7,
  type_vocab_size=3,
)
VOCAB = '[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s é e'.split()


def make_params(config=CONFIG, with_nsp=True, first=0):
  """Returns parameters that are all different: first, first + 1, ..."""
  x = jnp.zeros((1, 5), jnp.int32)
  names = 'input_ids', 'input_mask', 'segment_ids', 'masked_lm_positions'
  shapes = jax.eval_shape(
    heads.PretrainingModel(config, with_nsp).init,
    jax.random.key(0),
    dict.fromkeys(names, x),
  )['params']
  leaves, tree = jax.tree.flatten(shapes)
  starts = np.cumsum([first] + [leaf.size for leaf in leaves])
  return tree.unflatten(
    [
      np.arange(start, start + leaf.size, dtype=np.float32).reshape(leaf.shape)
      for start, leaf in zip(starts, leaves, strict=False)
    ]
  )


@pytest.fixture
def tokenizer():
  return tokenizer_lib.Tokenizer(tuple(VOCAB), lowercase=True)


@pytest.fixture
def exported(tmp_path, tokenizer):
  path = str(tmp_path / 'model')
  convert.export(path, make_params(), CONFIG, True, tokenizer)
  return path


def edit_json(path, **values):
  with open(path, encoding='utf-8') as f:
    value = json.load(f)
  with open(path, 'w', encoding='utf-8') as f:
    json.dump(value | values, f)


def assert_same(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def test_names_are_those_of_hugging_face():
  config = dataclasses.replace(CONFIG, num_layers=1)
  tensors = convert.to_hf(make_params(config), config, True)
  layer = 'bert.encoder.layer.0.'
  assert {name: tensor.shape for name, tensor in tensors.items()} == {
    'bert.embeddings.word_embeddings.weight': (11, 8),
    'bert.embeddings.position_embeddings.weight': (7, 8),
    'bert.embeddings.token_type_embeddings.weight': (3, 8),
    'bert.embeddings.LayerNorm.weight': (8,),
    'bert.embeddings.LayerNorm.bias': (8,),
    layer + 'attention.self.query.weight': (8, 8),
    layer + 'attention.self.query.bias': (8,),
    layer + 'attention.self.key.weight': (8, 8),
    layer + 'attention.self.key.bias': (8,),
    layer + 'attention.self.value.weight': (8, 8),
    layer + 'attention.self.value.bias': (8,),
    layer + 'attention.output.dense.weight': (8, 8),
    layer + 'attention.output.dense.bias': (8,),
    layer + 'attention.output.LayerNorm.weight': (8,),
    layer + 'attention.output.LayerNorm.bias': (8,),
    layer + 'intermediate.dense.weight': (12, 8),
    layer + 'intermediate.dense.bias': (12,),
    layer + 'output.dense.weight': (8, 12),
    layer + 'output.dense.bias': (8,),
    layer + 'output.LayerNorm.weight': (8,),
    layer + 'output.LayerNorm.bias': (8,),
    'bert.pooler.dense.weight': (8, 8),
    'bert.pooler.dense.bias': (8,),
    'cls.predictions.bias': (11,),
    'cls.predictions.transform.dense.weight': (8, 8),
    'cls.predictions.transform.dense.bias': (8,),
    'cls.predictions.transform.LayerNorm.weight': (8,),
    'cls.predictions.transform.LayerNorm.bias': (8,),
    'cls.seq_relationship.weight': (2, 8),
    'cls.seq_relationship.bias': (2,),
  }


def test_kernels_are_turned_and_heads_are_joined():
  params = make_params()
  tensors = convert.to_hf(params, CONFIG, True)
  ours = params['encoder']['layer_1']
  qkv, out = ours['attention']['qkv'], ours['attention']['out']
  theirs = 'bert.encoder.layer.1.'
  # Output 6 is head 1, place 2: heads have 4 places.
  for j, part in enumerate(('query', 'key', 'value')):
    name = f'{theirs}attention.self.{part}.'
    assert tensors[name + 'weight'][6, 5] == qkv['kernel'][5, j, 1, 2]
    assert tensors[name + 'bias'][6] == qkv['bias'][j, 1, 2]
  weight = tensors[theirs + 'attention.output.dense.weight']
  assert weight[3, 6] == out['kernel'][1, 2, 3]
  weight = tensors[theirs + 'intermediate.dense.weight']
  assert weight[10, 3] == ours['mlp_in']['kernel'][3, 10]
  weight = tensors['cls.predictions.transform.dense.weight']
  assert weight[1, 2] == params['mlm']['transform']['kernel'][2, 1]
  weight = tensors['cls.seq_relationship.weight']
  assert weight[1, 2] == params['nsp']['kernel'][2, 1]
  weight = tensors['bert.embeddings.word_embeddings.weight']
  assert weight[9, 3] == params['embeddings']['word']['embedding'][9, 3]


@pytest.mark.parametrize('with_nsp', [True, False])
@pytest.mark.parametrize('activation', list(model.ACTIVATIONS))
def test_load_of_export_is_the_same(tmp_path, tokenizer, with_nsp, activation):
  config = dataclasses.replace(
    CONFIG, activation=activation, causal=not with_nsp, attention_dropout=0.25
  )
  params = make_params(config, with_nsp)
  path = str(tmp_path / 'runs' / 'model')
  convert.export(path, params, config, with_nsp, tokenizer)
  loaded = convert.load(path)
  assert_same(loaded[0], params)
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(loaded[0]))
  assert loaded[1:3] == (config, with_nsp)
  assert (loaded[3].vocab, loaded[3].lowercase) == (tuple(VOCAB), True)


def test_config_json_is_golden(exported):
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
  ('changes', 'with_nsp', 'architecture', 'hidden_act', 'is_decoder'),
  [
    ({'activation': 'gelu'}, True, 'BertForPreTraining', 'gelu', False),
    ({'activation': 'relu'}, False, 'BertForMaskedLM', 'relu', False),
    ({'causal': True}, False, 'BertLMHeadModel', 'gelu_new', True),
  ],
)
def test_config_json_names_class_and_activation(
  changes, with_nsp, architecture, hidden_act, is_decoder
):
  config = dataclasses.replace(CONFIG, **changes)
  value = convert.config_json(config, with_nsp, pad_id=0)
  assert value['architectures'] == [architecture]
  assert value['hidden_act'] == hidden_act
  assert value['is_decoder'] == is_decoder


def test_weights_say_that_they_are_for_torch(exported):
  path = os.path.join(exported, 'model.safetensors')
  with safetensors.safe_open(path, framework='numpy') as f:
    assert f.metadata() == {'format': 'pt'}


@pytest.mark.parametrize('lowercase', [True, False])
def test_tokenizer_json_gives_our_ids(tmp_path, lowercase):
  ours = tokenizer_lib.Tokenizer(tuple(VOCAB), lowercase)
  path = str(tmp_path / 'model')
  convert.export(path, make_params(), CONFIG, True, ours)
  theirs = tokenizers.Tokenizer.from_file(os.path.join(path, 'tokenizer.json'))
  for text in (
    'the Cats',
    '[MASK]é É.',
    'e' + 's' * 149,
    '[mask] [SEP] dogs\x85 e',
  ):
    assert theirs.encode(text).ids == ours.encode(text)['input_ids']
  pair = theirs.encode('the cat', 'dogs')
  assert pair.ids == [2, 5, 6, 3, 7, 8, 3]
  assert pair.type_ids == [0, 0, 0, 0, 1, 1, 1]
  assert convert.load(path)[3].lowercase == lowercase
  with open(os.path.join(path, 'tokenizer_config.json'), encoding='utf-8') as f:
    assert json.load(f)['model_max_length'] == 7


def test_google_vocabulary_gives_our_ids_of_many_scripts(tmp_path):
  data = os.environ.get('BERT_JAX_TEST_DATA')
  if not data:
    pytest.skip('BERT_JAX_TEST_DATA is not set')
  vocab = os.path.join(data, 'vocab/bert-base-multilingual-cased/vocab.txt')
  ours = tokenizer_lib.Tokenizer.load(vocab, lowercase=False)
  config = dataclasses.replace(CONFIG, vocab_size=ours.size)
  convert.export(
    str(tmp_path / 'model'), make_params(config), config, True, ours
  )
  theirs = tokenizers.Tokenizer.from_file(
    str(tmp_path / 'model' / 'tokenizer.json')
  )
  with open(os.path.join(data, 'multilingual/blns.txt'), encoding='utf-8') as f:
    for line in f:
      assert theirs.encode(line).ids == ours.encode(line)['input_ids'], line


def test_vocabulary_of_tokenizer_json_serves_without_vocab_txt(exported):
  os.remove(os.path.join(exported, 'vocab.txt'))
  assert convert.load(exported)[3].vocab == tuple(VOCAB)


def test_a_new_export_replaces_the_old(exported, tokenizer, tmp_path):
  new = make_params(first=5)
  convert.export(exported, new, CONFIG, True, tokenizer)
  assert_same(convert.load(exported)[0], new)
  assert os.listdir(tmp_path) == ['model']


def test_a_failed_export_leaves_the_old(
  exported, tokenizer, tmp_path, monkeypatch
):
  def fail(path):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(convert, '_sync', fail)
  with pytest.raises(errors.UserError, match='No space left'):
    convert.export(exported, make_params(first=5), CONFIG, True, tokenizer)
  assert_same(convert.load(exported)[0], make_params())
  assert os.listdir(tmp_path) == ['model']


def test_a_failed_rename_leaves_the_old(
  exported, tokenizer, tmp_path, monkeypatch
):
  rename = os.rename

  def fail(source, target):
    if source.endswith('.new'):
      raise OSError(5, 'Input/output error')
    rename(source, target)

  monkeypatch.setattr(os, 'rename', fail)
  with pytest.raises(errors.UserError, match='Input/output'):
    convert.export(exported, make_params(first=5), CONFIG, True, tokenizer)
  assert_same(convert.load(exported)[0], make_params())
  assert os.listdir(tmp_path) == ['model']


def test_what_a_kill_left_is_taken_back(
  exported, tokenizer, tmp_path, monkeypatch
):
  # As after a kill between the two renames, with a second kill to come.
  os.rename(exported, tmp_path / '.model.old')
  (tmp_path / '.model.new').mkdir()
  (tmp_path / '.model.new' / 'config.json').write_text('{')

  def fail(*args):
    raise KeyboardInterrupt

  with monkeypatch.context() as m:
    m.setattr(convert, '_write', fail)
    with pytest.raises(KeyboardInterrupt):
      convert.export(exported, make_params(first=5), CONFIG, True, tokenizer)
  assert_same(convert.load(exported)[0], make_params())
  assert os.listdir(tmp_path) == ['model']


def test_a_folder_with_other_files_is_not_replaced(tmp_path, tokenizer):
  (tmp_path / 'thesis.tex').write_text('years of work')
  with pytest.raises(errors.UserError, match='thesis.tex'):
    convert.export(str(tmp_path), make_params(), CONFIG, True, tokenizer)
  assert (tmp_path / 'thesis.tex').read_text() == 'years of work'


def test_export_refuses_what_cannot_be_one(tmp_path, tokenizer):
  def export(path, config=CONFIG):
    convert.export(str(path), make_params(config), config, True, tokenizer)

  with pytest.raises(errors.UserError, match="norm='pre'"):
    export(tmp_path / 'x', dataclasses.replace(CONFIG, norm='pre'))
  with pytest.raises(errors.UserError, match='11 entries.*only 9'):
    export(tmp_path / 'x', dataclasses.replace(CONFIG, vocab_size=9))
  with pytest.raises(errors.UserError, match='local folder'):
    export('gs://bucket/model')
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.UserError, match='is a file'):
    export(tmp_path / 'file')
  with pytest.raises(errors.UserError, match='cannot write'):
    export(tmp_path / 'file' / 'model')
  assert os.listdir(tmp_path) == ['file']


def test_parameters_of_another_model_are_a_bug():
  with pytest.raises(ValueError, match='nsp/kernel'):
    convert.to_hf(make_params(), CONFIG, False)
  other = dataclasses.replace(CONFIG, mlp_size=16)
  with pytest.raises(ValueError, match='expected'):
    convert.to_hf(make_params(), other, True)


def test_missing_and_unexpected_names_are_both_listed():
  tensors = convert.to_hf(make_params(), CONFIG, True)
  tensors['bert.pooler.weight'] = tensors.pop('bert.pooler.dense.weight')
  tensors['extra'] = tensors.pop('cls.predictions.bias')
  with pytest.raises(
    errors.UserError,
    match='missing: bert.pooler.dense.weight, cls.predictions.bias; '
    'unexpected: bert.pooler.weight, extra',
  ):
    convert.from_hf(tensors, CONFIG, True)
  tensors = convert.to_hf(make_params(), CONFIG, True) | {'extra': np.ones(1)}
  with pytest.raises(errors.UserError, match='none; unexpected: extra'):
    convert.from_hf(tensors, CONFIG, True)


def test_old_names_tied_copies_and_buffers_are_understood():
  params = make_params(with_nsp=False)
  tensors = convert.to_hf(params, CONFIG, False)
  norm = 'bert.embeddings.LayerNorm.'
  tensors[norm + 'gamma'] = tensors.pop(norm + 'weight')
  tensors[norm + 'beta'] = tensors.pop(norm + 'bias')
  word = tensors['bert.embeddings.word_embeddings.weight']
  tensors |= {
    'bert.embeddings.position_ids': np.arange(7)[None],
    'bert.pooler.dense.weight': np.ones((8, 8), np.float32),
    'bert.pooler.dense.bias': np.ones(8, np.float32),
    'cls.predictions.decoder.bias': tensors['cls.predictions.bias'],
    'cls.predictions.decoder.weight': word.copy(),
  }
  assert_same(convert.from_hf(tensors, CONFIG, False), params)
  tensors['cls.predictions.decoder.weight'][0, 0] += 1
  with pytest.raises(errors.UserError, match='tied'):
    convert.from_hf(tensors, CONFIG, False)


def test_half_precision_is_read_as_float32():
  tensors = convert.to_hf(make_params(), CONFIG, True)
  halves = {name: x.astype(np.float16) for name, x in tensors.items()}
  kernel = convert.from_hf(halves, CONFIG, True)['pooler']['kernel']
  assert kernel.dtype == np.float32


def test_weights_of_another_shape_are_refused():
  tensors = convert.to_hf(make_params(), CONFIG, True)
  other = dataclasses.replace(CONFIG, vocab_size=12)
  with pytest.raises(errors.UserError, match=r'\(11, 8\).*\(12, 8\)'):
    convert.from_hf(tensors, other, True)


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'hidden_act': 'silu'}, "hidden_act is 'silu', not one of gelu"),
    ({'hidden_act': ['gelu']}, 'hidden_act'),
    ({'model_type': 'roberta'}, "model_type is 'roberta'"),
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
  edit_json(os.path.join(exported, 'config.json'), **values)
  with pytest.raises(errors.UserError, match=message):
    convert.load(exported)


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
    ('tokenizer_config.json', b'{"strip_accents": false}', 'strip_accents'),
    ('tokenizer.json', b'7', 'holds a int'),
    ('vocab.txt', b'the\n', 'lacks'),
  ],
)
def test_a_broken_folder_is_one_clear_error(exported, name, content, message):
  path = os.path.join(exported, name)
  os.remove(path)
  if content is not None:
    with open(path, 'wb') as f:
      f.write(content)
  with pytest.raises(errors.UserError, match=message) as error:
    convert.load(exported)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    ('{"model": {"vocab": {"a": 0, "b": 2}}}', 'ids 0, 1, 2'),
    ('{"model": {"vocab": [["a", 0.5]]}}', 'ids 0, 1, 2'),
    ('{"model": {"vocab": {"[PAD]": 0}}}', r'lacks \[UNK\]'),
    ('{"model": 5, "normalizer": null}', 'ids 0, 1, 2'),
  ],
)
def test_a_broken_tokenizer_json_is_one_clear_error(exported, content, message):
  os.remove(os.path.join(exported, 'vocab.txt'))
  with open(os.path.join(exported, 'tokenizer.json'), 'w') as f:
    f.write(content)
  with pytest.raises(errors.UserError, match=message):
    convert.load(exported)


def test_pickles_are_not_read(tmp_path):
  config = convert.config_json(CONFIG, with_nsp=True, pad_id=0)
  (tmp_path / 'config.json').write_text(json.dumps(config))
  (tmp_path / 'pytorch_model.bin').write_bytes(b'cos\nsystem\n')
  with pytest.raises(errors.UserError, match='can run code'):
    convert.load(str(tmp_path))
  with pytest.raises(errors.UserError, match='is not a folder'):
    convert.load(str(tmp_path / 'absent'))
