"""What bert_jax.fill_mask finds, prints and refuses."""

import sys

import pytest

from bert_jax import errors, fill_mask
from bert_jax.interop import hugging_face, rename
from tests import commands, models
from tests.inference import fill_test
from tests.weight_files import tf_files


def test_words_and_bars_stand_in_columns():
  guesses = [[('cat', 0.5), ('mouse', 0.001)], [('ran', 1.0)]]
  assert fill_mask.describe('a [MASK] [MASK]', guesses).split('\n') == [
    'a [MASK] [MASK]',
    '  [MASK] 1 of 2',
    '  cat     50.0%  ' + '█' * 12,
    '  mouse    0.1%',
    '  [MASK] 2 of 2',
    '  ran    100.0%  ' + '█' * 24,
  ]


def ask(monkeypatch, path, *sentences):
  # The command is for bytes; what captures text has no errors to set.
  monkeypatch.setattr(sys.stdout, 'reconfigure', lambda **_: None, False)
  commands.run(fill_mask, f'--model={path}', '--top=2', *sentences)


def test_every_kind_of_model_answers_alike(tmp_path, monkeypatch, capsys):
  params, config = fill_test.make_certain_model()
  words = fill_test.TOKENIZER
  paths = {name: str(tmp_path / name) for name in ('hf', 'google')}
  hugging_face.export(paths['hf'], params, config, words)
  tf_files.write_model(paths['google'], params, config, words)
  answers = set()
  for path in paths.values():
    ask(monkeypatch, path, 'the [MASK] ran')
    answers.add(capsys.readouterr().out)
  ask(monkeypatch, path, 'ape [MASK] [UNK] ape ran')
  assert 'WARNING: 2 words of it cannot' in capsys.readouterr().err
  assert answers == {
    'the [MASK] ran\n  cat   50.0%  ████████████\n  dog   25.0%  ██████\n'
  }


def test_what_cannot_guess_words_is_refused(tmp_path, monkeypatch):
  path = str(tmp_path / 'encoder')
  encoder = rename.keep_parts(models.make_params(), {'pooler'})
  tf_files.write_model(path, encoder)
  with pytest.raises(errors.UserError, match='no MLM head.*missing: cls/pred'):
    ask(monkeypatch, path, 'the [MASK]')
