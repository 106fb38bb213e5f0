"""The command finds the row behind a jump of the loss."""

import contextlib
import io
import os

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


@pytest.mark.slow
def test_the_poison_behind_a_spike_is_shown_first(tmp_path, capsys):
  path = preparation.write_corpus(tmp_path / 'text.txt', documents=450)
  with open(path, 'a', encoding='utf-8') as file:
    for word in POISON:
      file.write('\n\n' + '\n'.join([' '.join([word] * 9) + '.'] * 5))
  workdir = str(tmp_path / 'run')
  with contextlib.redirect_stdout(io.StringIO()):
    main.run(small_config(path), workdir)
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  spikes = [row for row in rows if row['kind'] == 'spike']
  assert spikes
  for spike in spikes:
    step = spike['step']
    commands.run(replay, f'--workdir={workdir}', f'--step={step}')
    title, _, first, *rest = capsys.readouterr().out.splitlines()
    assert title.startswith(f'step {step}, with the weights of step ')
    assert any(word in first for word in POISON)
    losses = [float(line.split()[1]) for line in (first, *rest)]
    assert len(losses) == 4 and losses == sorted(losses, reverse=True)
