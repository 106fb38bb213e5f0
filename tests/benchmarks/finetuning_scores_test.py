"""Where the sweeps of finetuning_scores.py begin."""

import json

import finetuning_scores
import pytest

SIZES = 'num_layers', 'hidden_size', 'num_heads', 'mlp_size', 'attention_init'


@pytest.mark.parametrize(
  'data, vocab', [('', 'data/vocab.txt'), ('elsewhere', 'vocab.txt')]
)
def test_random_weights_have_the_vocabulary_of_the_run(tmp_path, data, vocab):
  config = {f'model.{name}': 1 for name in SIZES} | {'data.dir': data}
  (tmp_path / 'config.json').write_text(json.dumps(config))
  starts = finetuning_scores.list_starts(str(tmp_path))
  _, [flag] = starts['random weights']
  assert flag == f'--config.data.vocab={tmp_path}/{vocab}'


def test_an_unknown_task_is_named_before_anything_is_trained(
  monkeypatch, capsys
):
  flags = ['--model=x', '--data=y', '--workdir=z', '--tasks=SST-2,SST']
  monkeypatch.setattr('sys.argv', ['finetuning_scores.py', *flags])
  with pytest.raises(SystemExit, match='2'):
    finetuning_scores.main()
  assert "--tasks has {'SST'}; there are CoLA, SST-2" in capsys.readouterr().err
