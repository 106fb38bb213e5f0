"""Garbage beside a model's weights, files that lie elsewhere or never end."""

import json
import os
import pathlib

import pytest

from bert_jax import errors
from bert_jax.interop import hugging_face
from tests import models
from tests.weight_files.hostile import refusal


@pytest.fixture
def folder(tmp_path):
  """A folder whose tokenizer.json is needed."""
  path = models.export_to(tmp_path / 'model')
  os.remove(os.path.join(path, 'vocab.txt'))
  return path


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
