"""Models in several files: what the index may say, and the files hold."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy

from bert_jax.interop import hf_load
from bert_jax.weight_files import safetensors_file, shard_index
from tests import models
from tests.weight_files import torch_files as t
from tests.weight_files.hostile import refusal

INDEX = 'model.safetensors.index.json'
FIRST, SECOND = 'model-00001-of-00002.st', 'model-00002-of-00002.st'


@pytest.fixture
def folder(tmp_path):
  path = str(tmp_path / 'model')
  os.mkdir(path)
  save(path, FIRST, 'a', 'b')
  save(path, SECOND, 'c')
  return path


def save(folder, file, *names):
  """Writes tensors [1], [2] ... of these names."""
  tensors = {name: np.array([ord(name) - 96.0]) for name in names}
  safetensors.numpy.save_file(tensors, os.path.join(folder, file))


def write_index(folder, value):
  with open(os.path.join(folder, INDEX), 'w') as f:
    f.write(value if isinstance(value, str) else json.dumps(value))


def read(folder, **weight_map):
  write_index(folder, {'metadata': {}, 'weight_map': weight_map})
  return shard_index.read(folder, INDEX, safetensors_file.read)


def test_tensors_of_all_files(folder):
  found = read(folder, c=SECOND, a=FIRST, b=FIRST)
  assert {k: v.tolist() for k, v in found.items()} == {
    'a': [1],
    'b': [2],
    'c': [3],
  }


def test_files_that_are_missing_or_hold_other_tensors(folder):
  def refused(**weight_map):
    return refusal(lambda: read(folder, **weight_map))

  message = refused(a=FIRST, b=FIRST, c='model-3.st')
  assert 'model-3.st does not exist, but model.safetensors.index' in message
  message = refused(a=FIRST, b=FIRST, c=SECOND, d=SECOND)
  assert f"{SECOND} lacks 'd', by {INDEX}" in message
  message = refused(a=FIRST, c=SECOND)
  assert f"{FIRST} should not have 'b'" in message
  save(folder, SECOND, 'b', 'c')
  message = refused(a=FIRST, b=FIRST, c=SECOND)
  assert f"{SECOND} should not have 'b'" in message
  message = refused(a=FIRST, b=SECOND, c=SECOND)
  assert f"{FIRST} should not have 'b'" in message


@pytest.mark.parametrize(
  'file',
  [
    *('../outside.st', '/outside.st', 'sub/x.st', './x.st', 'sub/../x.st'),
    *('..', '.', '', '~', '.hidden.st', 'x\\y.st', 'x\0.st', 'x\n.st', ' x.st'),
    *('x.st/', '\ud800.st', 'é.st', '%2e%2e', 'C:x.st', 'x' * 300, '-x'),
    *(5, None, True, 1.5, [FIRST], {FIRST: 1}, [[[[]]]]),
  ],
)
def test_names_that_are_no_plain_names(folder, file):
  save(os.path.dirname(folder), 'outside.st', 'c')
  message = refusal(lambda: read(folder, a=FIRST, b=FIRST, c=file))
  assert 'only plain names of files of its own folder' in message


def test_absolute_name_of_a_file_in_the_folder(folder):
  path = os.path.join(folder, SECOND)
  message = refusal(lambda: read(folder, a=FIRST, b=FIRST, c=path))
  assert 'only plain names' in message


def test_a_link_among_the_files_leads_nowhere_else(folder):
  os.rename(os.path.join(folder, SECOND), folder + '.outside')
  os.symlink('../model.outside', os.path.join(folder, SECOND))
  message = refusal(lambda: read(folder, a=FIRST, b=FIRST, c=SECOND))
  assert 'is a link that leads out' in message
  os.remove(os.path.join(folder, SECOND))
  os.symlink(FIRST, os.path.join(folder, SECOND))
  message = refusal(lambda: read(folder, a=FIRST, b=FIRST, c=SECOND))
  assert "lacks 'c'" in message


@pytest.mark.parametrize(
  'index',
  [
    *('', '{', '[]', '7', '"x"', 'null', '[' * 100_000, '{"a":' * 100_000),
    *('{}', '{"weight_map": 7}', '{"weight_map": []}', '{"weight_map": {}}'),
    *('{"weight_map": null}', '{"weight_map": "x"}', '9' * 5000),
    '{"weight_map": {"a": ' + '[' * 500 + ']' * 500 + '}}',
  ],
)
def test_garbage_instead_of_an_index(folder, index):
  write_index(folder, index)
  message = refusal(shard_index.read, folder, INDEX, safetensors_file.read)
  assert os.path.join(folder, INDEX) in message


def test_index_of_many_megabytes(folder):
  write_index(folder, '{}')
  os.truncate(os.path.join(folder, INDEX), 1 << 40)
  message = refusal(shard_index.read, folder, INDEX, safetensors_file.read)
  assert 'at most 8,388,608 are read' in message


def write_weights(folder, kind, tensors):
  """Writes tensors in one of the four ways; returns the files' names."""
  path = os.path.join(folder, kind)
  if kind == 'model.safetensors':
    safetensors.numpy.save_file(tensors, path)
  elif kind == 'pytorch_model.bin':
    _write_bin(path, tensors)
  else:
    single = kind.removesuffix('.index.json')
    names = sorted(tensors)
    halves = {f'0-{single}': names[::2], f'1-{single}': names[1::2]}
    for file, part in halves.items():
      path = os.path.join(folder, file)
      values = {n: tensors[n] for n in part}
      if file.endswith('.bin'):
        _write_bin(path, values)
      else:
        safetensors.numpy.save_file(values, path)
    weight_map = {n: file for file, part in halves.items() for n in part}
    with open(os.path.join(folder, kind), 'w') as f:
      json.dump({'weight_map': weight_map}, f)


def _write_bin(path, tensors):
  entries, data = {}, {}
  for i, (name, x) in enumerate(tensors.items()):
    strides = [s // x.itemsize for s in x.strides]
    stored = t.storage(str(i), x.size)
    entries[name] = t.tensor(stored, 0, x.shape, strides)
    data[str(i)] = x.tobytes()
  t.write_zip(path, t.state_dict(**entries), data)


KINDS = [
  'model.safetensors',
  'model.safetensors.index.json',
  'pytorch_model.bin',
  'pytorch_model.bin.index.json',
]


@pytest.mark.parametrize('kind', KINDS)
def test_a_folder_is_read_in_each_of_its_forms(tmp_path, kind):
  folder = models.export_to(tmp_path / 'model')
  weights = os.path.join(folder, 'model.safetensors')
  tensors = safetensors.numpy.load_file(weights)
  os.remove(weights)
  write_weights(folder, kind, tensors)
  models.assert_same(hf_load.read(folder)[0], models.make_params())


def test_safetensors_come_first_then_single_files(tmp_path):
  """Of all four forms the later ones hold other numbers, and are not read."""
  folder = models.export_to(tmp_path / 'model')
  sound = safetensors.numpy.load_file(os.path.join(folder, KINDS[0]))
  for i, kind in enumerate(KINDS):
    write_weights(folder, kind, {n: x + i for n, x in sound.items()})
  name = 'bert.embeddings.LayerNorm.bias'
  for i, kind in enumerate(KINDS):
    params = hf_load.read(folder)[0]
    found = params['embeddings']['norm']['bias']
    np.testing.assert_array_equal(found, sound[name] + i)
    os.remove(os.path.join(folder, kind))
  message = refusal(hf_load.read, folder)
  assert 'model.safetensors does not exist, nor does pytorch_model' in message
