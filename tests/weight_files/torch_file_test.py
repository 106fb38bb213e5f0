"""What torch_file asks of torch, and what becomes of torch's refusals."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.interop import hugging_face
from bert_jax.runtime import memory
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


def test_the_format_before_torch_1_6_is_not_mapped(tmp_path, monkeypatch):
  """torch refuses to, as it is no zip."""
  fake_torch.install(monkeypatch)
  path = tmp_path / 'x.bin'
  path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2))
  refusal(torch_file.read, str(path))
  assert [given['mmap'] for _, given in fake_torch.calls] == [False]


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


@pytest.mark.parametrize(
  ('held', 'problem'),
  [
    ([SIX], 'not hold a state dict'),
    ({}, 'not hold a state dict'),
    ({'model': {'a': SIX}}, "its entry 'model' is not a tensor"),
    ({7: fake_torch.Tensor(SIX)}, 'its entry 7 is not a tensor'),
  ],
)
def test_what_is_no_state_dict_is_refused(tmp_path, monkeypatch, held, problem):
  fake_torch.install(monkeypatch, load=lambda path, **_: held)
  (tmp_path / 'x.bin').write_bytes(b'PK')
  assert problem in refusal(torch_file.read, str(tmp_path / 'x.bin'))


def test_files_that_cannot_be_opened_or_held_are_refused(tmp_path, monkeypatch):
  fake_torch.install(monkeypatch)
  path = str(tmp_path / 'x.bin')
  assert f'cannot read {path}: No such' in refusal(torch_file.read, path)
  pathlib.Path(path).write_bytes(b'PK\3\4' * 5)
  monkeypatch.setattr(memory, 'count_bytes', lambda: 19)
  assert 'bytes of memory' in refusal(torch_file.read, path)
  assert not fake_torch.calls


def test_without_torch_one_line_says_what_to_do(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'torch', None)  # as if it were absent
  folder = models.export_to(tmp_path / 'model')
  os.rename(f'{folder}/model.safetensors', f'{folder}/pytorch_model.bin')
  message = refusal(hugging_face.read, folder)
  assert f'{folder}/pytorch_model.bin is read by torch: ' in message
  assert 'pip install torch, or convert it to model.safetensors' in message


def test_torch_is_not_imported_for_safetensors(tmp_path):
  folder = models.export_to(tmp_path / 'model')
  (tmp_path / 'torch.py').write_text('raise SystemExit("imported")')
  program = (
    'from bert_jax.interop import hugging_face\n'
    f'hugging_face.read({folder!r})\nimport torch'
  )
  root = pathlib.Path(__file__).parents[2]
  result = subprocess.run(
    [sys.executable, '-c', program],
    capture_output=True,
    encoding='utf-8',
    env=os.environ | {'PYTHONPATH': f'{tmp_path}:{root}'},
  )
  assert result.stderr == 'imported\n'


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
