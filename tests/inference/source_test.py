"""Which kind of model a path names; convert_test reads each."""

import os

import pytest

from bert_jax import errors
from bert_jax.inference import source
from bert_jax.interop import google
from tests import models


def test_a_folder_with_both_kinds_of_files_is_hugging_faces(tmp_path):
  path = models.export_to(tmp_path / 'both')
  google.write(
    str(tmp_path / 'google'),
    models.make_params(),
    models.CONFIG,
    models.TOKENIZER,
  )
  index = 'bert_model.ckpt.index'
  os.rename(tmp_path / 'google' / index, tmp_path / 'both' / index)
  assert source.detect_kind(path) == 'hf'
  assert source.detect_kind(os.path.join(path, index)) == 'google'
  os.remove(os.path.join(path, 'model.safetensors'))
  assert source.detect_kind(path) == 'google'


def test_a_program_is_no_model(tmp_path):
  path = tmp_path / 'bert.stablehlo'
  path.write_bytes(b'program')
  with pytest.raises(errors.UserError, match='StableHLO file is a program'):
    source.detect_kind(str(path))
  with pytest.raises(errors.UserError, match='absent is no folder, no check'):
    source.detect_kind(str(tmp_path / 'absent'))
