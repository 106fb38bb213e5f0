"""Tests of how processes share the runs of a sweep out, by their files.

Most runs here are a small program that leaves what a run leaves.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest

from bert_jax import errors
from bert_jax.config import recipes, to_json
from bert_jax.experiments import grid, share
from bert_jax.runtime import signals, storage
from tests import waiting
from tests.finetuning import made

# Arguments: the score, and what to do; then --workdir=.
_RUN = """
import json, os, signal, sys, time
score, action, workdir = sys.argv[1], sys.argv[2], sys.argv[3].partition('=')[2]
def write(name, value):
  with open(f'{workdir}/{name}', 'w') as file:
    json.dump(value, file)
def stop(*_):
  print('saved', flush=True)
  sys.exit(130)
signal.signal(signal.SIGINT, stop)
with open(f'{workdir}/starts', 'a') as file:
  file.write('x')
print('begins', flush=True)
if action == 'fail':
  sys.exit('error: no luck')
time.sleep({'quick': 0, 'slow': 0.3, 'long': 60}[action])
write('results.json', {'metrics': {'f1': float(score)},
                       'baseline': {'f1': 0}, 'problem': None})
write('status.json', {'state': 'done'})
"""


def work(folder, seeds=3, actions=None, needs=None):
  """Returns {run: score}, {run: exit code}, and how often there was news."""
  values = ','.join(map(str, range(seeds)))
  runs = grid.parse(f'seed={values}', recipes.finetuning(), '')
  needs = needs or {}
  runs = [
    dataclasses.replace(run, needs=needs.get(run.name, ())) for run in runs
  ]

  def command(run, overrides):
    seed = run.fields['seed']
    action = (actions or {}).get(seed, 'quick')
    return [sys.executable, '-S', '-c', _RUN, f'0.{seed}', action]

  with mock.patch.object(share, 'make_command', command):
    news = list(share.work(str(folder), runs, {}))
  results, failed = news[-1]
  scores = {name: x['metrics']['f1'] for name, x in results.items()}
  return scores, failed, len(news)


def count_starts(folder):
  return {
    name: len(storage.read(os.path.join(folder, name, 'starts')))
    for name in sorted(os.listdir(folder))
  }


def test_every_run_is_done_once(tmp_path, capsys):
  scores = {'seed=0': 0.0, 'seed=1': 0.1, 'seed=2': 0.2}
  assert work(tmp_path) == (scores, {}, 4)
  assert capsys.readouterr().out.splitlines() == [
    *('seed=0 (1 of 3)', '  f1 0.0000'),
    *('seed=1 (2 of 3)', '  f1 0.1000'),
    *('seed=2 (3 of 3)', '  f1 0.2000'),
  ]
  assert work(tmp_path, seeds=4) == (scores | {'seed=3': 0.3}, {}, 2)
  assert 'seed=3 (4 of 4)' in capsys.readouterr().out
  assert count_starts(tmp_path) == {f'seed={i}': 1 for i in range(4)}


def test_after_a_failure_the_others_go_on(tmp_path, capsys):
  scores, failed, _ = work(tmp_path, actions={1: 'fail'})
  assert scores.keys() == {'seed=0', 'seed=2'} and failed == {'seed=1': 1}
  out = capsys.readouterr().out
  assert '  FAILED (exit code 1):\n    begins\n    error: no luck\n' in out
  assert work(tmp_path)[1] == {}  # the cause was removed
  assert count_starts(tmp_path) == {'seed=0': 1, 'seed=1': 2, 'seed=2': 1}
  output = (tmp_path / 'seed=1' / 'output.txt').read_text()
  assert output == 'begins\nerror: no luck\nbegins\n'
  long = 'print(*range(20), "", sep="\\n"); raise SystemExit(3)'
  command = [sys.executable, '-S', '-c', long]
  found = share.run_process(command, str(tmp_path / 'seed=1'), signals.Stop())
  assert found == (3, [str(i) for i in range(10, 20)])


def test_ctrl_c_reaches_the_run_which_saves(tmp_path, capsys):
  path = tmp_path / 'seed=1' / 'output.txt'

  def interrupt():
    while not (path.exists() and path.read_text()):
      time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

  threading.Thread(target=interrupt).start()
  with pytest.raises(errors.Interrupted, match='resume with the same command'):
    work(tmp_path, actions={1: 'long'})
  assert 'seed=1: saved' in capsys.readouterr().out
  assert not (tmp_path / 'seed=2').exists()


def test_a_run_waits_for_the_one_that_it_needs(tmp_path, capsys):
  needs = {'seed=0': ('seed=2',), 'seed=1': ('seed=2', 'seed=0')}
  scores, failed, _ = work(tmp_path / 'a', needs=needs)
  assert len(scores) == 3 and failed == {}
  told = [x for x in capsys.readouterr().out.splitlines() if 'of 3' in x]
  assert told == ['seed=2 (1 of 3)', 'seed=0 (2 of 3)', 'seed=1 (3 of 3)']
  # What needs a run that failed is not begun.
  needs = {'seed=0': ('seed=2', 'seed=1')}
  scores, failed, _ = work(tmp_path / 'b', 3, {1: 'fail'}, needs)
  assert failed == {'seed=1': 1} and scores == {'seed=2': 0.2}
  assert count_starts(tmp_path / 'b') == {'seed=1': 1, 'seed=2': 1}


_SHARE = """
import sys
from tests.experiments import share_test
print('ready', flush=True)
sys.stdin.readline()
share_test.work(sys.argv[1], 6, dict.fromkeys(range(6), 'slow'))
"""


@contextlib.contextmanager
def running(folder):
  """Yields another process that is ready to share a sweep of six runs."""
  process = subprocess.Popen(
    [sys.executable, '-c', _SHARE, str(folder)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  try:
    assert process.stdout.readline() == 'ready\n'
    yield process
  finally:
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_two_processes_never_do_the_same_run(tmp_path):
  with running(tmp_path) as a, running(tmp_path) as b:
    for process in (a, b):
      process.stdin.write('\n')
      process.stdin.flush()
    outputs = [process.stdout.read() for process in (a, b)]
    assert [process.wait() for process in (a, b)] == [0, 0]
  assert count_starts(tmp_path) == {f'seed={i}': 1 for i in range(6)}
  done = [output.count('  f1 ') for output in outputs]
  assert sum(done) == 6 and min(done) >= 1


@pytest.mark.slow
def test_what_a_killed_process_left_is_taken_over(tmp_path, monkeypatch):
  monkeypatch.setattr(share, '_LOOK', 0.05)
  with running(tmp_path) as other:
    other.stdin.write('\n')
    other.stdin.flush()
    while not (tmp_path / 'seed=1' / 'starts').exists():
      time.sleep(0.005)
    threading.Timer(0.1, other.kill).start()
    scores, failed, _ = work(tmp_path, 6)
  assert failed == {} and scores == {f'seed={i}': i / 10 for i in range(6)}


_ORPHAN = """
import os, subprocess, sys
from bert_jax.experiments import share
child = share._CHILD.partition('runpy.run')[0] + '''
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
'''
subprocess.run([sys.executable, '-c', child, str(os.getpid())])
"""


@pytest.mark.slow
def test_a_run_ends_with_the_process_of_its_sweep():
  parent = subprocess.Popen(
    [sys.executable, '-c', _ORPHAN], stdout=subprocess.PIPE, text=True
  )
  child = int(parent.stdout.readline())
  parent.kill()
  parent.wait()
  waiting.until(lambda: not os.path.exists(f'/proc/{child}'))
  parent.stdout.close()


def test_a_sweep_may_be_in_a_bucket(remote, tmp_path):
  program = """
import json, os, sys
from bert_jax.runtime import storage
workdir = sys.argv[1].partition('=')[2]
results = {'metrics': {'f1': 1}, 'baseline': {}, 'problem': None}
storage.write(workdir + '/results.json', json.dumps(results).encode())
storage.write(workdir + '/status.json', json.dumps({'state': 'done'}).encode())
print('done')
"""
  runs = grid.parse('seed=0', recipes.finetuning(), '')
  command = [sys.executable, '-c', program]
  with mock.patch.object(share, 'make_command', lambda *_: command):
    [*_, (results, failed)] = share.work(remote, runs, {})
  assert failed == {} and results['seed=0']['metrics'] == {'f1': 1}
  assert storage.read(f'{remote}/seed=0/output.txt') == b'done\n'


def write(folder, name, value):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / name).write_text(json.dumps(value))


def test_a_run_is_done_when_it_says_so(tmp_path):
  run = tmp_path / 'run'
  assert share.read_results(str(run)) is None
  write(run, 'status.json', {'state': 'running', 'step': 3, 'steps': 9})
  write(run, 'results.json', {'metrics': {'f1': 1}})  # its export is not there
  assert share.read_results(str(run)) is None
  write(run, 'status.json', {'state': 'done', 'step': 9, 'steps': 9})
  assert share.read_results(str(run)) == {'metrics': {'f1': 1}}
  (run / 'results.json').write_text('{')
  with pytest.raises(errors.UserError, match='delete it to have it written ag'):
    share.read_results(str(run))
  os.remove(run / 'results.json')
  assert share.read_results(str(run)) is None


def check(tmp_path, text, **changes):
  c = recipes.finetuning()
  c.update_from_flattened_dict(changes)
  sweep = tmp_path / 'sweep'
  if not sweep.exists():  # without inputs to check
    write(sweep, 'sweep.json', json.loads(to_json(c)))
  share.claim_directory(str(sweep), c, grid.parse(text, c, ''))


def test_the_grid_may_change_but_nothing_else(tmp_path):
  check(tmp_path, 'seed=0,1', seed=7)
  check(tmp_path, 'seed=0,1,2 learning_rate=1e-5,2e-5', seed=8)
  check(tmp_path, 'seed=0', **{'log.every': 3})  # of no effect on results
  with pytest.raises(
    errors.UserError, match=r'\(finetuning.epochs was 0.0, is 2'
  ):
    check(tmp_path, 'seed=0', **{'finetuning.epochs': 2.0})


def test_a_run_of_another_config_is_refused(tmp_path):
  check(tmp_path, 'seed=0,1')
  run = tmp_path / 'sweep' / 'seed=1'
  (run / 'checkpoints' / '5').mkdir(parents=True)
  c = recipes.finetuning()
  c.seed, c.phases.steps, c.data.vocab_size = 1, (70,), 99  # both are filled in
  (run / 'config.json').write_text(to_json(c))
  check(tmp_path, 'seed=0,1')
  c.data.label = 'stars'
  (run / 'config.json').write_text(to_json(c))
  with pytest.raises(errors.UserError, match="seed=1 belongs.*was 'stars', is"):
    check(tmp_path, 'seed=0,1')
  os.remove(run / 'config.json')
  with pytest.raises(errors.UserError, match='seed=1.config.json is missing'):
    check(tmp_path, 'seed=0,1')


def test_inputs_are_checked_before_a_sweep_claims_its_folder(tmp_path):
  sweep = tmp_path / 'sweep'
  c = made.configure(tmp_path)
  texts = c.data.input

  def check(**changes):
    with c.ignore_type():
      c.update_from_flattened_dict(changes)
    runs = grid.parse('seed=0,1', c, '')
    share.claim_directory(str(sweep), c, runs)

  with pytest.raises(errors.UserError, match=r'data.input=.*gleu'):
    check(**{'data.input': str(tmp_path / 'gleu')})
  with pytest.raises(errors.UserError, match='reinit_layers=9 is more than'):
    check(**{'data.input': texts, 'finetuning.reinit_layers': 9})
  assert not sweep.exists()
  check(**{'finetuning.reinit_layers': 0})
  (tmp_path / 'texts' / 'train.csv').unlink()
  check()  # the sweep has begun, and nothing is read again


@pytest.mark.parametrize('name', ['output.txt', '.sweep.lock'])
def test_no_link_is_followed(tmp_path, name):
  mine = tmp_path / 'mine'
  (tmp_path / 'sweep' / 'seed=0').mkdir(parents=True)
  os.symlink(mine, tmp_path / 'sweep' / 'seed=0' / name)
  kinds = errors.UserError, PermissionError
  with pytest.raises(kinds, match='it is a link'):
    work(tmp_path / 'sweep', 1)
  assert not mine.exists()


@pytest.mark.parametrize(
  ('codes', 'code'), [([], 0), ([75, 70], 70), ([70, 1, 75], 1), ([-9], 70)]
)
def test_a_sweep_ends_as_its_runs_did(codes, code):
  assert share.report_failures(dict(enumerate(codes))) == code
