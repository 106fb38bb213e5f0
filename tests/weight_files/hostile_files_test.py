"""Nothing in a foreign file runs or ends in a traceback.

What the readers refuse in their own formats is tested beside each of them.
"""

import collections
import os
import pathlib
import pickle
import random
import subprocess

import numpy as np
import pytest
import safetensors.numpy

from bert_jax import errors
from bert_jax.interop import hugging_face
from bert_jax.weight_files import safetensors_file, torch_bin
from tests import models
from tests.weight_files import torch_files as t
from tests.weight_files.hostile import refusal

SIX = np.arange(6, dtype='<f4').tobytes()


class Calls:
  """Calls a function when it is unpickled."""

  def __init__(self, function, *arguments):
    self.call = function, arguments

  def __reduce__(self):
    return self.call


class Sets:
  """Sets its state when it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __setstate__(self, state):
    touch(state['path'])


def touch(path):
  open(path, 'w').close()


def _payloads(canary):
  """Returns dict of pickles that make a file when they are loaded."""
  shell = f'touch {canary}'
  python = f'open({canary!r}, "w").close()'
  calls = {
    'os.system': Calls(os.system, shell),
    'eval': Calls(eval, python),
    'exec': Calls(exec, python),
    'open': Calls(open, canary, 'w'),
    'subprocess': Calls(subprocess.call, ['touch', canary]),
    'numpy': Calls(np.save, canary, 7),
    'a function of a module beside': Calls(touch, canary),
  }
  system = calls['os.system']
  values = {
    **calls,
    'in a tuple': (1, (2, system)),
    'in a list': [[system]],
    'in a dict': {'a': {'b': system}},
    'in an ordered dict': collections.OrderedDict(a=system),
    'as what a call is given': Calls(dict, [('a', system)]),
    'as what an attribute is taken of': Calls(getattr, system, 'real'),
    '__setstate__': Sets(canary),
  }
  payloads = {
    f'{what}, protocol {protocol}': pickle.dumps(value, protocol)
    for what, value in values.items()
    for protocol in (0, 2, 4)
  }
  line = f"S'{shell}'\n".encode()
  system = t.call('os.system', t.text(shell))
  state = b'}' + t.text('_metadata') + system + b's'
  short = b'\x8c\2os\x8c\6system\x93(' + t.text(shell) + b'tR'
  return payloads | {
    'INST': t.START + b'(' + line + b'ios\nsystem\n.',
    'OBJ': t.START + b'(cos\nsystem\n' + line + b'o.',
    'STACK_GLOBAL': b'\x80\4' + short + t.STOP,
    'BUILD': t.START + t.EMPTY + state + b'b' + t.STOP,
  }


NAMES = list(_payloads('x'))


def _places(path, payload):
  """Writes a pickle where one may stand, and yields once for each place."""
  pathlib.Path(path).write_bytes(payload)
  yield
  t.write_zip(path, payload, {'0': SIX})
  yield
  for part in ('magic', 'version', 'machine', 'pickle', 'keys'):
    sound = t.state_dict(a=t.tensor())
    t.write_legacy(path, **{'pickle': sound, 'storages': {}, part: payload})
    yield
  inner = payload.removesuffix(t.STOP)
  for value in (
    inner,
    t.tensor() + inner + b'b',
    t.tensor(inner),
    t.tensor(inner + b'Q'),
    t.tensor().replace(t.EMPTY, inner),  # backward hooks
    t.call('torch._utils._rebuild_parameter', t.tensor(), t.FALSE, inner),
  ):
    t.write_zip(path, t.state_dict(a=value), {'0': SIX})
    yield


@pytest.mark.parametrize('name', NAMES)
def test_harmful_pickles_do_not_run_wherever_they_stand(tmp_path, name):
  (tmp_path / 'a').mkdir()
  (tmp_path / 'b').mkdir()
  canary = str(tmp_path / 'a' / 'canary.npy')
  loaded = pickle.loads(_payloads(canary)[name])
  assert os.path.exists(canary)
  if 'open' in name:
    loaded.close()
  canary, path = str(tmp_path / 'b' / 'canary.npy'), str(tmp_path / 'b/x.bin')
  places = 0
  for _ in _places(path, _payloads(canary)[name]):
    assert path in refusal(torch_bin.read, path)
    places += 1
  assert places == 13
  assert os.listdir(tmp_path / 'b') == ['x.bin']


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('os.system, protocol 0', 'has the opcode PUT, which'),
    ('os.system, protocol 2', "asks for 'posix.system', which"),
    ('os.system, protocol 4', "asks for 'posix.system', which"),
    ('eval, protocol 2', "asks for '__builtin__.eval', which"),
    ('eval, protocol 4', "asks for 'builtins.eval', which"),
    ('subprocess, protocol 4', "asks for 'subprocess.call', which"),
    ('STACK_GLOBAL', "asks for 'os.system', which"),
    ('BUILD', "asks for 'os.system', which"),
    ('OBJ', 'has the opcode STRING, which'),
  ],
)
def test_the_refused_global_or_opcode_is_named(tmp_path, name, message):
  path = t.write_zip(tmp_path / 'x.bin', _payloads('x')[name], {})
  assert message in refusal(torch_bin.read, path)


def test_a_name_with_a_line_break_is_shown_in_one_line(tmp_path):
  pickle_ = t.START + t.text('o\ns') + t.text('\r\x1b[2J') + b'\x93.'
  path = t.write_zip(tmp_path / 'x.bin', pickle_, {})
  assert r"'o\ns.\r\x1b[2J'" in refusal(torch_bin.read, path)
  name = 'a\nb'
  folder = models.export_to(tmp_path / 'model')
  os.remove(os.path.join(folder, 'model.safetensors'))
  path = os.path.join(folder, 'pytorch_model.bin')
  t.write_zip(path, t.state_dict(**{name: t.tensor()}), {'0': SIX})
  assert r"'a\nb' is not the name" in refusal(hugging_face.read, folder)


@pytest.mark.parametrize('kind', ['zip', 'legacy', 'safetensors'])
def test_five_hundred_damaged_files_are_read_or_refused(tmp_path, kind):
  path = str(tmp_path / 'x')
  read = torch_bin.read
  pickle_ = t.state_dict(a=t.tensor(), b=t.tensor(t.storage('1')))
  if kind == 'zip':
    t.write_zip(path, pickle_, {'0': SIX, '1': SIX})
  elif kind == 'legacy':
    t.write_legacy(path, pickle_, {'0': SIX, '1': SIX})
  else:
    safetensors.numpy.save_file({'a': np.ones((2, 3)), 'b': np.ones(2)}, path)
    read = safetensors_file.read
  sound = pathlib.Path(path).read_bytes()
  rng = random.Random(7)
  refused = 0
  for _ in range(500):
    damaged = bytearray(sound)
    for _ in range(rng.randrange(1, 4)):
      i, j, n = (rng.randrange(len(damaged)) for _ in range(3))
      what = rng.choice([b'', b'\0', b'\xff', b'.', damaged[j : j + n % 30]])
      damaged[i : i + rng.choice([1, 1, len(what)])] = what
    pathlib.Path(path).write_bytes(damaged)
    try:
      read(path)
    except errors.UserError as error:
      assert '\n' not in str(error)
      refused += 1
  assert 400 < refused < 500
