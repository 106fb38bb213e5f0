"""The command: many runs, their table, and how it is continued."""

import json
import signal
import time

import pytest

from bert_jax import errors
from bert_jax import sweep as command
from tests import commands, processes
from tests.finetuning import made


def start(workdir, grid, *more):
  given = f'--workdir={workdir}', *more, f'--grid={grid}'
  return processes.start('bert_jax.sweep', *given)


def test_pretraining_is_refused(tmp_path):
  given = f'--workdir={tmp_path}/sweep', '--config=configs/tiny.py'
  with pytest.raises(errors.UserError, match='pre-training does not have'):
    commands.run(command, *given, '--grid=seed=1')
  assert not (tmp_path / 'sweep').exists()


@pytest.mark.slow
def test_a_sweep_that_is_interrupted_goes_on(tmp_path):
  source = made.write_source(tmp_path / 'source')
  texts = made.write_texts(tmp_path / 'texts')
  sweep = tmp_path / 'sweep'
  config = [
    '--config=configs/classify.py',
    f'--config.data.input={texts}',
    f'--config.init_from={source}',
    '--config.phases.batch_size=8',
    '--config.phases.seq_length=16',
    '--config.finetuning.epochs=20',
    '--config.eval.every=120',
    '--config.log.every=1',
  ]
  process = start(sweep, 'learning_rate=1e-2,3e-2', *config)
  log = sweep / 'learning_rate=0.01' / 'metrics.jsonl'
  while not (log.exists() and '"kind": "train"' in log.read_text()):
    assert process.poll() is None, process.communicate()[0]
    time.sleep(0.01)
  process.send_signal(signal.SIGINT)
  output = process.communicate()[0]
  assert process.returncode == 130, output
  assert 'resume with the same command' in output
  status = json.loads((log.parent / 'status.json').read_text())
  assert status['state'] == 'interrupted'
  assert 0 < status['checkpoint'] == status['step'] < status['steps'] == 120

  process = start(sweep, 'learning_rate=1e-2,3e-2', *config)
  output = process.communicate()[0]
  assert process.returncode == 0, output
  assert 'resumed at step' in (log.parent / 'output.txt').read_text()
  found = json.loads((sweep / 'results.json').read_text())
  assert found['done'] == 2 and found['best']['value'] == 1
  assert 'best run: learning_rate=0.01, accuracy 1.0000' in output
