"""Trains BERT-Tiny here and elsewhere, from equal weights and batches.

  python benchmarks/parity/training_parity.py hf --torch=PYTHON
  python benchmarks/parity/training_parity.py google [--cores=4]

`hf` compares --config=...:profile=hf with transformers' BertForPreTraining,
torch.optim.AdamW and the linear schedule of transformers: 200 steps, losses
equal to 1e-4 throughout. PYTHON has torch and transformers 4 or 5.
`google` compares profile=google, with one micro-batch per core, with
numpy_bert.py: 20 steps, losses equal to 1e-5.
Dropout is off. The data pipeline makes the batches from python-docs.
"""

import argparse
import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

_STEPS = {'hf': 200, 'google': 20}
_TOLERANCE = {'hf': 1e-4, 'google': 1e-5}
_BATCH = 16
# Fields of transformers' config and ours.
_SIZES = {
  'vocab_size': 'data.vocab_size',
  'hidden_size': 'model.hidden_size',
  'num_hidden_layers': 'model.num_layers',
  'num_attention_heads': 'model.num_heads',
  'intermediate_size': 'model.mlp_size',
  'layer_norm_eps': 'model.norm_epsilon',
}


def get_config(profile, cores):
  """Returns BERT-Tiny on some of python-docs, with a profile."""
  from bert_jax import config as config_lib
  from bert_jax import config_check

  steps = _STEPS[profile]
  c = config_lib.apply_arguments(
    config_lib.pretraining('tiny'),
    f'profile={profile},model.dropout=0,attention_dropout=0,vocab_size=2000,'
    'max_documents=200,passes=1,shards=2,heldout=0.1,learning_rate=1e-3,'
    f'warmup_steps={steps // 5}',
  )
  c.phases.update(seq_length=(64,), steps=(steps,), max_predictions=(10,))
  c.phases.update(batch_size=(_BATCH,), accumulate=(cores,))
  config_check.check(c)
  return c


def start(c, directory):
  """Returns (objective, first state, batches)."""
  import jax

  from bert_jax.pretraining import pretrain, training_data
  from bert_jax.train import optimizer as optimizer_lib
  from bert_jax.train import step as step_lib
  from bert_jax.train import task

  training_data.prepare_data(c, directory)
  made = pretrain.make_task(c, training_data.check_data(c, directory))
  objective, tx = made.objective(c), optimizer_lib.make(c.optimizer)
  state = step_lib.init_state(
    jax.random.key(c.seed), objective=objective, tx=tx
  )
  (phase,) = task.list_phases(c)
  batches = [made.train_batch(phase, step) for step in range(phase.steps)]
  return objective, state, batches


def ours(c, objective, state, batches):
  """Returns the losses [steps, 2], MLM and NSP, before each update."""
  import jax

  from bert_jax.parallel import device_mesh
  from bert_jax.train import optimizer as optimizer_lib
  from bert_jax.train import step as step_lib
  from bert_jax.train import task, update

  (phase,) = task.list_phases(c)
  mesh = device_mesh.make_mesh(devices=jax.devices()[:1])
  how = dataclasses.replace(
    update.make_update(c, objective, phase, mesh),
    schedule=optimizer_lib.schedule(c.optimizer, len(batches)),
  )
  step = jax.jit(functools.partial(step_lib.train_step, update=how))
  key = jax.random.key(c.seed)
  losses = []
  for batch in batches:
    state, metrics = step(state, batch, key)
    sums = metrics['sums']
    losses.append(
      [float(a) / float(n) for a, n in (sums['mlm_loss'], sums['nsp_loss'])]
    )
  return np.array(losses)


def _words(c, state):
  """Returns the parameters without padding rows."""
  import jax

  from bert_jax.model import parameters

  params = jax.device_get(state.params)
  return parameters.drop_padding_rows(params, c.data.vocab_size)


def in_google(c, state, batches):
  """Returns the losses of numpy_bert."""
  import numpy_bert

  from bert_jax import config as config_lib
  from bert_jax.interop import rename

  bert = config_lib.model_config(c)
  weights = rename.to_google(_words(c, state), bert)
  weights = {name: x.astype(np.float64) for name, x in weights.items()}
  return numpy_bert.train(
    weights,
    batches,
    heads=c.model.num_heads,
    cores=c.phases.accumulate[0],
    peak=c.optimizer.learning_rate,
    warmup=c.optimizer.warmup_steps,
    steps=len(batches),
  )


def in_torch(c, state, batches, directory, python):
  """Returns the losses of transformers, run by its own interpreter."""
  from bert_jax import config as config_lib
  from bert_jax.interop import rename

  fields = config_lib.flatten(c)
  weights = rename.to_hf(_words(c, state), config_lib.model_config(c))
  np.savez(os.path.join(directory, 'weights'), **weights)
  np.savez(
    os.path.join(directory, 'batches'),
    **{key: np.stack([b[key] for b in batches]) for key in batches[0]},
  )
  settings = {key: fields[name] for key, name in _SIZES.items()}
  settings['optimizer'] = c.optimizer.to_dict()
  with open(os.path.join(directory, 'settings.json'), 'w') as file:
    json.dump(settings, file)
  command = [python, __file__, 'hf', f'--directory={directory}']
  subprocess.run(command, check=True)
  return np.load(os.path.join(directory, 'losses.npy'))


def theirs(directory):
  """Trains with transformers and writes the losses."""
  import torch
  import transformers

  with open(os.path.join(directory, 'settings.json')) as file:
    settings = json.load(file)
  optimizer = settings.pop('optimizer')
  config = transformers.BertConfig(
    **settings,
    hidden_act='gelu',
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
  )
  bert = transformers.BertForPreTraining(config)
  with np.load(os.path.join(directory, 'weights.npz')) as file:
    weights = {key: torch.tensor(x) for key, x in file.items()}
  missing, unexpected = bert.load_state_dict(weights, strict=False)
  tied = {'cls.predictions.decoder.weight', 'cls.predictions.decoder.bias'}
  if unexpected or set(missing) - tied:
    sys.exit(f'error: missing {missing}, unexpected {unexpected}')
  bert.tie_weights()
  with np.load(os.path.join(directory, 'batches.npz')) as file:
    batches = {key: torch.tensor(x) for key, x in file.items()}
  losses = train_theirs(bert, batches, optimizer)
  np.save(os.path.join(directory, 'losses.npy'), losses)
  print(f'transformers {transformers.__version__}, torch {torch.__version__}')


def train_theirs(bert, batches, optimizer):
  """Returns [MLM loss, NSP loss] of every step of a model of transformers."""
  import torch
  import transformers

  groups = [{'params': []}, {'params': [], 'weight_decay': 0.0}]
  for name, parameter in bert.named_parameters():
    groups[bool(re.search('LayerNorm|bias', name))]['params'].append(parameter)
  tx = torch.optim.AdamW(
    groups,
    lr=optimizer['learning_rate'],
    betas=(optimizer['b1'], optimizer['b2']),
    eps=optimizer['epsilon'],
    weight_decay=optimizer['weight_decay'],
  )
  steps = len(batches['input_ids'])
  schedule = transformers.get_linear_schedule_with_warmup(
    tx, optimizer['warmup_steps'], steps
  )
  nll = torch.nn.CrossEntropyLoss()
  losses = []
  for step in range(steps):
    b = {key: x[step].long() for key, x in batches.items()}
    real = b['masked_lm_weights'] == 1
    labels = torch.full_like(b['input_ids'], -100)
    row = torch.arange(len(labels))[:, None].expand(real.shape)
    labels[row[real], b['masked_lm_positions'][real]] = b['masked_lm_ids'][real]
    out = bert(
      input_ids=b['input_ids'],
      attention_mask=b['input_mask'],
      token_type_ids=b['segment_ids'],
      labels=labels,
      next_sentence_label=b['next_sentence_labels'],
    )
    nsp = nll(out.seq_relationship_logits, b['next_sentence_labels'])
    losses.append([out.loss.item() - nsp.item(), nsp.item()])
    tx.zero_grad()
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(bert.parameters(), optimizer['clip_norm'])
    tx.step()
    schedule.step()
  return losses


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('profile', choices=_STEPS)
  parser.add_argument('--torch', help='interpreter with torch and transformers')
  parser.add_argument('--cores', type=int, default=4, help='google: TPU cores')
  parser.add_argument('--directory', help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.directory:
    theirs(args.directory)
    return 0
  if args.profile == 'hf' and not args.torch:
    parser.error('hf needs --torch')
  c = get_config(args.profile, args.cores if args.profile == 'google' else 1)
  with tempfile.TemporaryDirectory() as directory:
    objective, state, batches = start(c, directory)
    here = ours(c, objective, state, batches)
    if args.profile == 'hf':
      there = in_torch(c, state, batches, directory, args.torch)
    else:
      there = in_google(c, state, batches)
  for i, name in enumerate(('MLM', 'NSP')):
    print(f'{name} loss {here[0, i]:.4f} at first, {here[-1, i]:.4f} at last')
  difference = np.abs(here - there).max(1)
  for step in (0, len(here) // 4, len(here) // 2, len(here) - 1):
    print(f'step {step:>3}: losses differ by {difference[step]:.1e}')
  limit = _TOLERANCE[args.profile]
  good = bool(difference.max() <= limit)
  print(
    f'{"PASS" if good else "FAIL"}: {len(here)} steps, losses differ by '
    f'{difference.max():.1e} at most (allowed {limit:.0e})'
  )
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
