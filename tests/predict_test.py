"""Tests of predictions for a file, from a run and from its export."""

import csv
import json
import os
import subprocess
import sys

import pytest

from bert_jax import errors, predict
from tests import environment
from tests.finetuning import made

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEXTS = ['the dog', 'cat', '', 'the the the dogs', 'cats', 'dog ' * 20]
EXPECTED = ['dog', 'cat', None, 'dog', 'cat', 'dog']


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  return made.run(tmp_path_factory.mktemp('predict'))


def write_input(path, column='text'):
  with open(path, 'w', encoding='utf-8', newline='') as file:
    writer = csv.writer(file)
    writer.writerow(['number', column])
    writer.writerows(enumerate(TEXTS))
  return str(path)


@pytest.mark.slow
@pytest.mark.parametrize('model', ['.', 'export'])
def test_a_run_and_its_export_predict_every_row_in_order(run, tmp_path, model):
  given, output = write_input(tmp_path / 'in.csv'), str(tmp_path / 'out.jsonl')
  count = predict.predict(os.path.join(run, model), given, output, batch_size=4)
  with open(output, encoding='utf-8') as file:
    rows = [json.loads(line) for line in file]
  assert count == len(rows) == len(TEXTS)
  for row, expected in zip(rows, EXPECTED, strict=True):
    assert row['prediction'] == (expected or row['prediction'])
    assert row['probabilities'][row['prediction']] == row['probability'] >= 0.5
    assert sum(row['probabilities'].values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_the_batch_size_changes_no_prediction(run, tmp_path):
  given = write_input(tmp_path / 'in.csv')
  found = []
  for size in (1, 6):
    output = tmp_path / f'{size}.tsv'
    predict.predict(run, given, str(output), batch_size=size)
    found.append([line.split('\t') for line in output.read_text().splitlines()])
  assert found[0][0] == ['prediction', 'probability']
  for a, b in zip(found[0][1:], found[1][1:], strict=True):
    assert a[0] == b[0]
    assert float(a[1]) == pytest.approx(float(b[1]), abs=1e-5)


@pytest.mark.slow
def test_the_column_may_have_another_name(run, tmp_path):
  given = write_input(tmp_path / 'in.csv', 'words')
  output = str(tmp_path / 'out.csv')
  with pytest.raises(errors.UserError, match="no column 'text'"):
    predict.predict(run, given, output)
  assert not os.path.exists(output)
  predict.predict(run, given, output, ('words', None))
  with open(output, encoding='utf-8') as file:
    assert file.read().startswith('prediction,probability\ndog,')


def test_a_model_without_a_head_is_refused(tmp_path):
  source = made.write_source(tmp_path / 'source')
  given = write_input(tmp_path / 'in.csv')
  with pytest.raises(errors.UserError, match='has no head that predicts'):
    predict.predict(source, given, str(tmp_path / 'out.csv'))


@pytest.mark.slow
def test_the_command(run, tmp_path):
  given, output = write_input(tmp_path / 'in.csv'), tmp_path / 'out.tsv'
  command = [sys.executable, '-m', 'bert_jax.predict', f'--model={run}/export']
  done = subprocess.run(
    [*command, f'--input={given}', f'--output={output}'],
    cwd=ROOT,
    env=environment.for_devices(1),
    capture_output=True,
    text=True,
    check=True,
  )
  assert f'wrote {output}: {len(TEXTS)} predictions' in done.stdout
  assert 'truncated to 16 tokens: 1 row\n' in done.stdout
