"""Tests of how processes share the runs of a sweep out.

Runs here are a small program that leaves what a run leaves.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_jax import config as config_lib
from bert_jax import errors
from bert_jax.runtime import storage
from bert_jax.sweep import __main__ as command
from bert_jax.sweep import grid, share, summary

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
                       'baseline': {'f1': 0}, 'problem': None,
                       'task': 'mrpc', 'init_from': '', 'counts': {'dev': 9}})
write('status.json', {'state': 'done'})
"""


def make_runs(seeds):
  values = ','.join(map(str, range(seeds)))
  return grid.parse(f'seed={values}', config_lib.finetuning())


def make_sweep(folder, seeds=3, actions=None):
  def command(run):
    action = (actions or {}).get(run.seed, 'quick')
    return [sys.executable, '-S', '-c', _RUN, f'0.{run.seed}', action]

  return share.Sweep(str(folder), make_runs(seeds), command)


def count_starts(folder):
  return {
    name: len(storage.read(os.path.join(folder, name, 'starts')))
    for name in sorted(os.listdir(folder))
  }


def test_every_run_is_done_once(tmp_path, capsys):
  noted = []
  sweep = make_sweep(tmp_path)
  sweep.finish(lambda: noted.append(len(noted)))
  assert sweep.failed == {} and noted == [0, 1, 2]
  assert capsys.readouterr().out.splitlines() == [
    *('seed=0 (1 of 3)', '  f1 0.0000'),
    *('seed=1 (2 of 3)', '  f1 0.1000'),
    *('seed=2 (3 of 3)', '  f1 0.2000'),
  ]
  make_sweep(tmp_path, seeds=4).finish(lambda: None)
  assert 'seed=3 (4 of 4)' in capsys.readouterr().out
  assert count_starts(tmp_path) == {f'seed={i}': 1 for i in range(4)}


def test_after_a_failure_the_others_go_on(tmp_path, capsys):
  sweep = make_sweep(tmp_path, actions={'1': 'fail'})
  sweep.finish(lambda: None)
  assert sweep.failed == {'seed=1': 1}
  out = capsys.readouterr().out
  assert '  FAILED (exit code 1):\n    begins\n    error: no luck\n' in out
  assert sweep.render()[1] == '2/3   0.1000 ± 0.1414  0.2000  seed=1 failed'
  sweep = make_sweep(tmp_path)  # the cause was removed
  sweep.finish(lambda: None)
  assert sweep.failed == {}
  assert count_starts(tmp_path) == {'seed=0': 1, 'seed=1': 2, 'seed=2': 1}
  output = (tmp_path / 'seed=1' / 'output.txt').read_text()
  assert output == 'begins\nerror: no luck\nbegins\n'


def test_ctrl_c_reaches_the_run_which_saves(tmp_path, capsys):
  sweep = make_sweep(tmp_path, actions={'1': 'long'})
  path = tmp_path / 'seed=1' / 'output.txt'

  def interrupt():
    while not (path.exists() and path.read_text()):
      time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

  threading.Thread(target=interrupt).start()
  with pytest.raises(errors.Interrupted, match='resume with the same command'):
    sweep.finish(lambda: None)
  assert 'seed=1: saved' in capsys.readouterr().out
  assert not (tmp_path / 'seed=2').exists()


_SHARE = """
import sys
from tests.sweep import share_test
sweep = share_test.make_sweep(sys.argv[1], 6, dict.fromkeys('012345', 'slow'))
print('ready', flush=True)
sys.stdin.readline()
sweep.finish(lambda: None)
print(sum(line is not None for line in sweep.render()[1:]))
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
    sweep = make_sweep(tmp_path, 6)
    sweep.finish(lambda: None)
  results = {name: x.results for name, x in sweep.found.items()}
  found = summary.summarise(make_runs(6), results)
  assert found['done'] == 6 and found['best']['value'] == 0.5


def test_a_sweep_may_be_in_a_bucket(remote, tmp_path):
  """The runs write to a local folder, from which the test copies."""
  run = make_runs(1)[0]
  for name, value in (
    ('results.json', {'metrics': {'f1': 1}, 'baseline': {}, 'problem': None}),
    ('status.json', {'state': 'done'}),
  ):
    (tmp_path / name).write_text(json.dumps(value))

  program = f"""
import sys
from bert_jax.runtime import storage
workdir = sys.argv[1].partition('=')[2]
for name in ('results.json', 'status.json'):
  storage.upload('{tmp_path}/' + name, workdir + '/' + name)
print('done')
"""
  sweep = share.Sweep(
    remote, [run], lambda run: [sys.executable, '-c', program]
  )
  sweep.finish(lambda: None)
  assert sweep.failed == {} and sweep.found['seed=0'].results['metrics']
  assert storage.read(f'{remote}/seed=0/output.txt') == b'done\n'


@pytest.mark.parametrize(
  ('codes', 'code'),
  [([], 0), ([75, 75], 75), ([75, 70], 70), ([70, 1, 75], 1), ([-9], 70)],
)
def test_a_sweep_ends_as_its_runs_did(codes, code):
  assert command.choose_exit_code(codes) == code
