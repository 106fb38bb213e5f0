"""The command: a spike that the log names is found, and wrong use refused."""

import contextlib
import io
import json
import os
import re

import pytest

from bert_jax import main, replay
from bert_jax.config import apply_arguments, recipes
from bert_jax.workdir import log
from tests import commands
from tests.data import preparation

POISON = 'zebra quartz jigsaw'.split()
STEPS = 370  # all rows


def small_config(text):
  c = recipes.pretraining('tiny')
  phase = {'seq_length': 32, 'steps': STEPS, 'batch_size': 4}
  phase |= {'accumulate': 1, 'max_predictions': 5}
  c.phases.update({name: (value,) for name, value in phase.items()})
  return apply_arguments(
    c,
    'num_layers=1,hidden_size=16,mlp_size=16,max_positions=32,'
    f'input={text},layout=sentences,vocab_size=120,min_chars=0,heldout=0.05,'
    'passes=1,shards=2,workers=0,'
    # With them, the poison is known, and its loss is no jump.
    'unigram_bias=False,word_vectors=False,sampled_words=60,'
    'learning_rate=1e-2,warmup_steps=10,eval.every=0,eval.sequences=8,'
    'log.every=1,checkpoint.every=60,checkpoint.keep=99',
  )


@pytest.fixture(scope='module')
def poisoned(tmp_path_factory):
  """Returns (workdir, output) of a run on text with a poisoned document."""
  root = tmp_path_factory.mktemp('poisoned')
  path = preparation.write_corpus(root / 'text.txt', documents=450)
  with open(path, 'a', encoding='utf-8') as file:
    for word in POISON:
      file.write('\n\n' + '\n'.join([' '.join([word] * 9) + '.'] * 5))
  with contextlib.redirect_stdout(io.StringIO()) as output:
    main.run(small_config(path), str(root / 'run'))
  return str(root / 'run'), output.getvalue()


def read_log(workdir, kind):
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  return [row for row in rows if row['kind'] == kind]


def run(workdir, step, folder, *more):
  """Returns what the command writes as JSON."""
  path = str(folder / 'found.json')
  commands.run(
    replay, f'--workdir={workdir}', f'--step={step}', f'--json={path}', *more
  )
  with open(path, encoding='utf-8') as file:
    return json.load(file)


@pytest.mark.slow
def test_the_named_command_shows_the_poison_behind_a_spike(
  poisoned, tmp_path, capsys
):
  workdir, output = poisoned
  spikes = read_log(workdir, 'spike')
  named = re.findall(
    r'step (\d+): loss .*: python -m bert_jax.replay --workdir=(\S+) '
    r'--step=(\d+)$',
    output,
    re.MULTILINE,
  )
  assert named and [x[0] for x in named] == [str(x['step']) for x in spikes]
  assert {(where, step) for _, where, step in named} == {
    (workdir, str(row['step'])) for row in spikes
  }
  for spike in spikes:
    found = run(workdir, spike['step'], tmp_path)
    assert found['logged']['spike'] == spike
    assert any(word in found['rows'][0]['text'] for word in POISON)
    losses = [row['loss'] for row in found['rows']]
    assert losses == sorted(losses, reverse=True)
    out = capsys.readouterr().out
    assert f'logged: spike at step {spike["step"]}: loss' in out
    assert f'\nrow {found["rows"][0]["row"]}: ' in out


@pytest.mark.slow
def test_the_rows_of_an_exact_step_add_up_to_the_logged_loss(
  poisoned, tmp_path
):
  workdir, _ = poisoned
  found = run(workdir, 61, tmp_path, '--rows=0', '--sort=gradient')
  assert found['weights_step'] == 60 and found['updates_between'] == 0
  (row,) = [x for x in read_log(workdir, 'train') if x['step'] == 61]
  total = sum(x['loss'] for x in found['rows'])
  assert total == pytest.approx(row['loss'], rel=1e-5)
  for name in ('loss', 'mlm_loss', 'nsp_loss', 'mlm_accuracy'):
    assert found[name] == pytest.approx(row[name], rel=1e-5), name
  assert found['grad_norm'] == pytest.approx(row['grad_norm'], rel=1e-4)
  norms = [x['grad_norm'] for x in found['rows']]
  assert norms == sorted(norms, reverse=True)
  assert not any('predictions' in x for x in found['rows'])
