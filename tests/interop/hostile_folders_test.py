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

NO_JSON = [b'', b'{', b'\xff', b'[' * 100_000, b'null', b'7', b'9' * 5000]


@pytest.fixture
def folder(tmp_path):
  """A folder whose tokenizer.json is needed."""
  path = models.export_to(tmp_path / 'model')
  os.remove(os.path.join(path, 'vocab.txt'))
  return path


@pytest.mark.parametrize(
  'name', ['config.json', 'tokenizer_config.json', 'tokenizer.json']
)
def test_garbage_instead_of_json(folder, name):
  path = os.path.join(folder, name)
  for content in NO_JSON:
    pathlib.Path(path).write_bytes(content)
    assert path in refusal(hugging_face.read, folder)


def test_garbage_within_config_json(folder):
  path = pathlib.Path(folder, 'config.json')
  sound = json.loads(path.read_text())
  for key in ('hidden_size', 'layer_norm_eps', 'model_type', 'hidden_act'):
    for value in (None, [], {}, '\n', -1, float('nan'), 10**30, 10**4000):
      path.write_text(json.dumps(sound | {key: value}))
      refusal(hugging_face.read, folder)


@pytest.mark.parametrize(
  ('name', 'key'),
  [
    ('tokenizer_config.json', 'added_tokens_decoder'),
    ('tokenizer_config.json', 'extra_special_tokens'),
    ('special_tokens_map.json', 'unk_token'),
    ('added_tokens.json', 'new'),
  ],
)
def test_garbage_among_added_words_is_refused_or_means_nothing(
  folder, name, key
):
  path = pathlib.Path(folder, name)
  for value in [-1, 1e300, [[]], {'1': {}}, {'x': {}}, '\n', True]:
    path.write_text(json.dumps({key: value}))
    try:
      assert hugging_face.read(folder).tokenizer.size == 11
    except errors.UserError as error:
      assert folder in str(error) and '\n' not in str(error)


FILES = [
  *('tokenizer.json', 'added_tokens.json', 'model.safetensors'),
  'pytorch_model.bin.index.json',
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


def test_a_name_with_a_line_break_is_shown_in_one_line(tmp_path):
  folder = models.export_to(tmp_path / 'model')
  path = os.path.join(folder, 'model.safetensors')
  tensors = safetensors.numpy.load_file(path)
  safetensors.numpy.save_file(tensors | {'a\nb': np.zeros(1)}, path)
  assert r"'a\nb' is not the name" in refusal(hugging_face.read, folder)
