"""Trains BertForPreTraining of transformers in PyTorch.

See ../step.py. The second argument of the command is eager or compile.
"""

import itertools
import re
import sys

import numpy as np
import pipe
import torch
import transformers

# Names here, and those of the model's arguments.
FEATURES = {
  'input_ids': 'input_ids',
  'input_mask': 'attention_mask',
  'segment_ids': 'token_type_ids',
  'labels': 'labels',
  'next_sentence_labels': 'next_sentence_label',
}


def optimizer(model, c, device):
  """Returns (AdamW, schedule); fused where the device is a GPU."""
  groups = [{'params': []}, {'params': [], 'weight_decay': 0.0}]
  for name, parameter in model.named_parameters():
    groups[bool(re.search('LayerNorm|bias', name))]['params'].append(parameter)
  tx = torch.optim.AdamW(
    groups,
    lr=c['optimizer.learning_rate'],
    betas=(c['optimizer.b1'], c['optimizer.b2']),
    eps=c['optimizer.epsilon'],
    weight_decay=c['optimizer.weight_decay'],
    fused=True,
  )
  schedule = transformers.get_linear_schedule_with_warmup(
    tx, c['optimizer.warmup_steps'], sum(c['phases.steps'])
  )
  return tx, schedule


def read_batches(path, device):
  """Returns a list of arguments of the model."""
  with np.load(path) as file:
    stacked = {name: torch.tensor(file[k]) for k, name in FEATURES.items()}
  if stacked['attention_mask'].all():
    del stacked['attention_mask']  # a mask keeps the fastest attention away
  return [
    {name: x[i].long().to(device) for name, x in stacked.items()}
    for i in range(len(stacked['input_ids']))
  ]


def trainer(settings, compiled, device):
  """Returns (steps) -> loss of the last step."""
  c = settings['config']
  torch.manual_seed(c['seed'])
  model = transformers.BertForPreTraining(
    transformers.BertConfig(
      **settings['transformers'],
      hidden_act='gelu_pytorch_tanh',
      attn_implementation='sdpa',
    )
  )
  model = model.to(device).train()
  tx, schedule = optimizer(model, c, device)
  forward = torch.compile(model, dynamic=False) if compiled else model
  source = itertools.cycle(read_batches(settings['batches'], device))
  half = c['model.dtype'] == 'bfloat16'

  def train(steps):
    for _ in range(steps):
      with torch.autocast(device, torch.bfloat16, enabled=half):
        loss = forward(**next(source)).loss
      loss.backward()
      torch.nn.utils.clip_grad_norm_(
        model.parameters(), c['optimizer.clip_norm']
      )
      tx.step()
      schedule.step()
      tx.zero_grad()
    return loss.item()

  return train


def main():
  settings = pipe.settings()
  device, name = 'cpu', 'cpu'
  if settings['device'] == 'gpu':
    device, name = 'cuda', torch.cuda.get_device_name()
  facts = {
    'versions': f'transformers {transformers.__version__}, '
    f'torch {torch.__version__}',
    'device': name,
  }
  # Free the memory for the others' turns.
  train = trainer(settings, sys.argv[2] == 'compile', device)
  pipe.serve(facts, train, after=torch.cuda.empty_cache)


if __name__ == '__main__':
  main()
