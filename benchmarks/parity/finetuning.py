"""Fine-tunes a head here and in transformers, from equal weights and batches.

  python benchmarks/parity/finetuning.py HEAD --torch=PYTHON

HEAD is classification, tagging, choice or spans. PYTHON has torch and transformers 4. A
BERT-Tiny with random weights is exported, and trained on 100 batches by
`train_step` here and by torch.optim.AdamW with transformers' linear schedule and
the loss of its own class there, without dropout. Rows of classification and
tagging are of different lengths; those of spans are full, since transformers lets
padding compete with the tokens for the answer. Losses must agree to 1e-4
throughout, and the logits of a further batch to 1e-4 before and after. The exit
code is 1 otherwise.
"""

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

_STEPS, _ROWS, _LENGTH, _VOCAB = 100, 16, 48, 512
_TOLERANCE = 1e-4
_CLASSES = 3
_CHOICES = 4
_AUTO = {
  'classification': 'BertForSequenceClassification',
  'tagging': 'BertForTokenClassification',
  'choice': 'BertForMultipleChoice',
  'spans': 'BertForQuestionAnswering',
}
_INPUTS = {
  'input_ids': 'input_ids',
  'input_mask': 'attention_mask',
  'segment_ids': 'token_type_ids',
}


def get_config(head):
  """Returns BERT-Tiny with a head, by the profile hf."""
  from bert_jax import config as config_lib

  c = config_lib.apply_arguments(
    config_lib.finetuning('tiny'),
    'profile=hf,model.dropout=0,attention_dropout=0,head_dropout=0,'
    # With 1e-8, transformers' default, Adam turns rounding errors of gradients
    # that are nearly 0 into updates of full size.
    f'optimizer.epsilon=1e-6,learning_rate=1e-4,warmup_steps={_STEPS // 5}',
  )
  c.task, c.data.vocab_size = head, _VOCAB
  c.finetuning.outputs = {'spans': 2, 'choice': 1}.get(head, _CLASSES)
  c.model.max_positions = 64
  c.phases.update(seq_length=(_LENGTH,), steps=(_STEPS,), batch_size=(_ROWS,))
  c.compute.attention = 'xla'
  return c


def make_batch(head, number):
  """Returns a batch in which the labels follow from the tokens."""
  random = np.random.default_rng(number)
  if head == 'choice':
    return make_choices(random)
  ids = random.integers(5, _VOCAB, (_ROWS, _LENGTH))
  lengths = random.integers(8, _LENGTH + 1, _ROWS)
  if head == 'spans':
    lengths[:] = _LENGTH
  token = np.arange(_LENGTH)
  mask = (token < lengths[:, None]).astype(np.int32)
  batch = {
    'input_ids': (ids * mask).astype(np.int32),
    'input_mask': mask,
    'segment_ids': mask * (token >= 6),
  }
  ones = np.ones(_ROWS, np.float32)
  if head == 'classification':
    labels = (batch['input_ids'][:, 1] % _CLASSES).astype(np.int32)
    return batch | {'labels': labels, 'label_weights': ones}
  if head == 'tagging':
    labels = (batch['input_ids'] % _CLASSES).astype(np.int32)
    weights = mask * (random.random(mask.shape) < 0.5)
    return batch | {
      'labels': labels, 'label_weights': weights.astype(np.float32)
    }  # fmt: skip
  first = random.integers(6, _LENGTH - 4, _ROWS)
  labels = np.stack([first, first + random.integers(0, 3, _ROWS)], -1)
  labels[random.random(_ROWS) < 0.2] = 0  # no answer
  row = np.arange(_ROWS)
  answered = labels[:, 0] > 0
  for column, word in ((0, 7), (1, 9)):
    batch['input_ids'][row[answered], labels[answered, column]] = word
  starts = np.tile([6, _LENGTH - 1], (_ROWS, 1))
  return batch | {
    'labels': labels.astype(np.int32),
    'starts': starts.astype(np.int32),
    'label_weights': ones,
  }


def make_choices(random):
  """Returns a batch in which the right choice begins with the lowest word."""
  shape = _ROWS, _CHOICES, _LENGTH
  lengths = random.integers(8, _LENGTH + 1, shape[:2])
  token = np.arange(_LENGTH)
  mask = (token < lengths[..., None]).astype(np.int32)
  ids = (random.integers(5, _VOCAB, shape) * mask).astype(np.int32)
  return {
    'input_ids': ids,
    'input_mask': mask,
    'segment_ids': mask * (token >= 6),
    'labels': ids[:, :, 6].argmin(-1).astype(np.int32),
    'label_weights': np.ones(_ROWS, np.float32),
  }


def start(c, folder):
  """Exports a model with random weights; returns (objective, first state)."""
  import jax

  from bert_jax import config as config_lib
  from bert_jax import tasks
  from bert_jax.interop import hf_export
  from bert_jax.model import classifier, parameters
  from bert_jax.tokenization import tokenizer
  from bert_jax.train import optimizer as optimizer_lib
  from bert_jax.train import step as step_lib

  objective = tasks.get(c).make_objective(c)
  state = step_lib.init_state(
    jax.random.key(0), objective=objective, tx=optimizer_lib.make(c.optimizer)
  )
  bert = config_lib.model_config(c)
  params = parameters.drop_padding_rows(jax.device_get(state.params), _VOCAB)
  layer, spans = params['classifier'], None
  if c.task == 'spans':
    spans = classifier.Spans(128, 64, 30, None)
  head = classifier.Head(
    *(layer['kernel'], layer['bias']),
    () if c.task == 'choice' else tuple(f'L{i}' for i in range(_CLASSES)),
    *(_LENGTH, (), c.task),
    spans=spans,
  )
  words = (*tokenizer.SPECIAL, *(f'w{i}' for i in range(_VOCAB - 5)))
  hf_export.export(
    folder,
    {name: x for name, x in params.items() if name != 'classifier'},
    bert,
    False,
    tokenizer.Tokenizer(words),
    head=head,
  )
  return objective, state


def ours(c, objective, state, batches, last):
  """Returns (losses before each update, logits of `last` before and after)."""
  import jax

  from bert_jax import config as config_lib
  from bert_jax.inference import fine_tuned
  from bert_jax.parallel import device_mesh
  from bert_jax.train import step as step_lib
  from bert_jax.train import task, update

  (phase,) = task.list_phases(c)
  mesh = device_mesh.make_mesh(devices=jax.devices()[:1])
  how = update.make_update(c, objective, phase, mesh)
  step = jax.jit(functools.partial(step_lib.train_step, update=how))
  module = fine_tuned.make_module(c, config_lib.model_config(c))
  rows = last
  if c.task == 'choice':
    rows = {name: last[name].reshape(-1, _LENGTH) for name in _INPUTS}
  apply, losses = jax.jit(module.apply), []
  logits = [np.asarray(apply({'params': state.params}, rows))]
  for batch in batches:
    state, metrics = step(state, batch, jax.random.key(0))
    total, count = metrics['sums'][objective.losses[0]]
    losses.append(float(total) / float(count))
  logits.append(np.asarray(apply({'params': state.params}, rows)))
  logits = np.stack(logits)
  if c.task == 'choice':
    logits = logits.reshape(2, _ROWS, _CHOICES)
  return np.array(losses), logits


def theirs(folder):
  """Trains with transformers, which runs this, and writes the same."""
  import torch
  import transformers

  with open(os.path.join(folder, 'job.json'), encoding='utf-8') as file:
    job = json.load(file)
  kind = getattr(transformers, _AUTO[job['head']])
  bert = kind.from_pretrained(
    folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
  ).train()
  with np.load(os.path.join(folder, 'batches.npz')) as file:
    batches = {name: torch.tensor(x) for name, x in file.items()}
  groups = [{'params': []}, {'params': [], 'weight_decay': 0.0}]
  for name, parameter in bert.named_parameters():
    groups[bool(re.search('LayerNorm|bias', name))]['params'].append(parameter)
  o = job['optimizer']
  tx = torch.optim.AdamW(
    groups,
    lr=o['learning_rate'],
    betas=(o['b1'], o['b2']),
    eps=o['epsilon'],
    weight_decay=o['weight_decay'],
  )
  schedule = transformers.get_linear_schedule_with_warmup(
    tx, o['warmup_steps'], _STEPS
  )
  losses, logits = [], [compute_logits(bert, batches)]
  for step in range(_STEPS):
    loss = bert(**take_batch(job['head'], batches, step)).loss
    losses.append(loss.item())
    tx.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(bert.parameters(), o['clip_norm'])
    tx.step()
    schedule.step()
  logits.append(compute_logits(bert, batches))
  np.savez(
    os.path.join(folder, 'theirs.npz'), losses=losses, logits=np.stack(logits)
  )
  print(f'transformers {transformers.__version__}, torch {torch.__version__}')


def take_batch(head, batches, step):
  """Returns the arguments of a model of transformers for a batch."""
  found = {name: batches[ours][step].long() for ours, name in _INPUTS.items()}
  labels = batches['labels'][step].long()
  if head == 'spans':
    found['start_positions'], found['end_positions'] = labels.T
  elif head == 'tagging':
    found['labels'] = labels.where(batches['label_weights'][step] > 0, -100)
  else:
    found['labels'] = labels
  return found


def compute_logits(bert, batches):
  import torch

  inputs = {name: batches[ours][-1].long() for ours, name in _INPUTS.items()}
  with torch.no_grad():
    out = bert(**inputs)
  if hasattr(out, 'start_logits'):
    return torch.stack([out.start_logits, out.end_logits], -1).numpy()
  return out.logits.numpy()


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('head', choices=_AUTO)
  parser.add_argument('--torch', metavar='PYTHON')
  parser.add_argument('--folder', help=argparse.SUPPRESS)
  given = parser.parse_args()
  if given.folder:
    return theirs(given.folder)
  if not given.torch:
    parser.error('--torch is needed.')
  c = get_config(given.head)
  batches = [make_batch(given.head, i) for i in range(_STEPS + 1)]
  with tempfile.TemporaryDirectory() as folder:
    model = os.path.join(folder, 'model')
    objective, state = start(c, model)
    here, logits = ours(c, objective, state, batches[:-1], batches[-1])
    np.savez(
      os.path.join(model, 'batches.npz'),
      **{name: np.stack([x[name] for x in batches]) for name in batches[0]},
    )
    job = {'head': given.head, 'optimizer': c.optimizer.to_dict()}
    with open(os.path.join(model, 'job.json'), 'w', encoding='utf-8') as file:
      json.dump(job, file)
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    command = [given.torch, os.path.abspath(__file__), given.head]
    subprocess.run([*command, f'--folder={model}'], check=True, env=environment)
    with np.load(os.path.join(model, 'theirs.npz')) as file:
      there = dict(file)
  loss = float(np.abs(here - there['losses']).max())
  off = np.abs(logits - there['logits'])
  if given.head in ('tagging', 'spans'):  # of tokens, without those of padding
    off = off[:, batches[-1]['input_mask'] > 0]
  before, after = (float(x.max()) for x in off)
  print(f'loss {here[0]:.4f} at first, {here[-1]:.4f} at last')
  print(f'losses differ by {loss:.1e} at most over {_STEPS} updates')
  print(f'logits differ by {before:.1e} before, {after:.1e} after')
  good = max(loss, before, after) <= _TOLERANCE
  print(
    f'{"PASS" if good else "FAIL"}: {given.head} (allowed {_TOLERANCE:.0e})'
  )
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
