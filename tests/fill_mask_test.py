"""What bert_jax.fill_mask finds, prints and refuses."""

import os
import subprocess
import sys

from bert_jax import fill_mask
from bert_jax.interop import hf_export
from tests.inference import fill_test


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


def test_the_command_prints_words_and_nothing_else(tmp_path):
  params, config = fill_test.make_certain_model()
  path = str(tmp_path / 'model')
  hf_export.export(path, params, config, False, fill_test.TOKENIZER)
  command = [sys.executable, '-m', 'bert_jax.fill_mask', f'--model={path}']
  result = subprocess.run(
    [*command, '--top=2', 'the [MASK] ran', 'no mask'],
    capture_output=True,
    encoding='utf-8',
    env=os.environ | {'PYTHONIOENCODING': 'utf-8'},
  )
  assert result.stdout == (
    'the [MASK] ran\n  cat   50.0%  ████████████\n  dog   25.0%  ██████\n'
  )
  assert result.stderr.startswith("error: no [MASK] in 'no mask'; ")
  assert result.stderr.count('\n') == 1
  assert result.returncode == 1
