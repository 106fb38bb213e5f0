"""Our side of the comparison with transformers' Trainer, on a tiny model."""

import os

import finetuning
import pytest

from tests.finetuning import made


def test_a_comparison_of_nothing_is_refused(monkeypatch, capsys):
  flags = ['--torch=python', '--vocab=vocab.txt']
  monkeypatch.setattr('sys.argv', ['finetuning.py', *flags])
  with pytest.raises(SystemExit, match='2'):
    finetuning.main()
  assert 'give --glue, --squad or both' in capsys.readouterr().err


@pytest.mark.slow
def test_updates_are_timed_however_seldom_they_are_logged(finetuned):
  config = made.read_json(finetuned, 'config.json')
  settings = {
    'config': config | {'log.every': 50},
    'data': os.path.join(finetuned, 'data'),
    'model': finetuned,
    'predict_batch': 8,
  }
  assert config['phases.steps'][0] > finetuning.WARM + 1
  assert finetuning.train(settings) > 0
  assert finetuning.predict(settings) > 0
