"""Tests of the command that predicts for a file."""

import csv

import pytest

from tests.finetuning import made

TEXTS = ['the dog', 'cat', '', 'the the the dogs', 'cats', 'dog ' * 20]
EXPECTED = ['dog', 'cat', None, 'dog', 'cat', 'dog']


@pytest.mark.slow
def test_every_row_is_predicted_in_order(finetuned, tmp_path, capsys):
  given, output = tmp_path / 'in.csv', tmp_path / 'out.tsv'
  with open(given, 'w', encoding='utf-8', newline='') as file:
    csv.writer(file).writerows([('number', '=x'), *enumerate(TEXTS)])
  flags = '--text==x', '--keep==x,number', '--batch_size=4'
  made.predict(f'{finetuned}/export', given, output, *flags)
  rows = list(csv.DictReader(made.read_lines(output), delimiter='\t'))
  assert list(rows[0]) == ['=x', 'number', 'prediction', 'probability']
  for i, (row, label) in enumerate(zip(rows, EXPECTED, strict=True)):
    assert (row['=x'], row['number']) == (TEXTS[i], str(i))
    assert row['prediction'] == (label or row['prediction'])
    assert float(row['probability']) >= 0.5
  out = capsys.readouterr().out
  assert f'wrote {output}: {len(TEXTS)} predictions' in out
  assert 'truncated to 16 tokens: 1 row\n' in out
  assert 'without text: 1 row, the first in line 4\n' in out
