"""Tests of the page on runs, by rows of logs that are written here."""

import re

import pytest

from bert_jax import errors
from bert_jax.config import pretraining, to_json
from bert_jax.report import __main__ as command
from bert_jax.report import charts, page, runs
from bert_jax.runtime import files
from tests import commands

NOTHING = runs.Section([], None, '')


def make_run(name='a', losses=(6.0, 4.0), task='pretraining', **more):
  c = pretraining('tiny')
  c.phases.steps, c.phases.batch_size = (10, 10), (8, 4)
  c.task = task
  rows = []
  for step, loss in zip((10, 20), losses, strict=True):
    rows += [
      {'kind': 'train', 'step': step, 'loss': loss, 'learning_rate': 0.1}
      | {'sequences_per_second': 4.0},
      {'kind': 'eval', 'step': step, 'tokens': 512 * step, 'mlm_loss': loss}
      | {'mlm_accuracy': 1 / loss, 'seconds': 5.0},
    ]
  given = {'input': 'a.txt', 'documents': 1200, 'text_bytes': 2_500_000}
  given |= {'train': {'tokens': 600_000}, 'heldout': {'tokens': 6000}}
  manifest = {'inputs': [given], 'lengths': {}, 'cleaned': {}}
  manifest |= {'unknown_share': 0, 'unigram_entropy': 6.5}
  known = {'config': c, 'rows': rows, 'status': {'state': 'done'}}
  known |= {'results': {}, 'manifest': manifest}
  known['levels'] = {'unigram entropy': 6.5, 'neighbour counts': 3.9}
  return runs.Run(name, f'runs/{name}', **{**known, **more})


def find_row(text, name):
  [row] = re.findall(f'<tr><td>{name}</td>(.*?)</tr>', text)
  return re.findall('<td>(.*?)</td>', row)


def test_runs_stand_side_by_side():
  found = [make_run(), make_run('b', (6.0, 5.0))]
  text = page.render(found, [NOTHING] * 2, {})
  assert find_row(text, 'MLM loss') == ['4.000', '5.000']
  assert find_row(text, 'MLM accuracy') == ['25.0%', '20.0%']
  assert find_row(text, 'updates') == ['20 of 20'] * 2
  assert find_row(text, 'tokens') == ['10,240'] * 2
  # 80 rows and 40 rows at 4 a second, and two evaluations of 5 seconds.
  assert find_row(text, 'hours of training') == ['0.01'] * 2
  assert found[0].count_seconds() == 40
  assert '<td>NSP accuracy</td>' not in text  # no run has one
  text = page.render(found[:1], [NOTHING], {})
  assert find_row(text, 'a.txt') == ['1,200', '2.5', '600,000', '6,000']


@pytest.mark.parametrize(
  'facts, shown',
  [
    ({'device_kind': 'TPU v4', 'jax': '1'}, '4 x TPU v4, jax 1'),
    ({'device_kind': 'cpu', 'cores': 2}, '4 x cpu, 2 cores'),
  ],
)
def test_the_cores_of_a_cpu_stand_beside_the_devices(facts, shown):
  run = make_run()
  run.rows.append({'kind': 'run', 'step': 0, 'devices': 4, **facts})
  text = page.render([run], [NOTHING], {})
  assert find_row(text, 'device') == [shown]


def test_the_page_loads_nothing_and_shows_names_as_they_are():
  guesses = runs.Guesses(
    'a [MASK] <i>', 'cat', {10: [('<s>', 0.5), ('cat', 0.25)]}
  )
  section = runs.Section([guesses], None, 'no <checkpoint>')
  text = page.render([make_run('<b>&')], [section], {})
  assert not re.search('<script|<link|<img|src=|@import|href="http', text)
  assert not re.search('<b>&|<i>|<s>|<checkpoint>', text)
  assert '&lt;b&gt;&amp;' in text
  assert '<td>&lt;s&gt; 50%, ✓ cat 25%</td>' in text


def test_scores_stand_beside_a_constant():
  results = {
    'metrics': {'f1': 0.75},
    'intervals': {'f1': [0.5, 0.875]},
    'baseline': {'f1': 0.25},
    'confusion': {'x': {'x': 3}, 'y': {'z': 1, 'y': 2}},
  }
  run = make_run(task='classification', results=results, manifest={})
  text = page.render([run], [NOTHING], {})
  score = '0.7500 [0.5000, 0.8750], a constant gets 0.2500'
  assert find_row(text, 'dev f1') == [score]
  assert find_row(text, 'x') == ['3', '0', '0']
  assert find_row(text, 'y') == ['0', '2', '1']


def test_a_fine_tuned_run_has_its_metrics_beside_what_it_was_made_of(
  monkeypatch,
):
  drawn = []
  draw = page.charts.draw_curves
  monkeypatch.setattr(
    page.charts, 'draw_curves', lambda *x: drawn.append(x[:2]) or draw(*x)
  )
  row = {'step': 5, 'matthews': 0.5, 'macro_f1': 0.75, 'accuracy': 0.875}
  rows = [{'kind': 'run', 'labels': ['x', 'y']}, {'kind': 'eval', **row}]
  tuned = make_run('b', task='classification', rows=rows)
  page.render([make_run('a'), tuned], [NOTHING] * 2, {})
  curves = {title: list(curves) for title, curves in drawn}
  assert curves['held-out MLM loss, nats'] == ['a']
  assert curves['accuracy on dev'] == curves['matthews on dev'] == ['b']


def test_a_sweep_has_a_row_for_each_setting():
  setting = {'metric': 'f1', 'std': None, 'baseline': 0.25, 'runs': 2}
  setting['problems'] = {}
  settings = [
    {'fields': {'rate': '1'}, 'values': {'a': 0.5}, 'mean': 0.5, 'best': 0.5},
    {'fields': {'rate': '2'}, 'values': {}, 'mean': None, 'best': None},
  ]
  results = {'settings': [setting | x for x in settings], 'select': 'last'}
  text = page.render([make_run()], [NOTHING], {'runs/s': results})
  assert '<title>s</title>' in text and '<h1>s</h1>' in text
  assert find_row(text, '1') == ['1/2', '0.5000', '0.5000', '0.2500', '']
  assert find_row(text, '2') == ['0/2', '', '', '0.2500', '']
  assert '<th>f1</th>' in text
  results['settings'][1]['metric'] = 'accuracy'
  text = page.render([make_run()], [NOTHING], {'runs/s': results})
  assert '<th>score</th>' in text
  results['settings'] = results['settings'][1:]
  assert find_row(page.render([make_run()], [NOTHING], {'s': results}), '2')


def test_a_run_that_failed_at_the_start_says_why(tmp_path):
  failed = {'state': 'failed', 'message': 'a.txt holds no text'}
  files.write_json(str(tmp_path / 'status.json'), failed)
  config = to_json(make_run().config)
  (tmp_path / 'config.json').write_text(config)
  [run], _ = runs.find([str(tmp_path)])
  text = page.render([run], [runs.describe(run)], {})
  assert find_row(text, 'state') == ['failed: a.txt holds no text']
  assert find_row(text, 'updates') == ['0 of 20']
  assert 'Nothing has been logged yet.' in text and '<svg' not in text


def test_a_chart_is_the_same_bytes_again_and_takes_the_pages_colour():
  curves = {'<a>': ([1, 2], [3, 4]), 'b': ([1, 2], [4, 3])}
  drawn = [
    charts.draw_curves('t', curves, 'x', {'level': 3.5}, {'place': 1.5})
    for _ in range(2)
  ]
  assert drawn[0] == drawn[1]
  assert '&lt;a&gt;' in drawn[0]
  assert drawn[0].startswith('<svg fill="currentColor"')
  assert 'stroke: currentColor' in drawn[0] and '#000000' not in drawn[0]


def test_when_a_run_was_last_heard_of_stands_beside_running():
  run = make_run(status={'state': 'running', 'time': 0.0})
  [state] = find_row(page.render([run], [NOTHING], {}), 'state')
  assert re.fullmatch('running, as of 19(69|70)-.*:00', state)


def test_letters_that_no_font_has_are_text_for_the_browser(recwarn):
  drawn = charts.draw_curves('서울', {'a': ([1, 2], [3, 4])}, 'x', {}, {})
  assert '서울' in drawn and not recwarn.list


def test_what_is_no_run_is_refused(tmp_path):
  with pytest.raises(errors.UserError, match='config.json'):
    runs.find([str(tmp_path)])
  files.write_json(str(tmp_path / 'sweep.json'), {})
  with pytest.raises(errors.UserError, match='name some of its runs'):
    runs.find([str(tmp_path)])
  failed = {'settings': [{'values': {}}]}
  files.write_json(str(tmp_path / 'results.json'), failed)
  with pytest.raises(errors.UserError, match='no run that ended'):
    runs.find([str(tmp_path)])


def test_the_command_writes_into_the_first_folder(tmp_path, monkeypatch):
  monkeypatch.setattr(runs, '_read', lambda workdir, name: make_run(name))
  monkeypatch.setattr(runs, 'describe', lambda run: NOTHING)
  folders = f'--workdir={tmp_path}/a,{tmp_path}/b'
  commands.run(command, folders)
  text = (tmp_path / 'a' / 'report.html').read_text()
  assert text.startswith('<!doctype html>') and '<h1>a, b</h1>' in text
  with pytest.raises(errors.UserError, match='a.txt does not end in .html'):
    commands.run(command, folders, '--output=a.txt')


def test_runs_may_be_here_and_in_a_bucket(monkeypatch):
  monkeypatch.setattr(runs, '_read', lambda workdir, name: name)
  monkeypatch.setattr(runs.storage, 'exists', lambda path: False)
  assert runs.find(['gs://b/x', '/r/y'])[0] == ['gs://b/x', '/r/y']
  assert runs.find(['/r/x', '/r/y/'])[0] == ['x', 'y']
