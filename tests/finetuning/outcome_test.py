"""Tests of what a run leaves, of its model card and of GLUE's submissions."""

import csv
import zipfile

import pytest

from bert_jax import main, tasks
from bert_jax.config import recipes
from bert_jax.finetuning import outcome
from bert_jax.finetuning.readers import splits
from bert_jax.runtime import files, storage
from tests.finetuning import made


def make_config(root, **changes):
  """Returns the config of a run on a left-to-right model."""
  texts = made.write_texts(root / 'texts')
  source, *_ = made.write_model(root / 'ltr', causal=True)
  return made.make_config(source, texts, **changes)


def check_predict(workdir, texts, tmp_path):
  """Compares what `predict` writes with the run's own predictions."""
  output = str(tmp_path / 'out.csv')
  made.predict(workdir, f'{texts}/test.csv', output)
  found = [row['prediction'] for row in csv.DictReader(made.read_lines(output))]
  lines = made.read_lines(workdir, 'predictions', 'test.tsv')
  rows = csv.DictReader(lines, delimiter='\t')
  assert [row['prediction'] for row in rows] == found
  return found


@pytest.mark.slow
def test_a_run_in_a_bucket_ends_like_that_on_disk(
  finetuned, tmp_path, remote, monkeypatch
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  c = made.configure(tmp_path)
  for _ in range(2):  # the second replaces what the first left
    main.run(c, remote)
  ours, theirs = (
    files.read_json(f'{x}/results.json') | {'init_from': ''}
    for x in (remote, finetuned)
  )
  assert ours == theirs
  for name in (
    'predictions/dev.tsv',
    'predictions/test.tsv',
    'export/vocab.txt',
  ):
    with open(f'{finetuned}/{name}', 'rb') as file:
      assert storage.read(f'{remote}/{name}') == file.read(), name
  output = f'{remote}/out.jsonl'
  made.predict(remote, f'{c.data.input}/test.csv', output)
  assert len(storage.read(output).splitlines()) == 2


RESULTS = {
  'counts': {'train': 48, 'dev': 10},
  'metrics': {'pearson': 0.5},
  'intervals': {'pearson': [0.25, 0.75]},
  'baseline': {'pearson': 0.0},
  'other': {},
  'problem': None,
  'select': 'last',
}


def make_card(c, labels, results, parameters) -> str:
  this = tasks.SUPERVISED[c.task]
  return outcome.make_card(this, c, labels, results, parameters)


BEST = {'select': 'best', 'step': 1500, 'steps': 3000}


@pytest.mark.parametrize(
  'labels, results, there, absent',
  [
    ((), {}, 'of numbers, the mean of training |', 'scored best'),
    (('cat', 'dog'), {}, '| constant | the commonest class of', 'scored best'),
    (('cat', 'dog'), {}, '`cat`, `dog`', 'scored best'),
    ([f'c{i}' for i in range(300)], {}, 'one of 300 classes', 'c299'),
    (
      (),
      {'problem': 'no better'},
      '| **warning** | no better |',
      'scored best',
    ),
    ((), BEST, 'step 1,500 of 3,000, which scored best on', 'warning'),
  ],
)
def test_the_card_says_what_the_scores_mean(labels, results, there, absent):
  c = recipes.finetuning()
  c.optimizer.freeze = '^(embeddings|encoder/layer_0)/'
  shown = make_card(c, labels, RESULTS | results, 1000)
  assert there in shown and absent not in shown
  # A field with a bar stays one cell.
  assert r'`"^(embeddings\|encoder/layer_0)/"` |' in shown


def test_the_card_has_no_path_and_no_field_of_pre_training():
  c = recipes.finetuning()
  c.init_from = '/home/ann/model'
  c.data.input = 'train=/home/ann/ko.tsv,dev=/home/ann/ko dev.tsv'
  shown = make_card(c, ('cat', 'dog'), RESULTS, 1000)
  assert '# BERT fine-tuned on train=ko.tsv,dev=ko dev.tsv\n' in shown
  assert '| init_from | `"model"` |' in shown and 'ann' not in shown
  for name in ('language', 'passes', 'dir', 'objective.', 'max_predictions'):
    assert f'{name}' not in shown.split('## Recipe')[1]
  for name in ('data.label', 'data.lowercase', 'phases.batch_size'):
    assert f'| {name} |' in shown


def test_the_card_says_when_there_is_no_answer():
  c, tuned = recipes.finetuning(), 'where that scores more than 1.500 above'
  c.task = 'spans'
  for threshold in (None, 1.5):
    results = RESULTS | {'threshold': threshold}
    shown = make_card(c, ('start', 'end'), results, 1000)
    assert (tuned in shown) == (threshold is not None)


def test_a_submission_has_the_runs_predictions_and_wnlis_commonest_class(
  tmp_path,
):
  wnli = tmp_path / 'glue' / 'WNLI'
  wnli.mkdir(parents=True)
  rows = [f'{i}\ta\tb\t{label}\n' for i, label in enumerate('01001')]
  head = 'index\tsentence1\tsentence2'
  (wnli / 'train.tsv').write_text(f'{head}\tlabel\n' + ''.join(rows))
  (wnli / 'test.tsv').write_text(f'{head}\n7\ta\tb\n3\ta\tb\n')
  source = splits.Source(str(tmp_path / 'glue'))
  path, runs = tmp_path / 'submission.zip', {'rte': str(tmp_path / 'run')}
  assert (
    outcome.write_leaderboard(str(path), runs, source) is None
  )  # it had no test files
  (tmp_path / 'run' / 'submission').mkdir(parents=True)
  (tmp_path / 'run' / 'submission' / 'RTE.tsv').write_text('best')
  assert outcome.write_leaderboard(str(path), runs, source) == [
    *('CoLA.tsv', 'SST-2.tsv', 'MRPC.tsv', 'STS-B.tsv', 'QQP.tsv'),
    *('MNLI-m.tsv', 'MNLI-mm.tsv', 'AX.tsv', 'QNLI.tsv'),
  ]
  with zipfile.ZipFile(path) as written:
    assert written.namelist() == ['RTE.tsv', 'WNLI.tsv']
    assert written.read('RTE.tsv') == b'best'
    wnli_rows = written.read('WNLI.tsv').decode()
  assert wnli_rows == 'index\tprediction\n7\t0\n3\t0\n'  # three of five are 0
  before = path.read_bytes()
  outcome.write_leaderboard(str(path), runs, source)
  assert path.read_bytes() == before
  (wnli / 'test.tsv').unlink()
  assert 'WNLI.tsv' in outcome.write_leaderboard(str(path), runs, source)
