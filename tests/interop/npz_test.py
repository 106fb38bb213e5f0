"""One .npz file, in and out."""

import dataclasses
import json
import os
import pathlib
import zipfile

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.config import recipes
from bert_jax.interop import npz, rename
from tests import models


@pytest.fixture
def path(tmp_path):
  path = str(tmp_path / 'model.npz')
  npz.write(path, models.make_params(), models.CONFIG, models.TOKENIZER)
  return path


def arrays_of(path):
  with np.load(path, allow_pickle=False) as file:
    return dict(file)


def rewrite(path, change):
  """Writes the arrays again as `change` returns them."""
  np.savez(path, **change(arrays_of(path)))


def about(**values):
  """Returns a change of what the file says about itself; `...` removes."""

  def change(arrays):
    found = json.loads(arrays['about'].tobytes()) | values
    found = {name: x for name, x in found.items() if x is not ...}
    arrays['about'] = np.frombuffer(json.dumps(found).encode(), np.uint8)
    return arrays

  return change


def model(**values):
  return about(model=dataclasses.asdict(models.CONFIG) | values)


def test_every_profile_can_be_read_back(path):
  for name in recipes.PROFILES:
    value = recipes.get_profile(name)['model.mask_value']
    config = dataclasses.replace(models.CONFIG, mask_value=value)
    npz.write(path, models.make_params(), config, models.TOKENIZER)
    assert npz.read(path).config.mask_value == value


@pytest.mark.parametrize(
  ('norm', 'heads'),
  [
    ('post', ('mlm', 'pooler', 'nsp')),
    ('post', ('mlm',)),
    ('pre', ('pooler',)),
    ('pre', ()),
  ],
)
def test_read_of_write_is_the_same(tmp_path, norm, heads):
  config = dataclasses.replace(models.CONFIG, norm=norm, activation='relu')
  params = rename.keep_parts(models.make_params(config), heads)
  path = str(tmp_path / 'new' / 'model.npz')
  npz.write(path, params, config, models.TOKENIZER)
  read, found, tokenizer, report, *_ = npz.read(path)
  models.assert_same(read, params)
  assert found == config
  assert tokenizer == models.TOKENIZER
  assert len(report.missing) == 9 - sum(
    {'mlm': 5, 'pooler': 2, 'nsp': 2}[head] for head in heads
  )
  assert os.listdir(tmp_path / 'new') == ['model.npz']


@pytest.mark.parametrize('strip_accents', [True, False])
def test_accents_are_said(path, strip_accents):
  tokenizer = dataclasses.replace(models.TOKENIZER, strip_accents=strip_accents)
  npz.write(path, models.make_params(), models.CONFIG, tokenizer)
  assert npz.read(path).tokenizer == tokenizer


def test_numpy_opens_it_by_our_names(path):
  arrays = arrays_of(path)
  kernel = models.make_params()['encoder']['layer_1']['mlp_in']['kernel']
  assert (arrays['encoder/layer_1/mlp_in/kernel'] == kernel).all()
  found = json.loads(arrays['about'].tobytes())
  assert found['format'] == 'bert_jax 1' and found['lowercase'] is True
  assert found['vocab'][8:] == ['##s', 'é', 'e']
  assert found['model']['hidden_size'] == 8


def test_a_new_file_replaces_the_old_or_leaves_it(path, monkeypatch):
  new = models.make_params(seed=5)

  def fail(*args, **kwargs):
    raise OSError(28, 'No space left on device')

  with monkeypatch.context() as m:
    m.setattr(np, 'savez', fail)
    with pytest.raises(errors.UserError, match='No space left'):
      npz.write(path, new, models.CONFIG, models.TOKENIZER)
  models.assert_same(npz.read(path).params, models.make_params())
  npz.write(path, new, models.CONFIG, models.TOKENIZER)
  models.assert_same(npz.read(path).params, new)
  assert os.listdir(os.path.dirname(path)) == ['model.npz']
  with pytest.raises(errors.UserError, match='does not end in .npz'):
    npz.write(path[:-4], new, models.CONFIG, models.TOKENIZER)


def without(*names):
  return lambda arrays: {k: x for k, x in arrays.items() if k not in names}


def with_array(name, value):
  return lambda arrays: arrays | {name: value}


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (without('about'), 'Expecting value'),
    (with_array('about', np.uint8([0xFF])), "can't decode byte 0xff"),
    (about(format='bert_jax 2'), "format is not 'bert_jax 1'"),
    (about(model=7), 'not iterable'),
    (model(hidden=8), 'unknown fields hidden'),
    (model(hidden_size='8'), "hidden_size is '8'"),
    (model(hidden_size=0), 'hidden_size is 0'),
    (model(mlp_size=1 << 60), 'mlp_size is 1152921504606846976'),
    (model(num_layers=True), 'num_layers is True'),
    (model(num_layers=3), 'not have 3 layers'),
    (model(num_layers=1 << 24), 'not 1000 or less'),
    (model(num_heads=3), 'a multiple of 3 heads'),
    (model(dropout=float('inf')), 'dropout is inf'),
    (model(activation='eval'), "activation is 'eval'"),
    (model(norm=['post']), r"norm is \['post'\]"),
    (model(causal=1), 'causal is 1'),
    (model(vocab_size=12), r'\(11,.*not \(12,'),
    (about(lowercase=None), 'lowercase is None'),
    (about(strip_accents=...), "writes: 'strip_accents'; convert it again"),
    (about(vocab='the'), 'not a list of words'),
    (about(vocab=['the', 'the']), "holds 'the' in lines 1 and 2"),
    (without('mlm/bias'), 'lacks mlm/bias'),
    (without('embeddings/norm/bias'), 'lacks embeddings/norm/bias'),
    (with_array('mlm/bias', np.zeros(11)), "'mlm/bias' is float64"),
    (with_array('mlm/bias', np.zeros(10, np.float32)), r'\(10,\), not \(11,\)'),
    (with_array('mlm/bias', np.array([None])), "'mlm/bias' is object"),
    (with_array('line\nbreak', np.zeros(1, np.float32)), r'line\\nbreak'),
  ],
)
def test_content_that_cannot_be_is_one_clear_error(path, change, message):
  rewrite(path, change)
  with pytest.raises(errors.UserError, match=message) as error:
    npz.read(path)
  assert path in str(error.value) and '\n' not in str(error.value)


def entry(text, data=b'\0' * 44):
  """Returns a .npy file with a header of our choice."""
  header = text.encode().ljust(117) + b'\n'
  return b'\x93NUMPY\1\0' + len(header).to_bytes(2, 'little') + header + data


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (entry(HEADER % '(1 << 60,)'), 'not cut|[Cc]annot parse|malformed|Invalid'),
    (entry(HEADER % '(1152921504606846976,)'), 'of 44 bytes'),
    (entry(HEADER % '(-11,)'), 'of 44 bytes'),
    (entry(HEADER % '(12,)'), 'of 44 bytes'),
    (entry(HEADER.replace('<f4', '|O') % '(11,)'), 'is object'),
    (entry("__import__('os').getcwd()"), 'malformed'),
    (b'\x93NUMPY\2\0', 'cut|EOF|expected|header'),
    (b'\x80\x04N.', 'magic|EOF|expected'),
  ],
)
def test_an_array_that_cannot_be_is_one_clear_error(path, content, message):
  with zipfile.ZipFile(path, 'a') as archive:
    archive.writestr('broken.npy', content)
  with pytest.raises(errors.UserError, match=message) as error:
    npz.read(path)
  assert '\n' not in str(error.value)


def test_damage_to_the_file_is_one_clear_error(path):
  data = pathlib.Path(path).read_bytes()
  at = data.index(models.make_params()['mlm']['bias'].tobytes())
  cuts = [b'', data[:100], data[: len(data) // 2], data[:-1], data[30:]]
  flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
  for broken in (*cuts, flipped, b'PK\3\4' + b'\xff' * 100):
    pathlib.Path(path).write_bytes(broken)
    with pytest.raises(errors.UserError) as error:
      npz.read(path)
    assert path in str(error.value) and '\n' not in str(error.value)
  with pytest.raises(errors.UserError, match='No such file'):
    npz.read(path + 'x')


def test_what_could_stand_for_more_bytes_is_refused(path):
  arrays = {'about': np.zeros(1 << 20, np.uint8)}
  np.savez_compressed(path, **arrays)
  with pytest.raises(errors.UserError, match='is compressed or encrypted'):
    npz.read(path)
