"""Models as StableHLO."""

import builtins
import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import convert, errors
from bert_jax.interop import stablehlo
from bert_jax.model import heads
from tests import commands, models
from tests.model import precision_test

pytest.importorskip('flatbuffers')

CONFIG = models.CONFIG


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  path = str(tmp_path_factory.mktemp('stablehlo') / 'model.stablehlo')
  stablehlo.write(path, models.make_params(), CONFIG)
  return path


def make_batch(rows, length, predictions):
  random = np.random.default_rng(rows)
  mask = np.arange(length) < random.integers(2, length + 1, (rows, 1))
  batch = {
    'input_ids': random.integers(0, 11, (rows, length)),
    'input_mask': mask,
    'segment_ids': random.integers(0, 3, (rows, length)),
    'masked_lm_positions': random.integers(0, length, (rows, predictions)),
  }
  return {name: x.astype(np.int32) for name, x in batch.items()}


def assert_like_the_model(found, batch, config=CONFIG, with_nsp=True):
  bert = heads.PretrainingModel(config, with_nsp)
  expected = jax.jit(bert.apply)(
    {'params': models.make_params(config, with_nsp)}, batch
  )
  assert (found[1] is None) == (not with_nsp)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
    tuple(found),
    expected,
  )


def test_no_product_rounds_its_operands(written):
  with open(written, 'rb') as file:
    text = jax.export.deserialize(bytearray(file.read())).mlir_module()
  kinds = [kind for kind, _ in precision_test.products(text)]
  assert len(kinds) > 10 and set(kinds) == {'HIGHEST'}


@pytest.mark.parametrize(
  ('rows', 'length', 'predictions'), [(1, 7, 2), (5, 4, 1)]
)
def test_any_batch_and_length_give_what_the_model_gives(
  written, rows, length, predictions
):
  batch = make_batch(rows, length, predictions)
  mlm, nsp = stablehlo.read(written)(batch)
  assert mlm.shape == (rows, predictions, 11) and nsp.shape == (rows, 2)
  assert_like_the_model((mlm, nsp), batch)


def test_a_causal_bfloat16_model_without_nsp_is_computed_in_float32(tmp_path):
  config = dataclasses.replace(CONFIG, causal=True, norm='pre')
  path = str(tmp_path / 'model')
  half = dataclasses.replace(config, dtype='bfloat16')
  stablehlo.write(path, models.make_params(config, False), half)
  batch = make_batch(3, 6, 2)
  found = stablehlo.read(path)(batch)
  assert_like_the_model(found, batch, config, False)


def test_the_file_is_for_three_platforms_and_holds_no_custom_calls(written):
  with open(written, 'rb') as file:
    exported = jax.export.deserialize(bytearray(file.read()))
  assert exported.platforms == ('cpu', 'cuda', 'tpu')
  shapes = [str(x.shape) for x in jax.tree.leaves(exported.in_avals)]
  assert shapes == ['(b, s)', '(b, s)', '(b, p)', '(b, s)']
  calls = {
    line.split('custom_call @')[1].split('(')[0]
    for line in exported.mlir_module().split('\n')
    if 'custom_call @' in line
  }
  assert calls <= {'shape_assertion'}  # that s is at most the positions


def test_the_convert_command_writes_and_verifies_it(tmp_path, capsys):
  source = models.export_to(tmp_path / 'source')
  target = str(tmp_path / 'model')
  commands.run(
    convert,
    f'--from={source}',
    f'--to={target}',
    '--format=stablehlo',
    '--verify',
  )
  lines = capsys.readouterr().out.split('\n')
  assert lines[0].startswith(f'wrote {target}, from ')
  assert '  read by jax.export, largest differences: mlm ' in '\n'.join(lines)


def test_what_cannot_be_read_or_written_is_explained(tmp_path, monkeypatch):
  path = tmp_path / 'x'
  with pytest.raises(errors.UserError, match='No such file'):
    stablehlo.read(str(path))
  for content in (b'', b'no such thing', b'\xff' * 1000):
    path.write_bytes(content)
    with pytest.raises(
      errors.UserError, match='cannot be read by .* export the'
    ):
      stablehlo.read(str(path))
  encoder = {k: v for k, v in models.make_params().items() if k != 'mlm'}
  with pytest.raises(
    errors.UserError, match='which the source lacks or --model'
  ):
    stablehlo.write(str(path), encoder, CONFIG)
  original = builtins.__import__

  def without(name, *args, **kwargs):
    if name == 'flatbuffers':
      raise ImportError(name)
    return original(name, *args, **kwargs)

  monkeypatch.setattr(builtins, '__import__', without)
  with pytest.raises(errors.UserError, match='pip install flatbuffers'):
    stablehlo.read(str(path))
