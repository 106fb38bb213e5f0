"""Tests of predictions for a file, from a run and from its export."""

import csv
import json
import os

import pytest

from bert_jax import errors, predict
from tests import commands
from tests.finetuning import made

TEXTS = ['the dog', 'cat', '', 'the the the dogs', 'cats', 'dog ' * 20]
EXPECTED = ['dog', 'cat', None, 'dog', 'cat', 'dog']


def write_input(path, column='text'):
  with open(path, 'w', encoding='utf-8', newline='') as file:
    writer = csv.writer(file)
    writer.writerow(['number', column])
    writer.writerows(enumerate(TEXTS))
  return str(path)


@pytest.mark.slow
def test_every_row_is_predicted_in_order(finetuned, tmp_path):
  given = write_input(tmp_path / 'in.csv', 'words')
  model, output = f'{finetuned}/export', str(tmp_path / 'out.jsonl')
  with pytest.raises(errors.UserError, match="no column 'text'"):
    predict.predict(model, given, output)
  assert not os.path.exists(output)
  count = predict.predict(model, given, output, ('words', None), batch_size=4)
  rows = [json.loads(line) for line in made.read_lines(output)]
  assert count == len(rows) == len(TEXTS)
  for row, expected in zip(rows, EXPECTED, strict=True):
    assert row['prediction'] == (expected or row['prediction'])
    assert row['probabilities'][row['prediction']] == row['probability'] >= 0.5
    assert sum(row['probabilities'].values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_the_command(finetuned, tmp_path, capsys):
  given, output = write_input(tmp_path / 'in.csv', '=x'), tmp_path / 'out.tsv'
  flags = [f'--model={finetuned}/export', f'--input={given}']
  flags += ['--text==x', '--keep==x,number', '--safe_cells']
  commands.run(predict, *flags, f'--output={output}')
  head, first, *_ = made.read_lines(output)
  assert head == "'=x\tnumber\tprediction\tprobability"
  assert first.startswith('the dog\t0\tdog\t')
  out = capsys.readouterr().out
  assert f'wrote {output}: {len(TEXTS)} predictions' in out
  assert 'truncated to 16 tokens: 1 row\n' in out
