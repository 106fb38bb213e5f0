"""Garbage beside a model's weights, files that lie elsewhere or never end."""

import json
import os
import pathlib

import numpy as np
import pytest
import safetensors.numpy

from bert_jax import errors
from bert_jax.interop import hugging_face
from tests import models
from tests.weight_files.hostile import refusal

DEEP = [b'[' * n + b']' * n for n in (500, 900, 990, 100_000)]
NO_JSON = [b'', b'{', b'\xff', bytes(99), b'[' * 100_000, b'{"a":' * 100_000]
NO_OBJECT = [b'null', b'[]', b'7', b'"x"', b'NaN', b'9' * 5000, *DEEP]


@pytest.fixture
def folder(tmp_path):
  """A folder whose tokenizer.json is needed."""
  path = models.export_to(tmp_path / 'model')
  os.remove(os.path.join(path, 'vocab.txt'))
  hugging_face.read(path)
  return path


@pytest.mark.parametrize(
  'name', ['config.json', 'tokenizer_config.json', 'tokenizer.json']
)
def test_garbage_instead_of_json(folder, name):
  path = os.path.join(folder, name)
  for content in NO_JSON + NO_OBJECT:
    pathlib.Path(path).write_bytes(content)
    assert path in refusal(hugging_face.read, folder)


def test_garbage_within_config_json(folder):
  path = os.path.join(folder, 'config.json')
  with open(path, 'rb') as f:
    sound = json.load(f)
  sizes = [key for key, value in sound.items() if type(value) is int]
  sizes.remove('pad_token_id')
  assert len(sizes) == 7
  rates = [key for key, value in sound.items() if type(value) is float]
  assert len(rates) == 4
  nothing = [b'null', b'[]', b'{}', b'""', b'"\\n"', b'1e999', b'-1', b'NaN']
  huge = [b'9' * 4000, b'9' * 5000, b'1' + b'0' * 30]
  texts = ['model_type', 'hidden_act', 'position_embedding_type', 'is_decoder']
  for keys, values in (
    (sizes, nothing + huge + DEEP + [b'0', b'1.5', b'"7"', b'true']),
    (rates, nothing + huge + DEEP + [b'1.5', b'true']),
    (texts, nothing + huge + DEEP),
  ):
    for key in keys:
      rest = json.dumps({k: v for k, v in sound.items() if k != key}).encode()
      for value in values:
        pathlib.Path(path).write_bytes(
          b'{"%s": %s, %s' % (key.encode(), value, rest[1:])
        )
        refusal(hugging_face.read, folder)


def test_garbage_within_tokenizer_files(folder):
  for name, key in (
    ('tokenizer_config.json', b'do_lower_case'),
    ('tokenizer_config.json', b'strip_accents'),
    ('tokenizer.json', b'model'),
  ):
    path = os.path.join(folder, name)
    sound = pathlib.Path(path).read_bytes()
    for value in [b'7', b'[]', b'{}', b'"\\n"', b'9' * 4000, *DEEP]:
      pathlib.Path(path).write_bytes(b'{"%s": %s}' % (key, value))
      refusal(hugging_face.read, folder)
    pathlib.Path(path).write_bytes(sound)
  path = os.path.join(folder, 'tokenizer.json')
  for ids in ('[0]', '7', '{"a": 1e9}', '{"a": -1}', '{"a": 9, "b": 9}'):
    with open(path, 'w') as f:
      f.write(f'{{"model": {{"vocab": {ids}}}}}')
    assert path in refusal(hugging_face.read, folder)


@pytest.mark.parametrize(
  ('name', 'key'),
  [
    ('tokenizer_config.json', 'added_tokens_decoder'),
    ('tokenizer_config.json', 'never_split'),
    ('tokenizer_config.json', 'tokenizer_class'),
    ('tokenizer_config.json', 'extra_special_tokens'),
    ('tokenizer_config.json', 'auto_map'),
    ('special_tokens_map.json', 'unk_token'),
    ('added_tokens.json', 'the'),
    ('added_tokens.json', 'new'),
  ],
)
def test_garbage_among_added_words_is_refused_or_means_nothing(
  folder, name, key
):
  path = pathlib.Path(folder, name)
  for value in [7, -1, 1e300, [], {}, [[]], {'1': {}}, {'x': {}}, '\n', True]:
    path.write_text(json.dumps({key: value}))
    try:
      assert hugging_face.read(folder).tokenizer.size == 11
    except errors.UserError as error:
      assert folder in str(error) and '\n' not in str(error)


FILES = [
  *('config.json', 'tokenizer_config.json', 'tokenizer.json', 'vocab.txt'),
  *('special_tokens_map.json', 'added_tokens.json'),
  *('model.safetensors', 'pytorch_model.bin'),
  *('model.safetensors.index.json', 'pytorch_model.bin.index.json'),
]


@pytest.mark.parametrize('name', FILES)
def test_files_that_lie_elsewhere_or_never_end(tmp_path, name):
  folder = models.export_to(tmp_path / 'model')
  weights = os.path.join(folder, 'model.safetensors')
  path = os.path.join(folder, name)
  if name not in os.listdir(folder):
    os.remove(weights)
    open(path, 'w').close()
  outside = str(tmp_path / 'outside')
  os.rename(path, outside)
  os.symlink(outside, path)
  assert 'is a link that leads out' in refusal(hugging_face.read, folder)
  os.remove(path)
  os.mkfifo(path)
  assert 'is not a regular file' in refusal(hugging_face.read, folder)
  os.remove(path)
  os.mkdir(path)
  assert 'is not a regular file' in refusal(hugging_face.read, folder)
  os.rmdir(path)
  open(path, 'w').close()
  os.truncate(path, 1 << 40)  # sparse: it takes no place on the disk
  assert path in refusal(hugging_face.read, folder)


def test_a_name_with_a_line_break_is_shown_in_one_line(tmp_path):
  folder = models.export_to(tmp_path / 'model')
  path = os.path.join(folder, 'model.safetensors')
  tensors = safetensors.numpy.load_file(path)
  safetensors.numpy.save_file(tensors | {'a\nb': np.zeros(1)}, path)
  assert r"'a\nb' is not the name" in refusal(hugging_face.read, folder)
