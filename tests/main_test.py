"""The whole program: text in, exported model out, whatever happens between."""

import json
import os
import shlex
import signal
import time

import pytest

from bert_jax import convert, errors, main
from bert_jax.config import apply_arguments, recipes
from bert_jax.inference import source
from bert_jax.interop import hugging_face
from bert_jax.runtime import storage
from bert_jax.workdir import log
from tests import commands, processes
from tests.data import preparation


def start(workdir, text, *more):
  return processes.start(
    *('bert_jax.main', f'--workdir={workdir}'),
    '--config=configs/tiny.py:smoke,steps=30,vocab_size=120,'
    'checkpoint.every=4,eval.every=10,log.every=1,accumulate=2',
    *(f'--config.data.input={text}', '--config.data.layout=sentences'),
    *more,
  )


def wait_for_step(process, workdir, step):
  """Waits until a run has logged a step, however slow this machine is."""
  path = os.path.join(workdir, 'metrics.jsonl')
  while process.poll() is None:
    if any(r['step'] >= step for r in log.read(path) if r['kind'] == 'train'):
      return
    time.sleep(0.01)
  pytest.fail(f'ended before step {step}:\n{process.communicate()[0]}')


def last_fingerprint(workdir):
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  return [r['fingerprint'] for r in rows if r['kind'] == 'checkpoint'][-1]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Returns (workdir, texts, output) of an uninterrupted run of two inputs."""
  root = tmp_path_factory.mktemp('main')
  text = ','.join(
    preparation.write_corpus(root / f'text{i}.txt', 60, i) for i in range(2)
  )
  process = start(root / 'run', text)
  output = process.communicate()[0]
  assert process.returncode == 0, output
  return root / 'run', text, output


@pytest.mark.slow
def test_a_run_says_what_it_does_and_what_to_do_next(whole):
  workdir, _, output = whole
  for words in (
    'optimizer.learning_rate=0.002',
    'unigram entropy of the corpus',
    'initial loss',
    'step 30/30',
    'held-out at step 30',
    'fingerprint=' + last_fingerprint(workdir),
    f'python -m bert_jax.fill_mask --model={workdir}/export',
  ):
    assert words in output
  assert output.count('the model: ') == 3
  # The command to try has a sentence of the text that was shown.
  [line] = [x for x in output.splitlines() if 'bert_jax.fill_mask' in x]
  sentence = shlex.split(line)[-1]
  assert f'\n  {sentence}\n' in output and '[MASK]' in sentence
  assert 'accents are stripped: 0.0%' in output
  assert 'Traceback' not in output


@pytest.mark.slow
def test_a_run_exports_what_it_trained_as_convert_does(whole, tmp_path):
  workdir, _, _ = whole
  params, config, tokenizer, *_ = hugging_face.read(str(workdir / 'export'))
  assert (config.num_layers, config.hidden_size) == (2, 64)
  assert params['embeddings']['word']['embedding'].shape == (120, 64)
  card = (workdir / 'export' / 'README.md').read_text('utf-8')
  rows = log.read(str(workdir / 'metrics.jsonl'))
  last = [r for r in rows if r['kind'] == 'eval'][-1]
  assert f'| step 30 | {last["mlm_loss"]:.3f} |' in card
  assert tokenizer.size == 120
  given = [f'--from={workdir}', f'--to={tmp_path / "again"}', '--format=hf']
  commands.run(convert, *given)
  for name in sorted(os.listdir(workdir / 'export')):
    again = (tmp_path / 'again' / name).read_bytes()
    assert again == (workdir / 'export' / name).read_bytes(), name


@pytest.mark.slow
def test_killed_and_stopped_runs_end_like_the_whole_one(whole, tmp_path):
  workdir, text, _ = whole
  use = f'--config.data.dir={workdir}/data'
  run = tmp_path / 'run'
  process = start(run, text, use)
  wait_for_step(process, run, 5)
  process.kill()
  process.communicate()
  process = start(run, text, use)
  wait_for_step(process, run, 13)
  process.send_signal(signal.SIGTERM)
  output = process.communicate()[0]
  assert process.returncode == 143, output
  assert 'stopped: resume with the same command.' in output
  found = json.loads((run / 'status.json').read_text())
  assert (found['state'], found['exit_code']) == ('interrupted', 143)
  assert found['checkpoint'] == found['step'] >= 13
  process = start(run, text, use)
  output = process.communicate()[0]
  assert process.returncode == 0, output
  assert 'resumed at step' in output
  assert last_fingerprint(run) == last_fingerprint(workdir)
  ours, theirs = (
    json.loads((x / 'results.json').read_text()) for x in (run, workdir)
  )
  assert ours == theirs and ours['step'] == 30
  assert next(iter(ours['metrics'])) == 'mlm_loss'
  steps = [
    r['step'] for r in log.read(run / 'metrics.jsonl') if r['kind'] == 'train'
  ]
  assert steps == list(range(1, 31))


def small_config(text, arguments=''):
  """Returns that of a run of one phase, which compiles soon."""
  c = recipes.pretraining('tiny')
  phase = {'seq_length': 16, 'steps': 8, 'batch_size': 8}
  phase |= {'accumulate': 1, 'max_predictions': 3}
  c.phases.update({name: (value,) for name, value in phase.items()})
  return apply_arguments(
    c,
    'smoke,steps=8,num_layers=1,hidden_size=8,mlp_size=8,vocab_size=120,'
    f'log.every=1,workers=1,input={text},layout=sentences,{arguments}',
  )


def test_what_cannot_work_is_said_before_the_config(tmp_path, capsys):
  (tmp_path / 'file').touch()
  c = small_config(str(tmp_path / 'nowhere.txt'))
  for name, problem in (('file', 'File exists'), ('run', 'nowhere.txt')):
    with pytest.raises(errors.UserError, match=problem):
      main.run(c, str(tmp_path / name))
  assert 'vocab_size' not in capsys.readouterr().out


def run_until_stopped(c, workdir):
  """Runs until SIGTERM, which comes after update 3."""

  def stop(self, kind, step, values, write=log.Log.write):
    write(self, kind, step, values)
    if (kind, step) == ('train', 3):
      os.kill(os.getpid(), signal.SIGTERM)

  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(log.Log, 'write', stop)
    with pytest.raises(errors.Interrupted):
      main.run(c, workdir)


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_what_may_change(tmp_path, capfd):
  text = preparation.write_corpus(tmp_path / 'text.txt')
  run = str(tmp_path / 'run')
  run_until_stopped(small_config(text), run)
  with pytest.raises(errors.UserError, match='belongs to another config'):
    main.run(small_config(text, 'learning_rate=0.5,mesh.model=2'), run)
  capfd.readouterr()
  same = 'workers=0,eval.every=5,eval.sequences=8'
  other = 'mesh.model=2,remat=layer'
  main.run(small_config(text, f'{same},{other}'), run)
  out = capfd.readouterr().out
  assert 'resumed at step' in out
  (line,) = [x for x in out.splitlines() if 'no longer bit-identical' in x]
  assert "compute.remat was 'none', is 'layer'; mesh.model was 1, is 2" in line
  (line,) = [x for x in out.splitlines() if 'not change the result' in x]
  assert 'data.workers was 1, is 0; eval.every was 1' in line

  rows = log.read(os.path.join(run, 'metrics.jsonl'))
  first, second = (row['changed'] for row in rows if row['kind'] == 'run')
  assert first == {} and second['mesh.model'] == {'was': 1, 'is': 2}
  assert len(second) == 5
  steps = [row['step'] for row in rows if row['kind'] == 'train']
  assert steps == list(range(1, 9))
  with open(os.path.join(run, 'config.json'), encoding='utf-8') as file:
    fields = json.load(file)
  assert fields['mesh.model'] == 2 and fields['eval.every'] == 5


@pytest.mark.slow
def test_a_run_in_a_bucket_ends_like_that_on_disk(
  tmp_path, remote, monkeypatch
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  text = preparation.write_corpus(tmp_path / 'text.txt')
  disk = str(tmp_path / 'run')
  main.run(small_config(text), disk)
  run_until_stopped(small_config(text), remote)
  status = json.loads(storage.read(f'{remote}/status.json'))
  assert (status['state'], status['exit_code']) == ('interrupted', 143)
  assert status['checkpoint'] == status['step'] < 8
  main.run(small_config(text), remote)
  status = json.loads(storage.read(f'{remote}/status.json'))
  assert (status['state'], status['exit_code']) == ('done', 0)
  assert status['checkpoint'] == status['step'] == 8 and status['loss']
  rows = log.read(f'{remote}/metrics.jsonl')
  steps = [row['step'] for row in rows if row['kind'] == 'train']
  assert steps == list(range(1, 9))
  assert last_fingerprint(remote) == last_fingerprint(disk)
  for name in sorted(os.listdir(f'{disk}/export')):
    with open(f'{disk}/export/{name}', 'rb') as file:
      assert storage.read(f'{remote}/export/{name}') == file.read(), name
  model = source.read(remote)
  assert (model.step, model.tokenizer.size) == (8, 120)


_EARLY = """
import sys
from bert_jax import config, errors, main

c = config.pretraining('tiny')
config.apply_arguments(c, sys.argv[1])
try:
  main.check_early(c)
except errors.UserError as error:
  print(error)
print('jax' in sys.modules)
"""


@pytest.mark.parametrize(
  ('given', 'said'),
  [
    ('input=nope.txt', "input 'nope.txt' names no file; "),
    ('layout=file', "data.layout='file' is not one of "),
    ('phases.batch_size=0', 'phases.batch_size=(0, 0) must be at least 1'),
    (
      'optimizer.warmup_steps=9000000',
      'optimizer.warmup_steps=9000000 leaves ',
    ),
  ],
)
def test_a_wrong_path_or_field_is_told_before_jax_is_imported(given, said):
  done = processes.run_code(_EARLY, given)
  assert done.stdout.startswith(said), done.stderr
  assert done.stdout.endswith('\nFalse\n')
