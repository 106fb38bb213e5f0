"""The command: a table's runs, their order, its page, and how it goes on."""

import os
import shutil
import sys

import pytest

from bert_jax import errors
from bert_jax import reproduce as command
from bert_jax.experiments import share
from tests import commands, processes
from tests.data import preparation
from tests.finetuning import made

# Two rows, of which each seed is a run of pre-training and one of fine-tuning.
_TABLES = """
import runpy
known = runpy.run_path({path!r})
Column, Row, Table = (known[x] for x in ('Column', 'Row', 'Table'))
arguments = 'epochs=4,batch_size=8,seq_length=16,learning_rate=1e-2'
def get_tables(c):
  return {{'9': Table(
    'Table 9',
    {{'cats': Column('classify.py:' + arguments, 'texts', '{{}}/texts')}},
    (Row('BERT', (99.0,)), Row('No NSP', (98.0,), {{'objective.nsp': False}})),
    (('BERT', 'No NSP'),),
    'nothing.',
    seeds=2,
  )}}
"""
_NAMES = [
  f'{x}seed={i}{y}'
  for i in '01'
  for y in ('', '+texts')
  for x in ('', 'nsp=False+')
]


@pytest.fixture
def arguments(tmp_path):
  """Returns the command's arguments, of a small table in its own folder."""
  configs = tmp_path / 'configs'
  shutil.copytree(os.path.join(processes.ROOT, 'configs'), configs)
  path = os.path.join(processes.ROOT, 'configs', 'tables.py')
  (configs / 'tables.py').write_text(_TABLES.format(path=path))
  made.write_texts(tmp_path / 'texts')
  text = preparation.write_corpus(tmp_path / 'corpus.txt')
  fields = 'vocab_size=120,steps=12,checkpoint.every=4,log.every=1'
  return [
    '--table=9',
    f'--config={configs}/tiny.py:smoke,{fields}',
    f'--config.data.input={text}',
    '--config.data.layout=sentences',
    f'--workdir={tmp_path}/table',
    f'--data={tmp_path}',
  ]


# Leaves what a run leaves; a line of `order` for each that is begun.
_RUN = """
import json, os, sys
workdir = sys.argv[-1].partition('=')[2]
name = os.path.basename(workdir)
def write(path, text):
  path = os.path.join(workdir, path)
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with open(path, 'w') as file:
    file.write(text)
with open(os.path.join(workdir, '..', 'order'), 'a') as file:
  print(name, file=file)
if os.path.exists(os.path.join(workdir, '..', '..', 'broken')):
  sys.exit('error: no luck')
metrics = {'mlm_loss': 2.5, 'mlm_perplexity': 12.2}
if 'texts' in name:
  metrics = {'accuracy': 0.5}
  second = 'x' if 'nsp' in name else 'y'
  rows = ['label', 'prediction'], *[['y', second], ['y', 'y']] * 50
  write('predictions/dev.tsv', ''.join('\\t'.join(x) + '\\n' for x in rows))
write('results.json', json.dumps({'metrics': metrics}))
write('status.json', json.dumps({'state': 'done'}))
"""


@pytest.fixture
def fake(monkeypatch):
  """Replaces the runs by a small program; returns {name: command} of them."""
  asked = {}

  make_command = share.make_command

  def make_fake(run, overrides):
    asked[run.name] = make_command(run, overrides)
    return [sys.executable, '-S', '-c', _RUN]

  monkeypatch.setattr(share, 'make_command', make_fake)
  return asked


@pytest.fixture
def run(monkeypatch, fake, arguments):
  """Returns a function that runs the command with more arguments."""

  def run(*more):
    # Flags of single fields are looked for there.
    monkeypatch.setattr(sys, 'argv', ['x', *arguments, *more])
    return commands.run(command, *arguments, *more)

  return run


def read_order(tmp_path):
  return (tmp_path / 'table' / 'order').read_text().split()


def test_the_runs_of_a_table_become_its_page(tmp_path, run, fake, capsys):
  (tmp_path / 'broken').touch()
  assert run() == errors.MISTAKE
  assert read_order(tmp_path) == [x for x in _NAMES if 'texts' not in x]
  assert 'failed: nsp=False+seed=1; see output.txt' in capsys.readouterr().out
  os.remove(tmp_path / 'broken')
  os.remove(tmp_path / 'table' / 'order')
  assert run() == 0
  # Seed by seed, so that an unfinished table is one of fewer seeds.
  assert read_order(tmp_path) == _NAMES
  text = (tmp_path / 'table' / 'table9.md').read_text()
  assert '`python -m bert_jax.reproduce --table=9 --config=' in text
  assert '8 of 8 runs done' in text
  assert '| 99.0 / 100.0 ± 0.0 (2) |' in text
  assert '| 98.0 / 50.0 ± 0.0 (2) |' in text
  assert '| cats | BERT > No NSP | +50.0 |' in text and '| shown |' in text
  run()
  assert read_order(tmp_path) == _NAMES  # nothing is done again
  for name, words in fake.items():
    is_model = 'texts' not in name
    assert (f'--config.data.dir={tmp_path}/table/data' in words) == is_model
    assert ('--config.data.layout=sentences' in words) == is_model


def test_a_plan_does_nothing_and_says_what_is_missing(tmp_path, run, capsys):
  assert run('--dry_run', '--gflops=1') == 0
  out = capsys.readouterr().out
  assert out.startswith('0 of 8 runs done, 0.00e+00 FLOPs; left ')
  assert out.endswith(' hours of training\n')
  with pytest.raises(errors.UserError, match='--data=.*data does not exist'):
    run(f'--data={tmp_path}/data')
  (tmp_path / 'empty').mkdir()
  assert run('--dry_run', f'--data={tmp_path}/empty') == 0
  said, cost = capsys.readouterr().out.splitlines()
  assert said == f'no cats: {tmp_path}/empty has no texts'
  assert cost.startswith('0 of 4 runs done')
  os.remove(tmp_path / 'configs' / 'tables.py')
  with pytest.raises(FileNotFoundError, match='configs/tables.py'):
    run()
  assert not (tmp_path / 'table').exists()


def test_another_budget_or_table_is_refused(run):
  with pytest.raises(errors.UserError, match='--table=5 is not one of 9'):
    run('--table=5')
  assert run() == 0
  with pytest.raises(errors.UserError, match=r'steps was \[12\], is \[13\]'):
    run('--config.phases.steps=13')
