"""Tests of the page on runs, by folders that are written here."""

import json
import os
import re

import pytest

from bert_jax import errors, report
from bert_jax.config import pretraining, to_json
from bert_jax.runtime import bucket
from tests import commands

INPUT = {'input': 'a.txt', 'documents': 1200, 'text_bytes': 2_500_000}
MANIFEST = {
  'inputs': [INPUT | {'train': {'tokens': 600_000}}],
  'lengths': {'128': {'rows': 70}},
  'cleaned': {'empty_documents': 3},
  'unknown_share': 0.25,
  'unigram_entropy': 6.5,
}


def write(folder, losses=(6.0, 4.0), rows=(), task='pretraining', **files):
  """Writes what a run has that did 10 steps of 8 rows and 10 of 4 rows."""
  c = pretraining('tiny')
  c.phases.steps, c.phases.batch_size = (10, 10), (8, 4)
  c.task = task
  rows = [*rows]
  for step, loss in zip((10, 20), losses, strict=True):
    rows += [
      {'kind': 'train', 'step': step, 'loss': loss, 'learning_rate': 0.1}
      | {'sequences_per_second': 4.0},
      {'kind': 'eval', 'step': step, 'tokens': 512 * step, 'mlm_loss': loss}
      | {'mlm_accuracy': 1 / loss, 'seconds': 5.0},
    ]
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(to_json(c))
  (folder / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  (folder / 'data').mkdir()
  for name, value in ({'data/manifest': MANIFEST} | files).items():
    (folder / f'{name}.json').write_text(json.dumps(value))
  return str(folder)


def show(*folders):
  return report.render([report.read(str(x)) for x in folders])


def find_row(text, name):
  [row] = re.findall(f'<tr><td>{re.escape(name)}</td>(.*?)</tr>', text)
  return re.findall('<td>(.*?)</td>', row)


def test_runs_stand_side_by_side(tmp_path):
  a, b = write(tmp_path / 'a'), write(tmp_path / 'b', (6.0, 5.0))
  text = show(a, b)
  assert '<h1>a, b</h1>' in text and text.count('<svg') == 4
  assert find_row(text, 'mlm_loss') == ['4', '5']
  assert find_row(text, 'updates') == ['20 of 20'] * 2
  assert find_row(text, 'tokens') == ['10,240'] * 2
  # 80 rows and 40 rows at 4 a second, and two evaluations of 5 seconds.
  assert find_row(text, 'hours of training') == ['0.01'] * 2
  text = show(a)
  assert find_row(text, 'a.txt') == ['1,200', '2,500,000', '600,000']
  assert find_row(text, 'rows of 128') == ['70']
  assert 'unigram entropy' in text.split('<svg')[2]


def test_the_page_loads_nothing_and_shows_names_as_they_are(tmp_path):
  odd = '<img src=x onerror=alert(1)>'
  manifest = MANIFEST | {
    'inputs': [MANIFEST['inputs'][0] | {'input': odd}],
    'lengths': {odd: {'rows': 3}},
    'cleaned': {odd: 1},
  }
  row = {'kind': 'run', 'step': 0, 'command': odd, 'jax': odd}
  names = {'data/manifest': manifest, 'status': {'state': odd}}
  a = write(tmp_path / '<b>&$\\frac{$', rows=[row], **names)  # no formula
  text = show(a, write(tmp_path / 'b'))
  assert not re.search('<script|<link|<img|src=x[^ ]|@import|href="http', text)
  assert '<b>' not in text and '&lt;b&gt;&amp;$\\frac{$' in text
  assert text.count('&lt;img src=x') == 6


def test_scores_stand_beside_a_constant_and_metrics_are_drawn(tmp_path):
  results = {'metrics': {'f1': 0.75}, 'baseline': {'f1': 0.25}}
  results['intervals'] = {'f1': [0.5, 0.875]}
  row = {'kind': 'eval', 'step': 5, 'f1': 0.5, 'loss': 1.0, 'seconds': 1}
  more = {'task': 'classification', 'results': results}
  text = show(write(tmp_path / 'a', rows=[row], **more))
  score = '0.7500 [0.5000, 0.8750], a constant gets 0.2500'
  assert find_row(text, 'dev f1') == [score]
  results['counted_words'] = {'metrics': {'f1': 0.5}}
  text = show(write(tmp_path / 'b', rows=[row], **more))
  assert find_row(text, 'dev f1') == [f'{score}, counting words 0.5000']
  assert 'eval: f1, by step' in text


def test_a_run_that_failed_at_the_start_says_why(tmp_path):
  failed = {'state': 'failed', 'message': 'a.txt holds no text'}
  folder = write(tmp_path / 'a', status=failed)
  os.remove(f'{folder}/metrics.jsonl')
  text = show(folder)
  assert find_row(text, 'state') == ['failed: a.txt holds no text']
  assert find_row(text, 'updates') == ['0 of 20']
  assert 'Nothing has been logged yet.' in text and '<svg' not in text


def test_a_chart_is_the_same_bytes_again_and_takes_the_pages_colour():
  curves = {'<a>': [(1, 3), (2, 4)], '_b': [(1, 4), (2, 3)]}
  marks = {'level': ('y', 3.5), 'place': ('x', 1.5)}
  drawn, again = (report.draw('t', curves, marks) for _ in '12')
  assert drawn == again and drawn.startswith('<svg fill="currentColor"')
  for name in ('&lt;a&gt;', '_b', 'level', 'place'):
    assert f'{name}</text>' in drawn
  assert 'stroke: currentColor' in drawn and '#000000' not in drawn


@pytest.mark.parametrize(
  'line',
  [
    '{"kind": "train", "step": 1, "loss": "x"}',
    '{"kind": "eval", "step": 1, "mlm_loss": []}',
    f'{{"kind": "eval", "step": 1, "mlm_loss": 1{"0" * 400}}}',
  ],
)
def test_a_log_with_nonsense_is_one_line(tmp_path, line):
  folder = write(tmp_path / 'a')
  with open(f'{folder}/metrics.jsonl', 'a') as file:
    file.write(f'\n{line}\n')
  with pytest.raises(errors.UserError, match='^cannot use .*/a: .*') as caught:
    show(folder)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'name', ['config.json', 'metrics.jsonl', 'status.json', 'data/manifest.json']
)
def test_no_file_is_read_but_the_runs_own(tmp_path, name):
  folder = write(tmp_path / 'a')
  path = f'{folder}/{name}'
  (tmp_path / 'other').write_text('{"secret": 1}')
  if os.path.exists(path):
    os.remove(path)
  os.symlink(tmp_path / 'other', path)
  with pytest.raises(errors.UserError, match='leads out of the folder'):
    show(folder)
  os.remove(path)
  os.mkfifo(path)
  with pytest.raises(errors.UserError, match='is not a regular file'):
    show(folder)


def test_nothing_is_asked_of_the_data_elsewhere(tmp_path, monkeypatch):
  def refuse(*args):
    raise AssertionError(args)

  monkeypatch.setattr(bucket, 'using', refuse)
  folder = write(tmp_path / 'a')
  c = json.loads((tmp_path / 'a' / 'config.json').read_text())
  c['data.dir'] = 'http://127.0.0.1:9/x'
  (tmp_path / 'a' / 'config.json').write_text(json.dumps(c))
  assert 'Guesses' in show(folder)


def test_the_command_replaces_a_link_and_not_its_target(tmp_path):
  a, b = write(tmp_path / 'a'), write(tmp_path / 'b')
  (tmp_path / 'mine').write_text('mine')
  os.symlink(tmp_path / 'mine', f'{a}/report.html')
  commands.run(report, f'--workdir={a},{b}')
  text = (tmp_path / 'a' / 'report.html').read_text()
  assert text.startswith('<!doctype html>') and '<h1>a, b</h1>' in text
  assert (tmp_path / 'mine').read_text() == 'mine'
