"""The command bert_jax.convert."""

import types

import pytest
from absl import flags

from bert_jax import convert, errors
from bert_jax.interop import hf_load
from tests import models


def run_main(monkeypatch, *argv, **values):
  found = {k: types.SimpleNamespace(value=v) for k, v in values.items()}
  monkeypatch.setattr(flags, 'FLAGS', found)
  convert.main(['convert', *argv])


def test_the_command_rewrites_a_hugging_face_folder(tmp_path, monkeypatch):
  source = models.export_to(tmp_path / 'theirs')
  target = str(tmp_path / 'ours')
  arguments = {'from': source, 'to': target}
  run_main(monkeypatch, **arguments, step=None)
  models.assert_same(hf_load.load(target)[0], models.make_params())
  with pytest.raises(errors.UserError, match='not the directory of a run.*=3'):
    run_main(monkeypatch, **arguments, step=3)
  with pytest.raises(errors.UserError, match="'hf' is not a flag"):
    run_main(monkeypatch, 'hf', **arguments, step=None)
