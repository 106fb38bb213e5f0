"""Pre-training gives the losses of transformers, and of Google's procedure.

BERT-Tiny without dropout, on batches of the data pipeline from python-docs.
"""

import jax
import numpy as np
import pytest
import training_parity

from bert_jax import config, config_check
from bert_jax.interop import config_file, rename
from bert_jax.pretraining import pretrain, training_data
from bert_jax.trainer import optimizer, step, task


def start(folder, profile, steps, cores, more=''):
  """Returns (config, objective, first state, batches)."""
  c = config.apply_arguments(
    config.pretraining('tiny'),
    f'profile={profile},model.dropout=0,attention_dropout=0,vocab_size=2000,'
    'max_documents=200,passes=1,shards=2,heldout=0.1,learning_rate=1e-3,'
    f'warmup_steps={steps // 5}{more}',
  )
  c.phases.update(seq_length=(64,), steps=(steps,), max_predictions=(10,))
  c.phases.update(batch_size=(16,), accumulate=(cores,))
  config_check.check(c)
  training_data.prepare_data(c, folder)
  made = pretrain.make_task(c, training_data.check_data(c, folder))
  objective, tx = made.objective, optimizer.make(c.optimizer)
  state = step.init_state(jax.random.key(c.seed), objective=objective, tx=tx)
  (phase,) = task.list_phases(c)
  return c, objective, state, [made.train_batch(phase, i) for i in range(steps)]


def compare(here, there, most, alone=0.0):
  """Compares losses, of which one step's may differ by up to `alone`."""
  for i, name in enumerate(('MLM', 'NSP')[: here.shape[1]]):
    print(f'{name} loss {here[0, i]:.4f} at first, {here[-1, i]:.4f} at last')
  *others, worst = np.sort(np.abs(here - there).max(1))
  print(
    f'{len(here)} steps: losses differ by {worst:.1e} in one step, by '
    f'{others[-1]:.1e} in the others (at most {most:.0e})'
  )
  assert others[-1] <= most and worst <= max(alone, most)


@pytest.mark.parametrize('cores', [1, 4])
def test_losses_are_those_of_googles_procedure(tmp_path, cores):
  c, objective, state, batches = start(str(tmp_path), 'google', 20, cores)
  there = training_parity.in_google(c, state, batches)
  compare(training_parity.ours(c, objective, state, batches), there, 1e-5)


def test_losses_are_those_of_transformers(tmp_path, in_transformers):
  c, objective, state, batches = start(str(tmp_path), 'hf', 200, 1)
  bert = config.model_config(c)
  weights = rename.to_theirs(training_parity.get_words(c, state), bert, 'hf')
  arrays = {f'weights/{name}': x for name, x in weights.items()}
  arrays |= {name: np.stack([b[name] for b in batches]) for name in batches[0]}
  fields = config_file.from_config(bert)
  names = 'vocab_size', 'hidden_size', 'num_hidden_layers', 'layer_norm_eps'
  names += 'num_attention_heads', 'intermediate_size'
  job = {
    'transformers': {name: fields[name] for name in names},
    'optimizer': c.optimizer.to_dict(),
  }
  there = in_transformers('pretrain', job, arrays)['losses']
  compare(training_parity.ours(c, objective, state, batches), there, 1e-4, 1e-3)
