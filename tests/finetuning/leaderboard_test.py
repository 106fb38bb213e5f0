"""Tests of the zip for GLUE's leaderboard."""

import zipfile

from bert_jax.finetuning import leaderboard
from bert_jax.finetuning.readers import splits


def test_it_has_the_runs_predictions_and_wnlis_commonest_class(tmp_path):
  wnli = tmp_path / 'glue' / 'WNLI'
  wnli.mkdir(parents=True)
  rows = [f'{i}\ta\tb\t{label}\n' for i, label in enumerate('01001')]
  head = 'index\tsentence1\tsentence2'
  (wnli / 'train.tsv').write_text(f'{head}\tlabel\n' + ''.join(rows))
  (wnli / 'test.tsv').write_text(f'{head}\n7\ta\tb\n3\ta\tb\n')
  source = splits.Source(str(tmp_path / 'glue'))
  path, runs = tmp_path / 'submission.zip', {'rte': str(tmp_path / 'run')}
  assert (
    leaderboard.write(str(path), runs, source) is None
  )  # it had no test files
  (tmp_path / 'run' / 'submission').mkdir(parents=True)
  (tmp_path / 'run' / 'submission' / 'RTE.tsv').write_text('best')
  assert leaderboard.write(str(path), runs, source) == [
    *('CoLA.tsv', 'SST-2.tsv', 'MRPC.tsv', 'STS-B.tsv', 'QQP.tsv'),
    *('MNLI-m.tsv', 'MNLI-mm.tsv', 'AX.tsv', 'QNLI.tsv'),
  ]
  with zipfile.ZipFile(path) as written:
    assert written.namelist() == ['RTE.tsv', 'WNLI.tsv']
    assert written.read('RTE.tsv') == b'best'
    wnli_rows = written.read('WNLI.tsv').decode()
  assert wnli_rows == 'index\tprediction\n7\t0\n3\t0\n'  # three of five are 0
  before = path.read_bytes()
  leaderboard.write(str(path), runs, source)
  assert path.read_bytes() == before
  (wnli / 'test.tsv').unlink()
  assert 'WNLI.tsv' in leaderboard.write(str(path), runs, source)
