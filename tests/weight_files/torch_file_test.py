"""What torch_file asks of torch, and what becomes of torch's refusals."""

import os
import pickle
import sys

import numpy as np
import pytest

from bert_jax.interop import hugging_face
from bert_jax.weight_files import torch_file
from tests import models
from tests.weight_files import fake_torch
from tests.weight_files.hostile import refusal

SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_torch_reads_a_file_without_its_code(tmp_path, monkeypatch):
  fake_torch.install(monkeypatch)
  path = str(tmp_path / 'x.bin')
  fake_torch.save(path, {'a': SIX, 'b.c': SIX[0]})
  found = torch_file.read(path)
  assert {name: x.tolist() for name, x in found.items()} == {
    'a': [[0, 1, 2], [3, 4, 5]],
    'b.c': [0, 1, 2],
  }
  asked = {'weights_only': True, 'map_location': 'cpu', 'mmap': True}
  assert fake_torch.calls == [(path, asked)]


def test_bfloat16_becomes_float32(tmp_path, monkeypatch):
  brain = fake_torch.Tensor(SIX, fake_torch.bfloat16)
  fake_torch.install(monkeypatch, load=lambda path, **_: {'a': brain})
  (tmp_path / 'x.bin').write_bytes(b'PK')
  found = torch_file.read(str(tmp_path / 'x.bin'))
  np.testing.assert_array_equal(found['a'], SIX)


HOW_TO_TRUST = (
  'Weights only load failed. This file can still be loaded.\n\t(1) Use '
  'weights_only=False.\n\tWeightsUnpickler error: Unsupported global: os.system'
  '\n\nCheck the documentation of torch.load'
)


@pytest.mark.parametrize(
  ('error', 'shown'),
  [
    (
      pickle.UnpicklingError(HOW_TO_TRUST),
      ': Unsupported global: os.system; copy it again',
    ),
    (
      RuntimeError('PytorchStreamReader failed: no central\ndirectory'),
      ': PytorchStreamReader failed: no central; copy it again',
    ),
    (EOFError(), ': EOFError; copy it again, or save model.state_dict() alone'),
  ],
)
def test_a_refusal_of_torch_is_one_line(tmp_path, monkeypatch, error, shown):
  def load(path, **_):
    raise error

  fake_torch.install(monkeypatch, load=load)
  path = tmp_path / 'x.bin'
  path.write_bytes(b'PK')
  message = refusal(torch_file.read, str(path))
  assert f'cannot read {path}{shown}' in message


@pytest.mark.parametrize('held', [[SIX], {'model': {'a': SIX}}])
def test_what_is_no_state_dict_is_refused(tmp_path, monkeypatch, held):
  fake_torch.install(monkeypatch, load=lambda path, **_: held)
  (tmp_path / 'x.bin').write_bytes(b'PK')
  message = refusal(torch_file.read, str(tmp_path / 'x.bin'))
  assert 'or save model.state_dict() alone' in message


def test_without_torch_one_line_says_what_to_do(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'torch', None)  # as if it were absent
  folder = models.export_to(tmp_path / 'model')
  os.rename(f'{folder}/model.safetensors', f'{folder}/pytorch_model.bin')
  message = refusal(hugging_face.read, folder)
  assert f'{folder}/pytorch_model.bin is read by torch: ' in message
  assert 'pip install torch, or convert it to model.safetensors' in message


class Calls:
  """Makes a file when it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return open, (self.path, 'w')


@pytest.mark.filterwarnings('default')  # torch's
def test_files_of_torch_itself_are_read_or_refused(tmp_path):
  torch = pytest.importorskip('torch')
  tensor = torch.tensor(SIX)
  tensors = {
    'a': tensor,
    'transposed': tensor.T,
    'half': tensor.half(),
    'brain': tensor.bfloat16(),
    'parameter': torch.nn.Parameter(tensor),
  }
  path = str(tmp_path / 'x.bin')
  for zipped in (True, False):
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    found = torch_file.read(path)
    assert found['half'].dtype == np.float16
    assert found['brain'].dtype == np.float32
    for name, x in found.items():
      expected = SIX.T if name == 'transposed' else SIX
      np.testing.assert_array_equal(x, expected)
    canary = tmp_path / 'canary'
    harmful = {'a': Calls(str(canary))}
    torch.save(harmful, path, _use_new_zipfile_serialization=zipped)
    refusal(torch_file.read, path)
    assert not canary.exists()
